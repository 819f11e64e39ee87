"""Rates agreed in band through three elements: known in one round trip, renewed, released, lost and regained.

Brassil et al., The CHART System, sections 2 (in-band signalling) and 5 (the sender jumps to the explicit rate).
"""

from __future__ import annotations

import pytest

from chart.common import qos
from chart_lab.experiments.signal_capture import Capture, Packet
from chart_lab.experiments.signal_lab import Signals, ask, elements
from chart_lab.network import Lab
from chart_lab.topology import Impairment
from support.figures import Figures
from support.signals import DELAY_MS, IPV6, PORT, RATE_BPS, Start, control_of
from support.waiting import poll

pytestmark = pytest.mark.lab

RTT_S = 4 * DELAY_MS / 1e3
CONTROL = "trinity"
# What is left of a link for explicit rates, and what that becomes as a rate word.
LINK_RATE_BPS = qos.decode_rate(qos.encode_rate(int(RATE_BPS * 0.97)))


def rate_of(status: dict[str, list[dict[str, int]]]) -> int:
    """The rate of the node's only flow; 0: none."""
    return status["flows"][0]["rate_bps"] if status["flows"] else 0


def test_known_in_one_round_trip_and_closed_with_the_flow(
    lab: Lab, signals: Signals, flow: Start, figures: Figures
) -> None:
    with elements(lab, signals) as running:
        with Capture(lab, "alpha", "to-mid", "port", str(PORT)) as capture:
            transfer = flow(seconds=3)
            assert poll(lambda: control_of(lab) == CONTROL)
            assert poll(lambda: rate_of(running["alpha"].status()) == LINK_RATE_BPS)
            assert running["alpha"].link("to-mid")["flows"] == 1
            assert running["mid"].link("to-bravo")["flows"] == 1
            assert transfer.whole()
        assert poll(lambda: running["mid"].link("to-bravo")["flows"] == 0)
        assert running["alpha"].link("to-mid")["flows"] == 0
    packets = capture.packets()
    first: dict[qos.Status, Packet] = {}
    for packet in packets:
        parsed = packet.signal
        if parsed is not None:
            first.setdefault(qos.Status(parsed.signal.qos.status), packet)
    syn = next(packet for packet in packets if packet.signal is None)
    assert first[qos.Status.REQUEST].at_s <= syn.at_s
    known_s = first[qos.Status.RESPONSE].at_s - first[qos.Status.REQUEST].at_s
    figures.within("until the rate is known", known_s / RTT_S, (1, 1.25), "round trips", sound=(0.5, 25))
    assert {qos.Status.CONFIRM, qos.Status.RENEGOTIATE, qos.Status.RENEGOTIATE_RESPONSE, qos.Status.CLOSE} <= set(first)


def test_two_flows_share_the_link(lab: Lab, signals: Signals, flow: Start) -> None:
    signals.asks = {"alpha": [ask(port=PORT, available_bps=10**12), ask(port=PORT + 1, available_bps=10**12)]}
    with elements(lab, signals) as running:
        flow()
        assert poll(lambda: rate_of(running["alpha"].status()) == LINK_RATE_BPS)
        other = ["/usr/bin/python3", "-c", OTHER_FLOW, lab.address("bravo"), str(PORT + 1)]
        sink = lab.popen("bravo", ["/usr/bin/python3", "-c", OTHER_SINK, lab.address("bravo"), str(PORT + 1)])
        assert sink.stdout is not None
        assert sink.stdout.readline()
        second = lab.popen("alpha", other)
        try:
            half = qos.decode_rate(qos.encode_rate(int(RATE_BPS * 0.97) // 2))

            def rates() -> list[int]:
                return [each["rate_bps"] for each in running["alpha"].status()["flows"]]

            assert poll(lambda: rates() == [half, half]), rates()
        finally:
            for process in (second, sink):
                process.kill()
                process.communicate()


OTHER_SINK = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
connection = listener.accept()[0]
while connection.recv(1 << 20):
    pass
"""
OTHER_FLOW = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    connection.sendall(bytes(1 << 16))
"""


def test_elements_die_and_come_back(lab: Lab, signals: Signals, flow: Start) -> None:
    signals.policy = {"legacy_ms": 1000}
    with elements(lab, signals) as running:
        flow()
        assert poll(lambda: control_of(lab) == CONTROL)
        running["mid"].kill()
        assert poll(lambda: control_of(lab) not in (CONTROL, ""), limit_s=30), "the rate must end with its renewals"
        running["mid"].start()
        assert poll(lambda: control_of(lab) == CONTROL, limit_s=30), "and come back with them, with unused sequences"
        assert running["bravo"].counters()["replayed"] == 0


def test_a_tenth_of_all_packets_lost_both_ways(lab: Lab, signals: Signals, flow: Start, figures: Figures) -> None:
    lab.impair("alpha-mid", Impairment(loss=0.1))
    try:
        with elements(lab, signals) as running:
            transfer = flow(seconds=6)
            assert poll(lambda: control_of(lab) == CONTROL)
            lapses = 0
            for _ in range(30):
                poll(lambda: False, limit_s=0.05)
                lapses += control_of(lab) not in (CONTROL, "")
            figures.at_most("looks that find no rate, of 30", lapses, 0, "looks", sound=15)
            assert running["alpha"].counters()["accepted"] > 0
            assert transfer.whole()
    finally:
        lab.impair("alpha-mid", Impairment(loss=0.0))


def test_ipv6(lab: Lab, signals: Signals, flow: Start) -> None:
    with elements(lab, signals) as running:
        transfer = flow(address=IPV6["bravo"], seconds=3)
        assert poll(lambda: control_of(lab) == CONTROL)
        assert poll(lambda: rate_of(running["alpha"].status()) == LINK_RATE_BPS)
        assert transfer.whole()


def test_options_dropped_on_the_way_the_shim_takes_over(
    lab: Lab, signals: Signals, flow: Start, no_options: None
) -> None:
    with elements(lab, signals) as running:
        transfer = flow(seconds=4)
        assert poll(lambda: control_of(lab) == CONTROL)
        assert running["alpha"].counters()["shim_sent"] > 0
        assert running["alpha"].counters()["consumed"] > 0
        assert transfer.whole()


def test_no_answer_through_any_carrier_stays_ordinary_tcp(
    lab: Lab, signals: Signals, flow: Start, no_options: None
) -> None:
    signals.shim = False
    with elements(lab, signals) as running:
        transfer = flow(octets=2e6)
        assert transfer.whole()
        assert running["alpha"].counters()["consumed"] == 0


def test_unauthorised_gets_the_free_level(lab: Lab, signals: Signals, flow: Start) -> None:
    signals.authorisations = []
    signals.policy = {"free_bps": 3_000_000}
    with elements(lab, signals) as running:
        flow()
        free_bps = qos.decode_rate(qos.encode_rate(3_000_000))
        assert poll(lambda: rate_of(running["alpha"].status()) == free_bps)


UDP_SINK = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
print("bound", flush=True)
while True:
    s.recv(2048)
"""
UDP_CLIENT = """
import socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], int(sys.argv[2])))
s.setsockopt(0x4348, 1, struct.pack("=QQBBBBI", 8_000_000, 0, 0, 0, 0, 1, 0))
end, rate = time.monotonic() + 3, ()
while time.monotonic() < end:
    s.send(bytes(500))
    time.sleep(0.02)
    rate = struct.unpack("=QQQII", s.getsockopt(0x4348, 2, 32))
    if rate[3] == 2:
        break
print(rate[0], rate[1], rate[3], rate[2] > time.monotonic_ns(), flush=True)
try:
    s.setsockopt(0x4348, 1, struct.pack("=QQBBBBI", 1, 0, 0, 0, 0, 9, 0))
except OSError as error:
    print(error.errno, flush=True)
s.setsockopt(0x4348, 1, bytes(24))
s.send(b"")
"""


def test_a_program_asks_for_its_udp_socket(lab: Lab, signals: Signals) -> None:
    address = lab.address("bravo")
    sink = lab.popen("bravo", ["/usr/bin/python3", "-c", UDP_SINK, address, "7000"])
    assert sink.stdout is not None
    assert sink.stdout.readline()
    with elements(lab, signals) as running:
        try:
            told = lab.exec("alpha", ["/usr/bin/python3", "-c", UDP_CLIENT, address, "7000"]).stdout
        finally:
            sink.kill()
            sink.communicate()
        agreed, refused = told.splitlines()
        wanted = qos.decode_rate(qos.encode_rate(8_000_000))
        assert agreed == f"{wanted} 0 2 True"
        assert refused == "22"
        # Withdrawn: nothing is kept for it any more.
        assert poll(lambda: running["mid"].link("to-bravo")["held_bps"] == 0)


def test_without_an_agent_the_option_is_unknown(lab: Lab) -> None:
    script = "import socket; s = socket.socket(); s.setsockopt(0x4348, 1, bytes(24))"
    told = lab.exec("alpha", ["/usr/bin/python3", "-c", script], check=False)
    assert "Protocol not available" in told.stderr or "not supported" in told.stderr
