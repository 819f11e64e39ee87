"""What `failover` judges: how long nothing arrived when a path was cut. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chart_lab.experiments.framework import Figure, dimensions

SILENT = ("both", "forward", "reverse")
CARRIER = "carrier"
OVERLAY, OSPF, BFD, OSPF_DEFAULT = "overlay", "ospf-1s", "ospf-bfd", "ospf-40s"
MEDIAN_GOAL_MS, P99_GOAL_MS, CARRIER_GOAL_MS, LOSSY_P99_GOAL_MS = 80, 150, 50, 250
# Of fewer cuts the greatest outage stands for the 99th percentile.
SAMPLES_FOR_P99 = 100


@dataclass(frozen=True)
class Cut:
    """One cut and what was seen of it: the longest time without a packet in either direction, less the usual time
    between two; None: nothing came again before the link was mended.
    """

    scheme: str
    kind: str
    link: str
    loss: float
    outage_ms: float | None


def outage_s(arrivals: Sequence[float], cut_s: float, until_s: float, spacing_s: float) -> float | None:
    """The longest pause of a stream that ends after a cut; times are seconds, sorted. None when the pause lasts until
    ``until_s``. Pauses that were over when the link was cut do not count.
    """
    first = max(bisect_left(arrivals, cut_s) - 1, 0)
    last = bisect_left(arrivals, until_s)
    seen = arrivals[first:last]
    if len(seen) < 2 or until_s - seen[-1] > max(10 * spacing_s, 0.1):
        return None
    return max(0.0, max(b - a for a, b in itertools.pairwise(seen)) - spacing_s)


def worst(cuts: Sequence[Cut]) -> float | None:
    """99th percentile of outages in milliseconds, the greatest of fewer than a hundred; None without cuts. A cut that
    was not survived is infinite."""
    values = sorted(math.inf if one.outage_ms is None else one.outage_ms for one in cuts)
    if not values:
        return None
    return values[-1] if len(values) < SAMPLES_FOR_P99 else values[math.ceil(0.99 * len(values)) - 1]


def median(cuts: Sequence[Cut]) -> float | None:
    """Median outage in milliseconds; None without cuts."""
    values = [math.inf if one.outage_ms is None else one.outage_ms for one in cuts]
    return statistics.median(values) if values else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _of(cuts: Sequence[Cut], scheme: str, kinds: Sequence[str], loss: float) -> list[Cut]:
    return [one for one in cuts if one.scheme == scheme and one.kind in kinds and one.loss == loss]


def _ratio(name: str, own: float | None, peer: float | None, goal: str) -> Figure:
    value = own / peer if own is not None and peer and math.isfinite(own) and math.isfinite(peer) else None
    return Figure(name, value, "ratio", goal, _finite(peer))


def evaluate(cuts: Sequence[Cut], broken_flows: int, flows: int, low_loss: float) -> Iterator[Figure]:
    """The figures of the experiment; ``low_loss``: the loss of the first part, per direction."""
    silent = _of(cuts, OVERLAY, SILENT, low_loss)
    ospf, bfd = _of(cuts, OSPF, SILENT, low_loss), _of(cuts, BFD, SILENT, low_loss)
    carrier = _of(cuts, OVERLAY, [CARRIER], low_loss)
    best_peer = _finite(min((one for one in (median(ospf), median(bfd)) if one is not None), default=None))
    yield Figure("outage_median_ms", _finite(median(silent)), "ms", f"<= {MEDIAN_GOAL_MS}", best_peer)
    yield Figure("outage_p99_ms", _finite(worst(silent)), "ms", f"<= {P99_GOAL_MS}", _finite(worst(bfd)))
    peers = [worst(_of(cuts, scheme, [CARRIER], low_loss)) for scheme in (OSPF, BFD)]
    peer = _finite(min((one for one in peers if one is not None), default=None))
    yield Figure("carrier_outage_p99_ms", _finite(worst(carrier)), "ms", f"<= {CARRIER_GOAL_MS}", peer)
    yield _ratio("ratio_to_ospf", median(silent), median(ospf), f"<= {1 / 3}")
    yield _ratio("ratio_to_bfd", median(silent), median(bfd), "<= 1")
    yield Figure("broken_flows", broken_flows, "flows", "<= 0")
    yield Figure("broken_flows_tried", flows, "flows")
    yield Figure("cuts", len(silent) + len(carrier), "cuts")
    for loss in sorted({one.loss for one in cuts if one.scheme == OVERLAY} - {low_loss}):
        lossy = _of(cuts, OVERLAY, SILENT, loss)
        yield Figure(
            "outage_p99_ms" + dimensions(loss=loss), _finite(worst(lossy)), "ms", f"<= {LOSSY_P99_GOAL_MS}", None
        )
        yield Figure("outage_median_ms" + dimensions(loss=loss), _finite(median(lossy)), "ms")
    for scheme in (OVERLAY, OSPF, BFD, OSPF_DEFAULT):
        for kind in (*SILENT, CARRIER):
            these = _of(cuts, scheme, [kind], low_loss)
            if these:
                name = "outage_median_ms" + dimensions(scheme=scheme, kind=kind)
                yield Figure(name, _finite(median(these)), "ms")
                yield Figure("outage_max_ms" + dimensions(scheme=scheme, kind=kind), _finite(worst(these)), "ms")
