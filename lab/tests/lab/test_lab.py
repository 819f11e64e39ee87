"""The lab itself: what `up` builds, what `down` leaves, also after a crash, and whether links do what they say."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chart_lab import kernel, supervise, topology
from chart_lab.errors import LabError
from chart_lab.experiments import traffic
from chart_lab.network import RUNTIME, Lab
from chart_lab.supervisord import Supervised
from chart_lab.topology import Impairment
from support.figures import Figures
from support.waiting import until

pytestmark = pytest.mark.lab
LabMaker = Callable[..., Lab]


def traces(lab_id: str, state_dir: Path) -> list[str]:
    """Everything of a lab that the machine still shows."""
    found = [str(path) for path in kernel.NAMESPACES.glob(f"chart-{lab_id}-*")]
    found += [str(path) for path in (kernel.cgroup_root() / "chart").glob(lab_id)]
    found += [str(path) for path in (RUNTIME / lab_id, state_dir / lab_id) if path.exists()]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"/{lab_id}/" in command and "pytest" not in command:
            found.append(command)
    return found


def ping(lab: Lab, source: str, destination: str, count: int = 10) -> tuple[int, float]:
    """Replies and least RTT in ms."""
    command = ["ping", "-n", "-c", str(count), "-i", "0.02", "-W", "1", lab.address(destination)]
    told = lab.exec(source, command, check=False).stdout
    replies = re.search(r"(\d+) received", told)
    least = re.search(r"= ([\d.]+)/", told)
    assert replies is not None, told
    return int(replies.group(1)), float(least.group(1)) if least else float("inf")


def test_up_joins_all_nodes_and_down_leaves_nothing(make_lab: LabMaker) -> None:
    lab = make_lab("demo", loss=0)
    replies, least_ms = ping(lab, "alpha", "delta")
    assert replies == 10
    assert 104 <= least_ms < 110
    process = lab.popen("bravo", ["sleep", "1000"])
    assert process.pid in lab.processes("bravo") or process.poll() is None
    assert traces(lab.id, lab.directory.parent)
    lab.down()
    process.communicate(timeout=5)
    assert process.returncode != 0
    assert traces(lab.id, lab.directory.parent) == []


@pytest.mark.parametrize("marker", ["node bravo", "link alpha-bravo", "link bravo-charlie"])
def test_what_a_kill_half_way_leaves_is_removed_by_another_process(tmp_path: Path, marker: str) -> None:
    lab_id = f"t{secrets.token_hex(3)}"
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from chart_lab import topology\n"
        "from chart_lab.network import Lab\n"
        "lab = Lab(topology.load('demo'), sys.argv[1], state_dir=Path(sys.argv[2]))\n"
        "lab.up(lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == sys.argv[3] else None)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, lab_id, str(tmp_path), marker], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert traces(lab_id, tmp_path)
    if marker == "link bravo-charlie":
        with pytest.raises(LabError, match="is up: `chart lab down"):
            Lab(topology.load("demo"), lab_id, state_dir=tmp_path).up()
    Lab.load(lab_id, state_dir=tmp_path).down()
    assert traces(lab_id, tmp_path) == []


@pytest.mark.parametrize("same_state", [True, False])
def test_a_lab_whose_processes_were_killed_is_built_again(tmp_path: Path, same_state: bool) -> None:
    lab_id = f"t{secrets.token_hex(3)}"
    first = Lab(topology.load("demo"), lab_id, state_dir=tmp_path / "first", management=True)
    again = Lab(topology.load("demo"), lab_id, state_dir=tmp_path / ("first" if same_state else "again"))
    again.management = True
    try:
        first.up()
        (first.cgroup / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + 5
        while not again.left_behind():
            assert time.monotonic() < deadline, "the killed processes are gone"
            time.sleep(0.01)
        again.up()
        assert ping(again, "alpha", "bravo")[0] > 0
    finally:
        again.down()
        first.down()
    assert traces(lab_id, tmp_path / "first") == traces(lab_id, tmp_path / "again") == []


def test_impairing_a_link_changes_what_ping_sees(make_lab: LabMaker) -> None:
    lab = make_lab()
    assert ping(lab, "alpha", "bravo")[1] < 5
    lab.impair("alpha-bravo", Impairment(delay_ms=20), "reverse")
    assert 20 <= ping(lab, "alpha", "bravo")[1] < 25
    lab.impair("alpha:to-bravo", Impairment(delay_ms=10))
    assert 30 <= ping(lab, "alpha", "bravo")[1] < 35
    lab.impair("alpha-bravo", Impairment(delay_ms=0, loss=0.3))
    assert 10 < ping(lab, "alpha", "bravo", count=60)[0] < 50
    lab.impair("alpha-bravo", Impairment(loss=0, outage=True))
    assert ping(lab, "alpha", "bravo", count=3)[0] == 0
    lab.impair("alpha-bravo", Impairment(outage=False))
    assert ping(lab, "alpha", "bravo")[0] == 10
    truth = lab.ground_truth("alpha-bravo")["forward"]
    dropped = sum(cause["packets"] for cause in truth["dropped"].values())
    assert truth["offered"]["packets"] == truth["carried"]["packets"] + dropped
    with pytest.raises(LabError, match="there is no link"):
        lab.impair("alpha-zulu", Impairment(loss=0))


def test_the_emulated_rate_is_exact(make_lab: LabMaker, figures: Figures) -> None:
    lab = make_lab(rate_mbit=20, delay_ms=5)
    lab.reset_ground_truth("alpha-bravo")
    account = traffic.Transfer(lab, "alpha", "bravo", duration_s=4, congestion="cubic").finish()
    share = account.goodput_bps(4.0, start_s=1.0) / (20e6 * 1448 / 1500)
    figures.within("goodput of CUBIC", share, (0.985, 1.005), "of the rate", sound=(0.5, 1.05))
    truth = lab.ground_truth("alpha-bravo")
    assert truth["forward"]["device_dropped_packets"] == 0
    assert truth["forward"]["queue"]["maximum_bytes"] <= 250_000


def test_a_pause_of_the_emulator_fills_no_queue(make_lab: LabMaker) -> None:
    """What a hypervisor does, done with signals: packets that came meanwhile are not taken to have come at once."""
    lab = make_lab(rate_mbit=50, delay_ms=5, loss=0)
    link = "alpha-bravo"
    found = subprocess.run(
        ["pgrep", "-f", f"linkem.*{lab.control_socket(lab.topology.links[0])}"], check=True, capture_output=True
    )
    (emulator,) = (int(pid) for pid in found.stdout.split())
    server = lab.popen("bravo", ["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    traffic.await_listening(lab, "bravo", 5201, server)
    client = lab.popen(
        "alpha",
        ["iperf3", "-c", lab.address("bravo"), "-u", "-b", "44M", "-l", "1200", "-t", "3"],
        stdout=subprocess.DEVNULL,
    )
    time.sleep(1)
    lab.reset_ground_truth(link)
    for _ in range(5):
        os.kill(emulator, signal.SIGSTOP)
        time.sleep(0.03)
        os.kill(emulator, signal.SIGCONT)
        time.sleep(0.2)
    counted = lab.ground_truth(link)["forward"]
    client.wait(timeout=20)
    server.wait(timeout=20)
    assert counted["lateness"]["maximum_us"] > 25_000
    # 30 ms are 137 packets of this flow.
    assert counted["queue"]["maximum_packets"] < 70
    assert counted["dropped"]["queue"]["packets"] == 0


def test_download_is_opened_by_the_receiver(make_lab: LabMaker) -> None:
    lab = make_lab(rate_mbit=20, delay_ms=5)
    account = traffic.Transfer(lab, "alpha", "bravo", duration_s=1.5, congestion="bbr", direction="download").finish()
    assert account.congestion == "bbr"
    assert account.syn_ns < account.established_ns
    assert 0.4 < account.goodput_bps(1.5) / 20e6 < 1


def test_idle_links_cost_no_processor_time(make_lab: LabMaker) -> None:
    lab = make_lab("demo")
    stat = lab.cgroup / "cpu.stat"

    def used_s() -> float:
        return int(stat.read_text().split()[1]) / 1e6

    before_s, started_s = used_s(), time.monotonic()
    lab.exec("alpha", ["sleep", "1"])
    assert (used_s() - before_s) / (time.monotonic() - started_s) < 0.05


def test_supervised_processes_come_back_and_go_with_the_lab(make_lab: LabMaker) -> None:
    lab = make_lab()
    log = lab.node_directory("alpha") / "sleeper.log"
    sleeper = Supervised(
        "sleeper", lab.command_line("alpha", ["sh", "-c", "echo $GREETING; exec sleep 1000"]), {"GREETING": "a%b"}, log
    )
    supervise.start(lab, [sleeper])

    until(lambda: [state for _, state, _ in supervise.processes(lab)] == ["RUNNING"], "it runs")
    (first,) = lab.processes("alpha")
    os.kill(first, signal.SIGKILL)
    until(lambda: lab.processes("alpha") not in ([], [first]), "another one runs")
    assert log.read_text().startswith("a%b")
    lab.down()
    assert traces(lab.id, lab.directory.parent) == []


def test_nodes_reach_the_host_over_the_management_bridge(tmp_path: Path) -> None:
    if any(Path("/sys/class/net").glob("chart-m[0-9]*")):
        pytest.skip("another lab has the management bridge")
    lab = Lab(topology.load("two-node"), f"t{secrets.token_hex(3)}", state_dir=tmp_path, management=True)
    before = kernel.bridge_exists()
    try:
        lab.up()
        told = lab.exec("bravo", ["ping", "-n", "-c", "1", "-W", "2", "10.254.0.1"]).stdout
        assert "1 received" in told
        other = Lab(topology.load("two-node"), f"t{secrets.token_hex(3)}", state_dir=tmp_path, management=True)
        with pytest.raises(LabError, match="management bridge"):
            other.up()
        other.down()
        assert "1 received" in lab.exec("alpha", ["ping", "-n", "-c", "1", "-W", "2", "10.254.0.1"]).stdout
    finally:
        lab.down()
    assert kernel.bridge_exists() == before
