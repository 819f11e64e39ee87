"""Groups of pairs that are looked at together: their series, history as files, and a subscription."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from chart_client import errors, sse
from chart_client.models import Event, Model
from chart_client.resource import Resource, path_of, time_of
from chart_client.transport import problem_of

# The gateway sends something at least every few seconds.
SILENCE_S = 60.0


class NodePair(Model):
    """A single pair."""

    source_node: str
    destination_node: str


class PairGroup(Model):
    """Every source with every destination, and single pairs."""

    id: str
    revision: int
    description: str
    source_nodes: list[str]
    destination_nodes: list[str]
    pairs: list[NodePair]
    owner: str


class PairSeries(Model):
    """Series of a pair, or of all pairs (no nodes); the lists have one value for each step that has results."""

    source_node: str | None = None
    destination_node: str | None = None
    unit: str
    at: list[datetime]
    mean: list[float]
    minimum: list[float]
    maximum: list[float]
    count: list[int]
    p50: list[float]
    p95: list[float]
    pairs: list[int]


class PairGroups(Resource):
    """Groups of pairs."""

    def list(self) -> Iterator[PairGroup]:
        """By id."""
        return self._all(PairGroup, path_of("pair-groups"))

    def get(self, group_id: str) -> PairGroup:
        """One group."""
        return self._one(PairGroup, "GET", path_of("pair-groups", group_id))

    def put(self, group_id: str, **fields: Any) -> PairGroup:
        """Set a group; fields: source_nodes, destination_nodes, pairs, description."""
        return self._one(PairGroup, "PUT", path_of("pair-groups", group_id), fields)

    def delete(self, group_id: str) -> None:
        """Remove a group; what was measured stays."""
        self._transport.request("DELETE", path_of("pair-groups", group_id))

    def series(
        self,
        group_id: str,
        metric: str,
        *,
        start: datetime | None = None,
        until: datetime | None = None,
        step_ms: int = 0,
        by_pair: bool = False,
    ) -> Sequence[PairSeries]:
        """One series of all pairs, or one of each; default: the last day."""
        query = {"metric": metric, "from": time_of(start), "until": time_of(until), "step_ms": step_ms}
        path = path_of("pair-groups", group_id, "series")
        answer = self._transport.request("GET", path, query={**query, "by_pair": str(by_pair).lower()}).json()
        return [PairSeries.model_validate(one) for one in answer["items"]]

    def download(
        self,
        target: Path,
        group_id: str,
        metric: str,
        *,
        start: datetime | None = None,
        until: datetime | None = None,
        resolution: Literal["measurement", "minute", "hour"] = "measurement",
    ) -> int:
        """Write history to a file as it comes, .csv or else Parquet; returns the bytes written."""
        query = {
            "metric": metric,
            "from": time_of(start),
            "until": time_of(until),
            "resolution": resolution,
            "format": "csv" if target.suffix == ".csv" else "parquet",
        }
        path = path_of("pair-groups", group_id, "history")
        size = 0
        with self._transport.stream(path, query=query, headers={}, read_timeout_s=SILENCE_S) as response:
            if not response.is_success:
                response.read()
                raise errors.of(problem_of(response))
            with target.open("wb") as file:
                for part in response.iter_bytes():
                    size += file.write(part)
        return size

    def minutes(self, group_id: str, metric: str) -> Iterator[PairSeries]:
        """Each whole minute of all pairs as it comes, until the stream ends: with its token or the group."""
        path = path_of("pair-groups", group_id, "events")
        headers = {"Accept": "text/event-stream"}
        with self._transport.stream(
            path, query={"metric": metric}, headers=headers, read_timeout_s=SILENCE_S
        ) as response:
            if not response.is_success:
                response.read()
                raise errors.of(problem_of(response))
            yield from _minutes(sse.parse(response.iter_lines()))


def _minutes(events: Iterator[Event]) -> Iterator[PairSeries]:
    for event in events:
        if event.name == "closed":
            return
        if event.name == "minute":
            yield PairSeries.model_validate(event.data)
