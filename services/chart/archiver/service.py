"""What a question about history means: steps, gaps, and series that hold their last value. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chart.archiver.repository import Sample
from chart.archiver.windows import Resolution

MAX_POINTS = 1000
MAX_POINTS_CEILING = 10_000
# Steps to which an answer that would have too many points is coarsened.
_STEPS_US = [
    seconds * 1_000_000 for seconds in (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400)
]

LINK_METRICS = ("sent_bps", "explicit_rate_bps", "legacy_bps", "queue_bytes", "dropped_packets", "available_bps")
GRANT_METRICS = ("kernel_rate_bps", "sent_bps")
_MINUTE_US, _HOUR_US = 60_000_000, 3_600_000_000
_SETTLED_US = 2 * _HOUR_US
# Loads are stored by second; a finer step would be all gaps.
LINK_STEP_US = 1_000_000


class QuestionError(ValueError):
    """A question that has no answer; ``field`` is at fault."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(detail)
        self.field = field
        self.detail = detail


@dataclass(frozen=True)
class Window:
    """[from, until) in steps; ``step_us`` 0 is raw."""

    from_us: int
    until_us: int
    step_us: int
    max_points: int


@dataclass(frozen=True)
class Point:
    """One point of an answer; no value where there is no data."""

    at_us: int
    value: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    count: int = 0


def unit_of(metric: str) -> str:
    """Unit by the name's ending; empty when it says nothing."""
    for ending, unit in (
        ("_bps", "bps"),
        ("_us", "us"),
        ("_ratio", "ratio"),
        ("_bytes", "bytes"),
        ("_packets", "packets"),
    ):
        if metric.endswith(ending):
            return unit
    return ""


def window_of(from_us: int, until_us: int, step_ms: int, max_points: int, *, raw_count: int = 0) -> Window:
    """Bound a question: a step that would give more than ``max_points`` is widened, and so is a raw series.

    Raises:
        QuestionError: the range is empty or no time.
    """
    if from_us <= 0 or until_us > 4_102_444_800_000_000:
        raise QuestionError("from_us", "the range must lie between 1970 and 2100")
    if until_us <= from_us:
        raise QuestionError("until_us", "is not after from_us")
    points = min(max_points or MAX_POINTS, MAX_POINTS_CEILING)
    step_us = step_ms * 1000
    length_us = until_us - from_us
    if (step_us == 0 and raw_count > points) or (step_us and -(-length_us // step_us) > points):
        least_us = -(-length_us // points)
        step_us = next((step for step in _STEPS_US if step >= least_us), least_us)
    return Window(from_us, until_us, step_us, points)


def rolled_from(window: Window, now_us: int, minute_days: int) -> tuple[Resolution, int] | None:
    """Roll-ups that a series of measurements is read from, and until when; None: from the measurements.

    Steps of whole hours come from hours; steps of whole minutes come from minutes, as long as these are kept, when they
    cover more than an hour. The last two hours always come from measurements: their roll-ups may still change.
    """
    until_us = (now_us - _SETTLED_US) // _HOUR_US * _HOUR_US
    if until_us <= window.from_us or not window.step_us:
        return None
    if window.step_us % _HOUR_US == 0:
        return "hour", until_us
    kept_us = now_us - (minute_days - 1) * 24 * _HOUR_US
    if window.step_us % _MINUTE_US == 0 and window.from_us > kept_us:
        return "minute", until_us
    return None


def with_gaps(samples: Sequence[Sample], window: Window) -> list[Point]:
    """One point for every step, without a value where there is none; raw samples as they are."""
    if not window.step_us:
        return [_point(sample) for sample in samples[: window.max_points]]
    by_step = {sample.at_us: _point(sample) for sample in samples}
    steps = range(window.from_us, window.until_us, window.step_us)
    return [by_step.get(at_us) or Point(at_us) for at_us in steps]


def _point(sample: Sample) -> Point:
    return Point(sample.at_us, sample.value, sample.minimum, sample.maximum, sample.weight)


def averaged(samples: Iterable[Sample], window: Window) -> list[Sample]:
    """Samples in the steps of a window; unchanged for a raw one."""
    inside = [sample for sample in samples if window.from_us <= sample.at_us < window.until_us]
    if not window.step_us:
        return inside
    steps: dict[int, list[Sample]] = {}
    for sample in inside:
        at_us = window.from_us + (sample.at_us - window.from_us) // window.step_us * window.step_us
        steps.setdefault(at_us, []).append(sample)
    return [
        Sample(
            at_us,
            sum(entry.value * entry.weight for entry in entries) / sum(entry.weight for entry in entries),
            min(entry.minimum for entry in entries),
            max(entry.maximum for entry in entries),
            sum(entry.weight for entry in entries),
        )
        for at_us, entries in sorted(steps.items())
    ]


def held(changes: Sequence[tuple[int, int, float]], window: Window) -> list[Sample]:
    """Time-weighted averages of a value that holds from each change until the next or until its lease ends.

    ``changes`` are (from, lease end, value) in order of time. A step in which no value holds has no sample.
    """
    spans = []
    for index, (start_us, end_us, value) in enumerate(changes):
        following_us = changes[index + 1][0] if index + 1 < len(changes) else end_us
        start_us, end_us = max(start_us, window.from_us), min(end_us, following_us, window.until_us)
        if start_us < end_us:
            spans.append((start_us, end_us, value))
    if not window.step_us:
        return [Sample(start_us, value, value, value) for start_us, _, value in spans]
    totals: dict[int, list[tuple[int, float]]] = {}
    for start_us, end_us, value in spans:
        step_us = window.from_us + (start_us - window.from_us) // window.step_us * window.step_us
        while step_us < end_us:
            overlap_us = min(end_us, step_us + window.step_us) - max(start_us, step_us)
            totals.setdefault(step_us, []).append((overlap_us, value))
            step_us += window.step_us
    return [
        Sample(
            step_us,
            sum(length * value for length, value in parts) / sum(length for length, _ in parts),
            min(value for _, value in parts),
            max(value for _, value in parts),
            len(parts),
        )
        for step_us, parts in sorted(totals.items())
    ]


def grant_kernel_rate(statuses: Sequence[tuple[int, str, float, int]], hold_us: int) -> list[tuple[int, int, float]]:
    """What the kernel of the sending node had for a grant: that node reports a rate, the others report none."""
    senders = {node for _, node, rate_bps, _ in statuses if rate_bps > 0}
    return [(at_us, at_us + hold_us, rate_bps) for at_us, node, rate_bps, _ in statuses if node in senders]


def grant_sent_rate(statuses: Sequence[tuple[int, str, float, int]]) -> list[Sample]:
    """Rates between successive reports of the bytes sent; a counter that went back began anew and gives no rate."""
    before: dict[str, tuple[int, int]] = {}
    senders = {node for _, node, _, sent_bytes in statuses if sent_bytes > 0}
    samples = []
    for at_us, node, _, sent_bytes in statuses:
        if node not in senders:
            continue
        earlier = before.get(node)
        if earlier is not None and at_us > earlier[0] and sent_bytes >= earlier[1]:
            rate_bps = (sent_bytes - earlier[1]) * 8e6 / (at_us - earlier[0])
            samples.append(Sample(at_us, rate_bps, rate_bps, rate_bps))
        before[node] = (at_us, sent_bytes)
    return samples
