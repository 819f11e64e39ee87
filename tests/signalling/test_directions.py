"""Rates for both directions of a connection, for the side that was called, and with the offloads of a fast device."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from chart_lab.experiments import signal_cost
from chart_lab.experiments.signal_capture import Capture
from chart_lab.experiments.signal_lab import Signals, ask, elements, line_topology
from chart_lab.network import Lab
from support.signals import DELAY_MS, PORT, RATE_BPS, Flow, Start, control_of
from support.waiting import poll

pytestmark = pytest.mark.lab

CONTROL = "trinity"
FAST_BPS = 500_000_000


def control_of_callee(lab: Lab) -> str:
    """Congestion control of bravo's side of the flow; empty: there is none."""
    told = lab.exec("bravo", ["ss", "-Htin", "state", "established", "sport", "=", f":{PORT}"]).stdout
    lines = [line.split()[0] for line in told.splitlines() if line.startswith("\t")]
    return lines[0] if lines else ""


def test_both_directions_of_one_connection(lab: Lab, signals: Signals, flow: Start) -> None:
    back = {"selector": {"protocol": "tcp", "source_port": PORT}, "available_bps": 20_000_000}
    signals.asks = {"alpha": [ask(port=PORT, available_bps=50_000_000)], "bravo": [back]}
    with elements(lab, signals) as running:
        transfer = flow(seconds=4)
        assert poll(lambda: control_of(lab) == CONTROL)
        assert poll(lambda: control_of_callee(lab) == CONTROL), "the side that was called asked too"
        assert poll(lambda: running["mid"].link("to-alpha")["flows"] == 1)
        assert running["mid"].link("to-bravo")["flows"] == 1
        assert transfer.whole()
        assert poll(lambda: running["mid"].link("to-alpha")["flows"] == 0)


def test_only_the_side_that_was_called(lab: Lab, signals: Signals, flow: Start) -> None:
    back = {"selector": {"protocol": "tcp", "source_port": PORT}, "available_bps": 20_000_000}
    signals.asks = {"bravo": [back]}
    with elements(lab, signals):
        transfer = flow(seconds=3)
        assert poll(lambda: control_of_callee(lab) == CONTROL)
        assert control_of(lab) != CONTROL
        assert transfer.whole()


def test_with_segmentation_and_gathering_by_the_device(tmp_path: Path) -> None:
    topology = line_topology(("alpha", "bravo"), rate_mbit=RATE_BPS / 1e6, delay_ms=DELAY_MS)
    signals = Signals(
        topology,
        asks={"alpha": [ask(port=PORT, available_bps=10**12)]},
        more_addresses={node: [f"{address}/32"] for node, address in signal_cost.ADDRESSES.items()},
        more_links={node: [f"{node}:v0=v0:{FAST_BPS}"] for node in signal_cost.ADDRESSES},
    )
    with Lab(topology, f"t{secrets.token_hex(3)}", state_dir=tmp_path) as lab:
        signal_cost.join_by_veth(lab)
        with elements(lab, signals) as running, Capture(lab, "alpha", "v0", "tcp", "and", "greater", "3000") as capture:
            transfer = Flow(lab, address=signal_cost.ADDRESSES["bravo"], octets=60e6)
            try:
                assert poll(lambda: control_of(lab) == CONTROL)
                assert transfer.whole()
            finally:
                transfer.close()
            counted = running["alpha"].counters()
        segments = len(capture.packets())
    assert segments > 100, "the device took no packets larger than its MTU"
    # A renewal every 128 packets of the wire, not of the stack.
    assert counted["sent"] > 60e6 / 1448 / 128 * 0.9
    assert counted["accepted"] > 0
