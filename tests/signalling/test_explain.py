"""`chart-agent --explain`: every element's part in a flow that asks in band."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chart_lab.experiments import signal_lab
from chart_lab.network import Lab
from chart_lab.programs import program
from support.signals import PORT, RATE_BPS, Start
from support.waiting import poll

pytestmark = pytest.mark.lab


def explained(lab: Lab, node: str) -> list[dict[str, Any]]:
    """What a node's agent says of the flow from alpha to bravo."""
    words = ["--state-dir", str(lab.node_directory(node)), "--explain", f"-{lab.address('bravo')}:{PORT}", "--json"]
    told: dict[str, Any] = json.loads(lab.exec(node, [str(program("dataplane/chart-agent")), *words]).stdout)
    found: list[dict[str, Any]] = told["in_band"]
    return found


def test_every_hop_tells_its_state_and_the_epoch_of_its_key(lab: Lab, signals: signal_lab.Signals, flow: Start) -> None:
    signals.epoch = 5
    with signal_lab.elements(lab, signals):
        flow()

        def hops() -> dict[str, tuple[str, str, int, int]]:
            found = {node: explained(lab, node) for node in ("alpha", "mid", "bravo")}
            return {
                node: (one["role"], one["state"], one["element"], one["key_epoch"])
                for node, told in found.items()
                for one in told
            }

        expected = {
            "alpha": ("origin", "agreed", signals.number("mid"), 5),
            "mid": ("transit", "kept", signals.number("bravo"), 5),
            "bravo": ("last", "answered", signals.number("mid"), 5),
        }
        assert poll(hops, lambda found: found == expected, limit_s=20) == expected
        (origin,) = explained(lab, "alpha")
        assert 0.9 * RATE_BPS < origin["agreed_bps"] <= RATE_BPS
        assert 0 < origin["lease_ms"] <= 3_000
        words = ["--state-dir", str(lab.node_directory("mid")), "--explain", f":{PORT}"]
        assert "transit, kept" in lab.exec("mid", [str(program("dataplane/chart-agent")), *words]).stdout
