"""Minutes and hours of paths whose roll-up a measurement changes; noted in the transaction of the measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from chart.archiver.bulk import columns_of
from chart.archiver.times import moment
from chart.common.database import Connection

Resolution = Literal["minute", "hour"]
SECONDS: dict[Resolution, int] = {"minute": 60, "hour": 3600}
Path = tuple[str, str, str]


@dataclass(frozen=True)
class Window:
    """A minute or hour of a path's metric."""

    resolution: Resolution
    source: str
    destination: str
    metric: str
    at_us: int

    @property
    def path(self) -> Path:
        """Source, destination, metric."""
        return (self.source, self.destination, self.metric)


def windows_of(entries: Iterable[Mapping[str, Any]]) -> set[Window]:
    """The minutes and hours that rows of measurements belong to."""
    return {
        Window(
            resolution,
            entry["source"],
            entry["destination"],
            entry["metric"],
            entry["measured_at_us"] // (seconds * 1_000_000) * seconds * 1_000_000,
        )
        for entry in entries
        for resolution, seconds in SECONDS.items()
    }


async def mark(connection: Connection, entries: Iterable[Mapping[str, Any]]) -> None:
    """Note in the caller's transaction which roll-ups measurements change.

    A window that is noted already is locked by the update that does nothing, so that a roll-up leaves it until these
    measurements are there to be seen.
    """
    ordered = sorted(windows_of(entries), key=lambda window: (window.resolution, *window.path, window.at_us))
    await connection.execute(
        "INSERT INTO rollup_pending (resolution, source, destination, metric, at)"
        " SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[])"
        " ON CONFLICT (resolution, source, destination, metric, at) DO UPDATE SET at = excluded.at WHERE false",
        columns_of([(one.resolution, *one.path, moment(one.at_us)) for one in ordered]),
    )
