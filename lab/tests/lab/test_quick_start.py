"""Endpoint and judge of `quick-start`: options of SYNs, approvals above the threshold, gains by medians."""

from __future__ import annotations

import pytest

from chart_lab import experiments
from chart_lab.experiments import quick_start
from chart_lab.experiments.quick_start import CONTROLS, IN_BAND, SIZES, WAYS, Found, above_threshold, evaluate
from chart_lab.quick_start_endpoint import Asked, asked, rate_bps
from chart_lab.quick_start_liar import lie, syn_ack

SYN, ACK = 2, 16
REQUEST = bytes([25, 8, 0x0B, 200, 1, 2, 3, 4])


def packet(options: bytes, flags: int = SYN, ttl: int = 61, protocol: int = 6) -> bytes:
    header = bytes([0x40 | (20 + len(options)) // 4, 0, 0, 0, 0, 0, 0, 0, ttl, protocol, 0, 0]) + bytes(8)
    return header + options + (40001).to_bytes(2) + (5301).to_bytes(2) + bytes(8) + bytes([0x50, flags]) + bytes(6)


def test_rates_are_those_of_the_table() -> None:
    assert [rate_bps(one) for one in (0, 1, 11, 15)] == [0, 80_000, 81_920_000, 1_310_720_000]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (packet(REQUEST), Asked(40001, 11, (61 - 200) % 256)),
        (packet(b"\x01\x01\x01\x01" + REQUEST), Asked(40001, 11, (61 - 200) % 256)),
        (packet(bytes([7, 4, 0, 0]) + REQUEST), Asked(40001, 11, (61 - 200) % 256)),
        (packet(b""), Asked(40001, None, None)),
        (packet(b"\x00\x01\x01\x01" + REQUEST), Asked(40001, None, None)),
        (packet(bytes([7, 0, 0, 0]) + bytes(8)), Asked(40001, None, None)),
        (packet(REQUEST, SYN | ACK), None),
        (packet(REQUEST, ACK), None),
        (packet(REQUEST, protocol=17), None),
        (packet(b"")[:30], None),
    ],
)
def test_what_a_syn_asks_for(given: bytes, found: Asked | None) -> None:
    assert asked(given) == found


def test_who_lies_reports_more_and_all_else_as_it_is() -> None:
    response = lie(packet(REQUEST), 2)
    assert response == bytes([27, 8, 0x0D, (61 - 200) % 256, 1, 2, 3, 4])
    assert lie(packet(REQUEST), 5) is None
    assert lie(packet(b""), 1) is None
    assert lie(packet(bytes([25, 8, 0, 200, 1, 2, 3, 4])), 1) is None


def test_the_answer_of_who_lies_is_a_syn_ack() -> None:
    syn = packet(REQUEST)
    answer = syn_ack(syn, bytes(range(8)))
    assert answer[12:20] == syn[16:20] + syn[12:16]
    assert answer[20:24] == (5301).to_bytes(2) + (40001).to_bytes(2)
    assert answer[28:32] == (1).to_bytes(4)
    assert (answer[32] >> 4) * 4 == len(answer) - 20
    assert answer[33] == SYN | ACK
    assert answer[-8:] == bytes(range(8))


def test_approvals_of_a_window_count_together() -> None:
    assert above_threshold([(0.0, 60), (0.1, 30), (0.2, 0)], 90) == 0
    assert above_threshold([(0.0, 60), (0.1, 30), (0.29, 1)], 90) == 1
    # Those of a window before are forgotten, and what got nothing is above nothing.
    assert above_threshold([(0.0, 90), (0.31, 90)], 90) == 0
    assert above_threshold([(0.0, 91), (0.1, 0)], 90) == 1


def test_figures() -> None:
    seconds = {"cubic": [1.2, 1.1, 9.0], "bbr": [0.8] * 3, "quick-start": [0.3, 0.4, 0.3]}
    found = Found(
        seconds={(size, control, way): seconds[control] for size in SIZES for control in CONTROLS for way in WAYS}
        | {(size, IN_BAND, "push"): [0.7] for size in SIZES},
        lies={1: (100, 70), 2: (0, 0)},
        cost={"router": {"ratio": 1.004}, "host": {"ratio": 1.6}},
        bursts=[(0.0, 81_920_000), (0.01, 5_120_000), (0.02, 0)],
        connected_plain_s=0.2,
        connected_dropped_s=[1.21, 0.21, 0.2],
    )
    figures = {one.name: one for one in evaluate(found)}
    assert figures["gain_256k"].value == pytest.approx(4)
    assert figures["gain_1m"].peer == pytest.approx(0.8 / 0.3)
    assert (figures["approved_above_threshold"].value, figures["approved_above_threshold_tried"].value) == (0, 3)
    assert figures["gain_1m/after=idle"].goal is figures["gain_1m/from=listener"].goal is None
    assert figures["dropper_extra_rto"].value == pytest.approx(1.01)
    assert figures["nonce_lies_detected/steps=1"].value == pytest.approx(0.7)
    # Nobody lied: nothing was found out, and that is no success.
    assert [name for name, one in figures.items() if one.met() is False] == ["nonce_lies_detected/steps=2"]


def test_it_runs_on_the_platform_as_it_is_installed() -> None:
    assert experiments.REGISTRY["quick-start"] is quick_start.EXPERIMENT
    assert quick_start.EXPERIMENT.installed
