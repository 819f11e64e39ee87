"""Counters that alerts watch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from prometheus_client import Counter


def from_zero(counter: Counter, *values: Iterable[str]) -> None:
    """Let the series of a counter be there from the start, for every combination of the values of its labels.

    Prometheus sees no increase of a series that begins with its first event, so an alert would miss that one.
    """
    for labels in itertools.product(*values):
        counter.labels(*labels)
