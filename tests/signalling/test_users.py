"""Sharing per user, then per flow, of rates that are agreed in band: four flows of one sender get what the single flow
of another gets (Brassil et al., The CHART System, section 4).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab.experiments.fair_share import bottleneck_topology
from chart_lab.experiments.framework import Settings
from chart_lab.experiments.signal_lab import Signals, ask, elements
from chart_lab.experiments.traffic import PAYLOAD_SHARE, Transfer
from chart_lab.network import Lab
from support.figures import Figures

pytestmark = pytest.mark.lab

BOTTLENECK_MBIT = 50.0
PORT = 5001
SECONDS = 10.0
JUDGED_S = 2.0  # at least
# A flow that joins takes its part at once, the others fall with their next renewal: what stands in the queue by then
# leaves it with the twentieth part of the link that is not given away.
SETTLED_S = 4.0
SHARES = (0.97, 1.03)
# Two users are told apart from five flows: without sharing per user one has four parts of five.
SOUND_SHARES = (0.6, 1.4)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """The dumbbell with half of its rate in the middle."""
    narrow = bottleneck_topology(Settings(tmp_path, rate_mbit=(BOTTLENECK_MBIT,)))
    with Lab(narrow, f"t{secrets.token_hex(3)}", state_dir=tmp_path) as built:
        yield built


def test_users_get_equal_parts_however_many_flows_they_have(lab: Lab, figures: Figures) -> None:
    rules = [ask(port=PORT + number, available_bps=10**12) for number in range(5)]
    ends = [("source1", "sink1")] * 4 + [("source2", "sink2")]
    with elements(lab, Signals(lab.topology, asks={"source1": rules, "source2": rules})) as running:
        transfers = [
            Transfer(lab, source, sink, duration_s=SECONDS, port=PORT + number)
            for number, (source, sink) in enumerate(ends)
        ]
        accounts = [transfer.finish() for transfer in transfers]
        link = running["west"].link("to-east")
    start_ns = max(account.syn_ns for account in accounts) + SETTLED_S * 1e9
    end_ns = min(account.syn_ns for account in accounts) + (SECONDS - 0.2) * 1e9
    assert end_ns - start_ns >= JUDGED_S * 1e9, "the transfers began too far apart"
    rates = [
        account.goodput_bps((end_ns - account.syn_ns) / 1e9, start_s=(start_ns - account.syn_ns) / 1e9)
        for account in accounts
    ]
    print("Mb/s:", [round(rate / 1e6, 2) for rate in rates], "link:", link)
    assert {account.congestion for account in accounts} == {"trinity"}
    part = BOTTLENECK_MBIT * 1e6 * 0.97 * PAYLOAD_SHARE / 2
    figures.within("part of the user with four flows", sum(rates[:4]) / part, SHARES, "of half", sound=SOUND_SHARES)
    figures.within("part of the user with one flow", rates[4] / part, SHARES, "of half", sound=SOUND_SHARES)
    spread = max(rates[:4]) / min(rates[:4])
    figures.at_most("largest to smallest flow of a user", spread, SHARES[1], "ratio", sound=2)
