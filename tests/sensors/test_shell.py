"""pathchirp and pathrate as people use them: a host's name, the key file of the machine, a number on the terminal."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chart_lab.network import Lab

pytestmark = pytest.mark.lab

RATE_MBIT = 20
# Functional: how near a sensor comes is test_paths.py's.
NEAR = (0.3, 3.0)
SPOILT, SPOILT_RUNS = 5, 10
METRICS = {"pathchirp": "available_bandwidth_bps", "pathrate": "capacity_bps"}
HOST = "bravo.example"


class Machine:
    """A node with a /etc of its own: the names that it knows, and maybe a key."""

    def __init__(self, lab: Lab, node: str, etc: Path, programs: Path) -> None:
        self._lab, self._node, self._etc, self._programs = lab, node, etc, programs
        (etc / "chart").mkdir(parents=True)
        (etc / "hosts").write_text(f"{lab.address('bravo')} {HOST}\n")
        (etc / "nsswitch.conf").write_text("hosts: files\n")
        self.key = etc / "chart" / "sensor.keys"

    def command(self, *arguments: str) -> list[str]:
        """The command line of a program here."""
        inside = ["unshare", "--mount", "sh", "-c", 'mount --bind "$1" /etc && shift && exec "$@"', "sh"]
        program = [str(self._programs / arguments[0]), *arguments[1:]]
        return self._lab.command_line(self._node, [*inside, str(self._etc), *program])

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program here to its end."""
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=30, check=False)

    def run_unspoilt(self, *arguments: str) -> str:
        """What it prints; a slow machine that spoils its trains is asked again, as people do."""
        for _ in range(SPOILT_RUNS):
            result = self.run(*arguments)
            if result.returncode != SPOILT:
                break
        assert result.returncode == 0, result.stderr
        return result.stdout

    @contextmanager
    def responding(self) -> Iterator[None]:
        """A sensor-responder with the key of this machine."""
        with subprocess.Popen(self.command("sensor-responder"), stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            told = process.stderr.readline()
            assert "serving 1 address(es), port 18300" in told
            try:
                yield
            finally:
                process.terminate()


@pytest.fixture
def machines(make_lab: Callable[..., Lab], programs: Path, tmp_path: Path) -> tuple[Machine, Machine]:
    """The near and the far one, over an emulated link; neither has a key."""
    lab = make_lab(rate_mbit=RATE_MBIT, delay_ms=5)
    near, far = (Machine(lab, node, tmp_path / node / "etc", programs) for node in ("alpha", "bravo"))
    return near, far


def is_near(value_bps: float) -> bool:
    return NEAR[0] <= value_bps / (RATE_MBIT * 1e6) <= NEAR[1]


def test_a_host_and_a_copied_key_are_all_that_a_number_needs(machines: tuple[Machine, Machine]) -> None:
    near, far = machines
    made = far.run("sensor-responder", "--generate-key", "/etc/chart/sensor.keys")
    assert made.returncode == 0, made.stderr
    shutil.copy(far.key, near.key)
    with far.responding():
        for sensor, metric in METRICS.items():
            text = near.run_unspoilt(sensor, HOST)
            printed = re.search(rf"^{metric} +([0-9.]+) bps$", text, re.M)
            assert printed, text
            assert is_near(float(printed[1])), text
            lines = near.run_unspoilt(sensor, HOST, "--json").splitlines()
            assert len(lines) == 1, "a record is one line, with nothing beside it"
            record = json.loads(lines[0])
            assert record["sensor"] == sensor
            values = {one["metric"]: (one["value"], one["unit"]) for one in record["metrics"]}
            assert is_near(values[metric][0])
            assert values[metric][1] == "bps"


@pytest.mark.parametrize("sensor", METRICS)
def test_what_is_wrong_with_the_key_is_told_with_what_to_do(machines: tuple[Machine, Machine], sensor: str) -> None:
    near, far = machines

    def fails(status: int, kind: str, *words: str) -> None:
        for output in ((), ("--json",)):
            result = near.run(sensor, HOST, *output)
            assert result.returncode == status, result
            assert result.stderr.startswith(f"{sensor}: ")
            assert result.stderr.count("\n") == 1
            assert [word for word in words if word not in result.stderr] == [], result.stderr
            error = json.loads(result.stdout)["error"] if output else None
            assert result.stdout == "" or output
            assert error is None or (error["kind"], f"{sensor}: {error['message']}\n") == (kind, result.stderr)

    idle = far.run("sensor-responder")
    assert idle.returncode == 2
    assert "sensor-responder --generate-key /etc/chart/sensor.keys" in idle.stderr
    fails(2, "usage", "no key", "copy the responder's file to /etc/chart/sensor.keys", "--key-file")
    for machine in machines:
        assert machine.run("sensor-responder", "--generate-key", "/etc/chart/sensor.keys").returncode == 0
    fails(3, "unreachable", HOST, "nothing listens on UDP port 18300", "start sensor-responder there")
    with far.responding():
        fails(3, "unreachable", HOST, "no sensor-responder answers", "the same key file at both ends")
        near.key.chmod(0o644)
        fails(4, "permission", "others may read this key file", "chmod 600")
        near.key.unlink()
        shutil.copy(far.key, near.key)
        near.run_unspoilt(sensor, HOST)
