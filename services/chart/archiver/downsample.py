"""Link loads, which come every 100 ms, as one row per link and second. Pure.

A second is written when it is over, as a whole; the row with more samples replaces one with fewer. Until then nothing
of it is committed to the stream, so that an archiver that dies reads it again and no sample counts twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chart.v1 import link_load_pb2

SECOND_US = 1_000_000
# A second is over when its node was silent for so long; by our clock since the last report, because a stream that is
# read late carries old times.
GRACE_US = 3 * SECOND_US

Partition = int
Row = dict[str, Any]


@dataclass
class _Second:
    """One link's second."""

    first_offset: int
    touched_us: int = 0
    samples: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    dropped_packets: int = 0

    def add(self, load: link_load_pb2.LinkLoad, interval_us: int) -> None:
        self.samples += 1
        rate = 8e6 / interval_us
        values = {
            "sent_bps": load.sent_bytes * rate,
            "explicit_rate_bps": load.explicit_rate_bytes * rate,
            "legacy_bps": load.legacy_bytes * rate,
            "queue_bytes": float(load.queue_bytes),
            "active_flows": float(load.active_flows),
        }
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.peaks[name] = max(self.peaks.get(name, 0.0), value)
        self.dropped_packets += load.dropped_packets

    def row(self, link: str, at_us: int) -> Row:
        mean = {name: total / self.samples for name, total in self.sums.items()}
        return {
            "link_id": link,
            "at_us": at_us,
            "samples": self.samples,
            "sent_bps": mean["sent_bps"],
            "sent_max_bps": self.peaks["sent_bps"],
            "explicit_rate_bps": mean["explicit_rate_bps"],
            "explicit_rate_max_bps": self.peaks["explicit_rate_bps"],
            "legacy_bps": mean["legacy_bps"],
            "legacy_max_bps": self.peaks["legacy_bps"],
            "queue_bytes": mean["queue_bytes"],
            "queue_max_bytes": self.peaks["queue_bytes"],
            "dropped_packets": self.dropped_packets,
            "active_flows_max": int(self.peaks["active_flows"]),
        }


class Downsampler:
    """Collects reports; `take` gives the seconds that are over."""

    def __init__(self) -> None:
        self._open: dict[Partition, dict[tuple[str, int], _Second]] = {}
        self._next_offset: dict[Partition, int] = {}
        # Newest moment reported by each node of a partition: its clock, not ours, says which seconds are over.
        self._newest_us: dict[Partition, dict[str, int]] = {}
        self._node_of: dict[tuple[Partition, str], str] = {}

    def add(self, partition: Partition, offset: int, report: link_load_pb2.LinkLoadReport, now_us: int) -> None:
        """Take in a report; the moment that counts is the end of its interval."""
        if offset < self._next_offset.get(partition, 0):
            return  # read again after the members of the group changed; it is counted already
        self._next_offset[partition] = offset + 1
        seconds = self._open.setdefault(partition, {})
        newest = self._newest_us.setdefault(partition, {})
        newest[report.node] = max(newest.get(report.node, 0), report.interval_end_us)
        # An interval that ends on the second belongs to the one before.
        at_us = (report.interval_end_us - 1) // SECOND_US * SECOND_US
        for load in report.links:
            second = seconds.get((load.link_id, at_us))
            if second is None:
                second = seconds[load.link_id, at_us] = _Second(offset)
                self._node_of[partition, load.link_id] = report.node
            second.touched_us = now_us
            second.add(load, max(1, report.interval_us))

    def take(self, now_us: int) -> list[Row]:
        """Rows of the seconds that are over: the node has reported later ones, or the grace has run out."""
        rows = []
        for partition, seconds in self._open.items():
            newest = self._newest_us[partition]
            for link, at_us in list(seconds):
                node = self._node_of[partition, link]
                over = newest.get(node, 0) > at_us + SECOND_US + SECOND_US // 2
                if over or now_us > seconds[link, at_us].touched_us + GRACE_US:
                    rows.append(seconds.pop((link, at_us)).row(link, at_us))
        return rows

    def done_offsets(self) -> dict[Partition, int]:
        """For each partition the offset up to which (exclusive) every report stands in rows that were taken."""
        return {
            partition: min(
                (second.first_offset for second in self._open.get(partition, {}).values()), default=following
            )
            for partition, following in self._next_offset.items()
        }

    def keep_only(self, partitions: frozenset[Partition]) -> None:
        """Partitions that went to another member are forgotten; it reads their open seconds again."""
        for partition in list(self._next_offset):
            if partition not in partitions:
                del self._next_offset[partition]
                self._open.pop(partition, None)
                self._newest_us.pop(partition, None)
                for key in [key for key in self._node_of if key[0] == partition]:
                    del self._node_of[key]
