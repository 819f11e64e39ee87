"""The sensor programs as a pod uses them: exit status by kind, one clear line, the --serve protocol, declarations."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

SENSORS = ("ping", "traceroute", "pathchirp", "spruce", "pathrate", "tulip", "tcp-rtt", "snmp", "host")
ORIGINALS = ("pathchirp-original", "pathrate-original", "spruce-original")
MANUALS = Path(__file__).resolve().parents[2] / "sensors" / "man"


def run(*command: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command], input=stdin, capture_output=True, text=True, timeout=30, check=False)


def serve(*command: str | Path, requests: list[object]) -> dict[Any, dict[str, Any]]:
    """Answers by id."""
    lines = [request if isinstance(request, str) else json.dumps(request) for request in requests]
    result = run(*command, "--serve", stdin="\n".join(lines) + "\n")
    assert result.returncode == 0, result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(answers) == len(requests)
    return {answer.get("id"): answer for answer in answers}


@pytest.mark.parametrize("name", [*SENSORS, *ORIGINALS, "sensor-responder"])
def test_help_and_manual_list_the_options_and_bad_arguments_are_one_line(programs: Path, name: str) -> None:
    told = run(programs / name, "--help")
    assert told.returncode == 0
    assert f"usage: {name}" in told.stdout
    options = set(re.findall(r"^  --([a-z-]+)", told.stdout, re.MULTILINE)) - {"help"}
    manual = (MANUALS / f"{name}.1").read_text().replace("\\-", "-")
    described = set(re.findall(r'^\.(?:BI? |IB HOST ", )--([a-z-]+)', manual, re.MULTILINE))
    assert options
    assert options <= described, "the manual does not know them"
    assert described <= options, "the program does not know them"
    refused = run(programs / name, "--no-such-option")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"{name}: ")
    assert refused.stderr.count("\n") == 1


def test_exit_status_tells_the_kind(programs: Path, key_file: Path, tmp_path: Path) -> None:
    no_key = run(programs / "pathchirp", "--destination", "127.0.0.1", "--json")
    assert no_key.returncode == 2
    assert json.loads(no_key.stdout)["error"]["kind"] == "usage"
    # Nothing listens on the discard port of loopback.
    dead = ["--destination", "127.0.0.1", "--port", "9", "--key-file", str(key_file), "--timeout-ms", "100", "--json"]
    probes = ["ping", "--protocol", "udp", "--count", "1"]
    for command in (probes, ["pathchirp"], ["pathrate"], ["spruce", "--capacity-bps", "1e7"]):
        unreachable = run(programs / command[0], *command[1:], *dead)
        assert unreachable.returncode == 3, unreachable
        assert json.loads(unreachable.stdout)["error"]["kind"] == "unreachable"
        assert unreachable.stderr.count("\n") == 1
    no_capacity = run(programs / "spruce", "--destination", "127.0.0.1", "--key-file", key_file)
    assert no_capacity.returncode == 2
    assert "--capacity-bps is missing" in no_capacity.stderr
    open_key = tmp_path / "open.key"
    open_key.write_text(key_file.read_text())
    open_key.chmod(0o644)
    assert run(programs / "sensor-responder", "--key-file", open_key).returncode == 4


def test_declare_sends_nothing_and_bounds_the_run(programs: Path) -> None:
    declared = run(programs / "pathchirp", "--declare", "--destination", "192.0.2.1", "--limit-bytes", "300000")
    assert declared.returncode == 0
    assert json.loads(declared.stdout) == {"probe_bytes": 300000, "duration_ms": 5000}
    declared = run(programs / "traceroute", "--declare", "--destination", "192.0.2.1", "--max-hops", "10")
    assert json.loads(declared.stdout) == {"probe_bytes": 1800, "duration_ms": 4300}
    declared = run(programs / "spruce", "--declare", "--destination", "192.0.2.1", "--capacity-bps", "1e7")
    assert json.loads(declared.stdout)["probe_bytes"] < 1_000_000
    declared = run(programs / "pathrate", "--declare", "--destination", "192.0.2.1", "--limit-bytes", "300000")
    assert json.loads(declared.stdout) == {"probe_bytes": 300000, "duration_ms": 10500}
    declared = run(programs / "ping", "--declare", "--destination", "192.0.2.1", "--count", "5", "--interval-ms", "20")
    assert json.loads(declared.stdout) == {"probe_bytes": 500, "duration_ms": 1080}


def test_ping_serves_many_at_once(programs: Path, key_file: Path, loopback_responder: int) -> None:
    ask = {"destination": "127.0.0.1", "protocol": "udp", "port": loopback_responder, "count": "5", "interval_ms": 20}
    answers = serve(
        programs / "ping",
        "--key-file",
        key_file,
        requests=[
            *({"id": number, **ask} for number in range(20)),
            {"id": "declared", **ask, "declare": True},
            {"id": "bad", "x": 1},
        ],
    )
    spans = []
    for number in range(20):
        answer = answers[number]
        metrics = {metric["metric"]: metric["value"] for metric in answer["metrics"]}
        assert set(metrics) == {"rtt_us", "rtt_min_us", "rtt_p95_us", "jitter_us", "loss_ratio"}
        assert 0 <= metrics["rtt_min_us"] <= metrics["rtt_us"]
        assert (answer["sensor"], answer["probes_sent"], answer["probes_lost"]) == ("ping", 5, 0)
        assert isinstance(answer["started_at_us"], int)
        spans.append((answer["started_at_us"], answer["ended_at_us"]))
    assert max(start for start, _ in spans) < min(end for _, end in spans), "the runs did not overlap"
    assert answers["declared"]["probe_bytes"] >= answers[0]["probe_bytes"]
    assert answers["bad"]["error"]["kind"] == "usage"


def test_pathchirp_serves_on_after_a_bad_request(programs: Path, key_file: Path, loopback_responder: int) -> None:
    ask = {"destination": "127.0.0.1", "port": loopback_responder, "limit_ms": 1500, "interval_ms": 10}
    answers = serve(
        programs / "pathchirp",
        "--key-file",
        key_file,
        requests=["not json", {"id": 1, **ask, "declare": True}, {"id": 2, **ask}],
    )
    assert answers[None]["error"]["kind"] == "usage"
    result = answers[2]
    assert result["sensor"] == "pathchirp"
    # Loopback has no rate to find: the run ends in time with a number or says that it cannot judge.
    if "error" not in result:
        assert result["metrics"][0]["metric"] == "available_bandwidth_bps"
        assert result["metrics"][0]["value"] > 0
        assert result["probe_bytes"] <= answers[1]["probe_bytes"]
        assert result["ended_at_us"] - result["started_at_us"] <= answers[1]["duration_ms"] * 1000
