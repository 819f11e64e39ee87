"""What a question about many pairs means: which pairs, from which roll-ups, in which steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chart.archiver.service import QuestionError
from chart.archiver.windows import SECONDS, Resolution
from chart.v1 import archive_pb2

MAX_PAIRS = 10_000
MAX_STEPS = 10_000
DEFAULT_STEPS = 1000
# Points of an answer: series of pairs are for people and programs that plot them; more is a download.
MAX_POINTS = 1_000_000
_DAY_US = 86_400_000_000
_MINUTE_US, _HOUR_US = 60_000_000, 3_600_000_000
_STEPS_US = [minutes * _MINUTE_US for minutes in (1, 2, 5, 10, 30, 60, 120, 360, 720, 1440)]


@dataclass(frozen=True)
class Selection:
    """Pairs: every source with every destination (empty: any), unless ``crossed`` is false, and single ones."""

    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    single: tuple[tuple[str, str], ...]

    @property
    def crossed(self) -> bool:
        """Whether sources and destinations say anything."""
        return bool(self.sources or self.destinations or not self.single)


@dataclass(frozen=True)
class Steps:
    """[from, until) in steps of a resolution's roll-ups."""

    resolution: Resolution
    from_us: int
    until_us: int
    step_us: int


def check(group: archive_pb2.PairGroup) -> archive_pb2.PairGroup:
    """A group that can be stored: names once, in order.

    Raises:
        QuestionError: too many pairs, or a pair without a node.
    """
    selection = selection_of(group)
    if len(selection.single) > MAX_PAIRS or len(selection.sources) * len(selection.destinations) > MAX_PAIRS:
        raise QuestionError("pairs", f"a group has at most {MAX_PAIRS} pairs")
    return archive_pb2.PairGroup(
        id=group.id,
        description=group.description,
        source_nodes=selection.sources,
        destination_nodes=selection.destinations,
        pairs=[archive_pb2.NodePair(source_node=one, destination_node=other) for one, other in selection.single],
        owner=group.owner,
    )


def selection_of(group: archive_pb2.PairGroup) -> Selection:
    """The pairs of a group.

    Raises:
        QuestionError: a pair without a node.
    """
    return Selection(
        tuple(sorted(set(group.source_nodes))), tuple(sorted(set(group.destination_nodes))), single(group.pairs)
    )


def single(pairs: Sequence[archive_pb2.NodePair]) -> tuple[tuple[str, str], ...]:
    """Single pairs, each once.

    Raises:
        QuestionError: one of them has no source or no destination, or there are too many.
    """
    if len(pairs) > MAX_PAIRS:
        raise QuestionError("pairs", f"there are {len(pairs)}: at most {MAX_PAIRS} can be asked for")
    if any(not (pair.source_node and pair.destination_node) for pair in pairs):
        raise QuestionError("pairs", "a pair needs a source node and a destination node")
    return tuple(sorted({(pair.source_node, pair.destination_node) for pair in pairs}))


def span_of(from_us: int, until_us: int, now_us: int) -> tuple[int, int]:
    """The range of a question; without one the last day.

    Raises:
        QuestionError: the range is empty or no time.
    """
    until_us = until_us or now_us
    from_us = from_us or until_us - _DAY_US
    if from_us <= 0 or until_us > 4_102_444_800_000_000:
        raise QuestionError("from_us", "the range must lie between 1970 and 2100")
    if until_us <= from_us:
        raise QuestionError("until_us", "is not after from_us")
    return from_us, until_us


def steps_of(from_us: int, until_us: int, step_ms: int) -> Steps:
    """In which steps a range is answered, and from which roll-ups.

    Raises:
        QuestionError: the step is no whole minute, or there would be too many steps.
    """
    length_us = until_us - from_us
    step_us = step_ms * 1000
    if not step_us:
        step_us = next((one for one in _STEPS_US if length_us <= one * DEFAULT_STEPS), _STEPS_US[-1])
    if step_us % _MINUTE_US:
        raise QuestionError("step_ms", "must be whole minutes: 60000, 300000, 3600000 and so on")
    if length_us > step_us * MAX_STEPS:
        raise QuestionError("step_ms", f"would give more than {MAX_STEPS} steps: use a longer one")
    resolution: Resolution = "minute" if step_us % _HOUR_US else "hour"
    unit_us = SECONDS[resolution] * 1_000_000
    return Steps(resolution, from_us // unit_us * unit_us, until_us, step_us)


def check_points(pairs: int, steps: Steps) -> None:
    """Refuse an answer that nobody could look at.

    Raises:
        QuestionError: pairs times steps are too many.
    """
    points = pairs * -(-(steps.until_us - steps.from_us) // steps.step_us)
    if points > MAX_POINTS:
        raise QuestionError(
            "step_ms", f"{points} points are too many for one answer ({MAX_POINTS}): use a longer step or a download"
        )
