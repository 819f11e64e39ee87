"""What `scone` judges: the signals that arrived against the rates that the platform said flows have. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from chart_lab.experiments.framework import Figure
from chart_lab.scone_endpoint import HIGHEST, UNKNOWN, Arrival, advised_bps

# Advice has to follow a change of rate so soon, and REST may say a rate so long after the kernel has it.
FOLLOW_S = 2.0
# Of the scale of signals.
STEP = 10 ** (1 / 20)
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


def is_changing(looks: Sequence[Look], port: int, at_s: float) -> bool:
    """Whether nobody knows a flow's rate at a moment: it is not said just before and just after, or is another one by
    more than a step of the scale, so that it may have been anything between two looks.
    """
    before = next((one for one in reversed(looks) if one.at_s <= at_s), None)
    after = next((one for one in looks if one.at_s > at_s), None)
    if before is None or after is None or port not in before.rates_bps or port not in after.rates_bps:
        return True
    low, high = sorted((before.rates_bps[port], after.rates_bps[port]))
    return high > low * STEP


def below(arrivals: Sequence[Arrival], looks: Sequence[Look]) -> Iterator[float]:
    """By how much each advice is below the flow's rate, as a share of it; negative: above. Of several rates that the
    flow had around that moment the least that the advice does not exceed counts. What came while the rate changed is
    left out where it is not above all of them.
    """
    for one in arrivals:
        if one.signal is None or one.signal == UNKNOWN:
            continue
        rates = rates_around(looks, one.port, one.at_s - FOLLOW_S, one.at_s + LATER_S)
        above = rates and advised_bps(one.signal) > max(rates)
        if rates and (above or not is_changing(looks, one.port, one.at_s)):
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


@dataclass(frozen=True)
class Told:
    """What the ends of a QUIC connection say: datagrams sent and received, the last advice, the rate that was sent."""

    sent: int
    received: int
    advice_bps: float
    rate_bps: float
    speaks_scone: bool

    @property
    def loss(self) -> float:
        """The part that did not arrive."""
        return (self.sent - self.received) / self.sent


def evaluate_policed(follows: Told, ignores: Told) -> list[Figure]:
    """Who follows its advice loses nothing by it; who does not is no more than shown beside it."""
    return [
        Figure("policed_loss", follows.loss, "ratio", "<= 0.001"),
        Figure("policed_loss_tried", follows.sent, "packets"),
        Figure("policed_rate_to_advice", follows.rate_bps / follows.advice_bps, "ratio"),
        Figure("policed_loss/ignores", ignores.loss, "ratio"),
        Figure("policed_rate_to_advice/ignores", ignores.rate_bps / ignores.advice_bps, "ratio"),
    ]


def evaluate(arrivals: Sequence[Arrival], looks: Sequence[Look]) -> list[Figure]:
    """The figures."""
    given = [one for one in arrivals if one.signal not in (None, UNKNOWN)]
    shares = list(below(arrivals, looks))
    changes = list(followed(arrivals, looks))
    return [
        Figure("advice_below_rate_min", min(shares, default=None), "ratio", ">= 0"),
        Figure("advice_below_rate_max", max(shares, default=None), "ratio", "<= 0.122"),
        Figure("advised_packets", len(shares), "packets"),
        Figure("advised_packets_while_rates_changed", len(given) - len(shares), "packets"),
        Figure("bad_checksums", sum(not one.checksum for one in arrivals), "packets", "<= 0"),
        Figure("bad_checksums_tried", len(arrivals), "packets"),
        Figure("changed_payload", sum(not one.intact for one in arrivals), "packets", "<= 0"),
        Figure("stale_advice", sum(not one for one in changes), "changes", "<= 0"),
        Figure("stale_advice_tried", len(changes), "changes"),
    ]
