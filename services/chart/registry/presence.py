"""Which sensor pods are there: what they report of themselves, judged by when it came. Pure.

A pod is gone when others report and it has not for a while. When none reports, it is the way here that is cut, not all
pods: then all stay.
"""

from __future__ import annotations

# Three reports of a pod (sensor_pod/streams.py).
SILENT_AFTER_US = 6_000_000


class Presence:
    """When each node's pod was heard last, on this process's clock that never steps back, microseconds."""

    def __init__(self, silent_after_us: int = SILENT_AFTER_US) -> None:
        self._silent_after_us = silent_after_us
        self._heard_us: dict[str, int] = {}
        self._newest_us = 0

    def stored(self, reports_us: dict[str, int], now_us: int) -> None:
        """Take over reports of a time before this process listened, by node and by their own clocks: the newest is as
        good as heard now, the others are older by as much as their reports."""
        newest_us = max(reports_us.values(), default=0)
        for node, reported_us in reports_us.items():
            self._note(node, now_us - (newest_us - reported_us))

    def heard(self, node: str, now_us: int) -> None:
        """A pod reports."""
        self._note(node, now_us)

    def gone(self, node: str) -> None:
        """A node's record was removed."""
        self._heard_us.pop(node, None)

    def reporting(self) -> frozenset[str]:
        """Nodes whose pods are there."""
        since_us = self._newest_us - self._silent_after_us
        return frozenset(node for node, at_us in self._heard_us.items() if at_us >= since_us)

    def _note(self, node: str, at_us: int) -> None:
        self._heard_us[node] = max(at_us, self._heard_us.get(node, at_us))
        self._newest_us = max(self._newest_us, at_us)
