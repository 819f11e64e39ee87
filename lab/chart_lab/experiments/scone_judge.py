"""What `scone` judges: the signals that arrived against the rates that the platform said flows have. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from chart_lab.experiments.framework import Figure
from chart_lab.scone_endpoint import HIGHEST, UNKNOWN, Arrival, advised_bps

# Advice has to follow a change of rate so soon, and REST may say a rate so long after the kernel has it.
FOLLOW_S = 2.0
LATER_S = 1.0


@dataclass(frozen=True)
class Look:
    """What the platform said at one moment (seconds since the epoch): the rate of each flow by its port, bit/s."""

    at_s: float
    rates_bps: Mapping[int, float]


def signal_for(rate_bps: float) -> int:
    """The highest signal that stands for no more than a rate, by the formula."""
    if rate_bps <= advised_bps(0):
        return 0
    # A rate that is a step but for rounding reaches it.
    return min(HIGHEST, math.floor(20 * math.log10(rate_bps / advised_bps(0)) + 1e-9))


def rates_around(looks: Sequence[Look], port: int, from_s: float, until_s: float) -> list[float]:
    """The rates of a flow that were said between two moments."""
    return [one.rates_bps[port] for one in looks if from_s <= one.at_s <= until_s and port in one.rates_bps]


def below(arrivals: Sequence[Arrival], looks: Sequence[Look]) -> Iterator[float]:
    """By how much each advice is below the flow's rate, as a share of it; negative: above. Of several rates that the
    flow had around that moment the least that the advice does not exceed counts.
    """
    for one in arrivals:
        if one.signal is None or one.signal == UNKNOWN:
            continue
        rates = rates_around(looks, one.port, one.at_s - FOLLOW_S, one.at_s + LATER_S)
        if rates:
            advice_bps = advised_bps(one.signal)
            rate_bps = min((rate for rate in rates if rate >= advice_bps), default=max(rates))
            yield 1 - advice_bps / rate_bps


def followed(arrivals: Sequence[Arrival], looks: Sequence[Look]) -> Iterator[bool]:
    """For every change of a flow's advice that held for FOLLOW_S: whether its first SCONE packet after that has it."""
    before: dict[int, int] = {}
    for one in sorted(arrivals, key=lambda arrival: arrival.at_s):
        if one.signal is None:
            continue
        due = {signal_for(rate) for rate in rates_around(looks, one.port, one.at_s - FOLLOW_S, one.at_s)}
        if len(due) != 1:
            continue
        signal = due.pop()
        if one.port in before and before[one.port] != signal:
            yield one.signal == signal
        before[one.port] = signal


def evaluate(arrivals: Sequence[Arrival], looks: Sequence[Look]) -> list[Figure]:
    """The figures."""
    shares = list(below(arrivals, looks))
    changes = list(followed(arrivals, looks))
    return [
        Figure("advice_below_rate_min", min(shares, default=None), "ratio", ">= 0"),
        Figure("advice_below_rate_max", max(shares, default=None), "ratio", "<= 0.122"),
        Figure("advised_packets", len(shares), "packets"),
        Figure("bad_checksums", sum(not one.checksum for one in arrivals), "packets", "<= 0"),
        Figure("bad_checksums_tried", len(arrivals), "packets"),
        Figure("changed_payload", sum(not one.intact for one in arrivals), "packets", "<= 0"),
        Figure("stale_advice", sum(not one for one in changes), "changes", "<= 0"),
        Figure("stale_advice_tried", len(changes), "changes"),
    ]
