"""What is usual on a path and when its level changed, from the minutes' medians. Pure.

Change points by penalised least squares over segments of constant level (Killick, Fearnhead and Eckley, Optimal
Detection of Changepoints With a Linear Computational Cost, JASA 107, 2012), as the library ruptures finds them, on the
logarithms: a path of 2 ms and one of 200 ms change alike. Computed anew each time from stored minutes, so a restarted
archiver sees what it saw before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import ruptures
from numpy.typing import NDArray

# Shortest time at one level, in minutes with data.
LEAST_MINUTES = 5
# Fewer minutes than this have no baseline.
ENOUGH_MINUTES = 10
# A level that differs by less than this, relative, or by less than so many spreads, is no change.
LEAST_RELATIVE = 0.1
LEAST_SPREADS = 3.0
# Cost of a further segment, in variances of the noise times the logarithm of the length (as BIC, for two parameters).
PENALTY = 3.0
# Smallest value and spread that are told apart, as logarithms need some.
_FLOOR = 1e-6
_LEAST_LOG_SPREAD = 0.01
# Normal spread from a median absolute deviation.
_MAD = 1.4826

Path = tuple[str, str, str]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """Minutes of a path with data, oldest first."""

    path: Path
    unit: str
    at_us: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Baseline:
    """What is usual since the last change."""

    median: float
    spread: float
    minutes: int
    since_us: int


@dataclass(frozen=True)
class Change:
    """The level changed at the beginning of a minute; another place within the slack is the same change."""

    at_us: int
    before: float
    after: float
    slack_us: int

    @property
    def relative(self) -> float:
        """How much, of the level before."""
        return abs(self.after - self.before) / max(abs(self.before), _FLOOR)


@dataclass(frozen=True)
class Verdict:
    """Baseline of a path, and its last change if there was one."""

    path: Path
    unit: str
    baseline: Baseline
    change: Change | None


def judge(series: Series) -> Verdict | None:
    """Baseline and last change of a path; None with too few minutes."""
    values = np.array(series.values, dtype=np.float64)
    if len(values) < ENOUGH_MINUTES:
        return None
    # A ratio may be 0 and its small values mean little: levels below a thousandth are one level.
    floor = 1e-3 if series.unit == "ratio" else _FLOOR
    logs = np.log(np.maximum(np.abs(values), floor))
    start, change = 0, None
    bounds = [0, *_segments(logs)]
    for first, middle, last in zip(bounds, bounds[1:], bounds[2:], strict=False):
        if _differs(values, logs, (first, middle, last), series.unit):
            before, after = float(np.median(values[first:middle])), float(np.median(values[middle:last]))
            slack_us = LEAST_MINUTES * 60_000_000
            change, start = Change(series.at_us[middle], before, after, slack_us), middle
    usual = values[start:]
    median = float(np.median(usual))
    spread = _MAD * float(np.median(np.abs(usual - median)))
    return Verdict(series.path, series.unit, Baseline(median, spread, len(usual), series.at_us[start]), change)


def _segments(logs: Floats) -> list[int]:
    """Ends of the segments of constant level, the last one the length."""
    steps = np.diff(logs)
    # The noise from successive differences: a change of level is one of them only.
    noise = max(_MAD * float(np.median(np.abs(steps - np.median(steps)))) / np.sqrt(2), _LEAST_LOG_SPREAD)
    # An outlying minute must not make a segment of its own.
    middle = _smoothed(logs)
    penalty = PENALTY * 2 * noise**2 * np.log(len(logs))
    # The linear kernel is least squares; this search is the one that the library has in C.
    search = ruptures.KernelCPD(kernel="linear", min_size=LEAST_MINUTES)
    found = search.fit(middle.reshape(-1, 1)).predict(pen=penalty)
    return [int(end) for end in found]


def _smoothed(logs: Floats) -> Floats:
    """Running median of three."""
    padded = np.concatenate([logs[:1], logs, logs[-1:]])
    smoothed: Floats = np.median(np.stack([padded[:-2], padded[1:-1], padded[2:]]), axis=0)
    return smoothed


def _differs(values: Floats, logs: Floats, bounds: tuple[int, int, int], unit: str) -> bool:
    first, middle, last = bounds
    before, after = logs[first:middle], logs[middle:last]
    away = abs(float(np.median(after) - np.median(before)))
    spread = _MAD * max(float(np.median(np.abs(part - np.median(part)))) for part in (before, after))
    if unit == "ratio" and abs(float(np.median(values[middle:last]) - np.median(values[first:middle]))) < 0.01:
        return False
    return away > np.log1p(LEAST_RELATIVE) and away > LEAST_SPREADS * max(spread, _LEAST_LOG_SPREAD)
