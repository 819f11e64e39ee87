"""What the scheduler decides and counts; plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from chart.common.probe_costs import TRAINS
from chart.sensor_pod.group import Run
from chart.sensor_pod.model import GroupKey

# Two of them on one link measure each other.
EXCLUSIVE_SENSORS = frozenset({*TRAINS, *(f"{name}-original" for name in TRAINS)})


@dataclass(frozen=True)
class Limits:
    """How much at a time."""

    runs: int = 256
    runs_of_sensor: int = 128
    runs_of_exclusive_sensor: int = 1
    exclusive_sensors: frozenset[str] = EXCLUSIVE_SENSORS
    remembered_costs: int = 20_000
    # A run that was spoilt is made again so often, after a pause that doubles from try to try.
    spoilt_runs: int = 3
    spoilt_pause_us: int = 2_000_000

    def runs_of(self, sensor: str) -> int:
        """Runs of one sensor at a time; the trains of an exclusive one leave from one process, one after the other."""
        return self.runs_of_exclusive_sensor if sensor in self.exclusive_sensors else self.runs_of_sensor


@dataclass(frozen=True)
class Declare:
    """Ask the sensor what a run costs; `Scheduler.declared` or `Scheduler.refused` must follow."""

    key: GroupKey


@dataclass(frozen=True)
class Skip:
    """A run that will not be made, and why; it answers the one-shots in ``tickets`` with a refusal."""

    key: GroupKey
    configuration_ids: tuple[str, ...]
    tickets: tuple[int, ...]
    # "budget", "limit", "exclusion", "preempted", "workers", "overrun", "late", "declaration", "spoilt"
    reason: str
    detail: str
    count: int


@dataclass(frozen=True)
class Preempt:
    """End this run now, a more important one waits for its place; `Scheduler.finished` must follow as ever."""

    run_id: int
    key: GroupKey
    detail: str


@dataclass(frozen=True)
class Expire:
    """A one-shot whose deadline is over."""

    ticket: int
    reason: str
    detail: str


@dataclass(frozen=True)
class Finished:
    """Whom a run answers."""

    tickets: tuple[int, ...]
    configuration_ids: tuple[str, ...]
    # It was ended for another: its result means nothing, and it runs again later.
    preempted: bool = False
    # It was spoilt and is made again: its result means nothing.
    again: Skip | None = None


Decision = Run | Declare | Skip | Preempt | Expire


@dataclass
class Statistics:
    """Counts since the start."""

    started: int = 0
    # Configurations and one-shots that a run served beyond the first.
    merged: int = 0
    answered_from_store: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    delayed: dict[str, int] = field(default_factory=dict)
