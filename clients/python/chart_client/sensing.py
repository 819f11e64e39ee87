"""Sensing through the gateway: single runs, reports of sensor pods, estimates, roll-ups, snapshots, alerts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from chart_client.models import Model
from chart_client.sensing_models import (
    Alert,
    AlertRule,
    Baseline,
    Estimate,
    NextPair,
    PathChange,
    RankedNodes,
    RankedRelays,
    RollUp,
    RunResult,
    SensingReport,
    Snapshot,
    SnapshotRow,
)
from chart_client.transport import Transport

M = TypeVar("M", bound=Model)
AlertKind = Literal["above", "below", "no_data", "change"]


def _time(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


class _Group:
    """Base of the groups of calls."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _items(self, model: type[M], path: str, **query: Any) -> list[M]:
        answer = self._transport.request("GET", path, query=query).json()
        return [model.model_validate(item) for item in answer["items"]]

    def _pages(self, model: type[M], path: str, **query: Any) -> Iterator[M]:
        cursor = None
        while True:
            page = self._transport.request("GET", path, query={**query, "cursor": cursor}).json()
            for item in page["items"]:
                yield model.model_validate(item)
            cursor = page.get("next_cursor")
            if cursor is None:
                return


class Sensing(_Group):
    """Sensor pods, single runs, estimates, roll-ups, baselines and changes."""

    def run(
        self,
        source: str,
        destination: str,
        address: str,
        sensor: str = "ping",
        *,
        parameters: Mapping[str, str] | None = None,
        tolerance_ms: int = 0,
        priority: int = 0,
    ) -> list[RunResult]:
        """Run a sensor once; a stored result younger than the tolerance answers at once.

        Raises:
            RefusedError: for instance because the link's probing budget has no room.
        """
        body = {
            "source_node": source,
            "destination_node": destination,
            "destination_address": address,
            "sensor": sensor,
            "parameters": dict(parameters or {}),
            "tolerance_ms": tolerance_ms,
            "priority": priority,
        }
        answer = self._transport.request("POST", "/v1/sensing-runs", body=body).json()
        return [RunResult.model_validate(item) for item in answer["items"]]

    def report(self, node: str, *, skips: int = 100) -> SensingReport:
        """What a node's sensor pod measures, merges and skips, and why."""
        path = f"/v1/nodes/{quote(node)}/sensing-report"
        return SensingReport.model_validate(self._transport.request("GET", path, query={"skips": skips}).json())

    def estimates(
        self, *, source: str | None = None, destination: str | None = None, metric: str | None = None
    ) -> Iterator[Estimate]:
        """All pairs, measured or inferred, each with a 90 % prediction interval."""
        return self._pages(Estimate, "/v1/estimates", source=source, destination=destination, metric=metric)

    def next_pairs(self, metric: str, count: int = 10) -> list[NextPair]:
        """Pairs to measure next, most useful first."""
        return self._items(NextPair, "/v1/next-pairs", metric=metric, count=count)

    def closest(self, node: str, count: int = 1, *, candidates: Sequence[str] = ()) -> RankedNodes:
        """The nodes with the least round-trip time from a node; of the candidates, where stated."""
        return self.rank(node, "rtt_us", candidates=candidates, count=count)

    def rank(
        self,
        node: str,
        metric: str,
        *,
        candidates: Sequence[str] = (),
        direction: Literal["from", "to"] = "from",
        count: int = 10,
    ) -> RankedNodes:
        """Nodes by a metric, the best first, with 90 % intervals; direction "to": from the candidates to the node."""
        query = {"node": node, "metric": metric, "candidate": candidates or None, "direction": direction}
        answer = self._transport.request("GET", "/v1/ranked-nodes", query={**query, "count": count})
        return RankedNodes.model_validate(answer.json())

    def relays(
        self, source: str, destination: str, count: int = 3, *, metric: str = "rtt_us", candidates: Sequence[str] = ()
    ) -> RankedRelays:
        """The best relays between two nodes by the metric of the path over each, and the path without one."""
        query = {"source": source, "destination": destination, "metric": metric, "candidate": candidates or None}
        answer = self._transport.request("GET", "/v1/ranked-relays", query={**query, "count": count})
        return RankedRelays.model_validate(answer.json())

    def roll_ups(
        self,
        source: str,
        destination: str,
        metric: str,
        *,
        resolution: Literal["minute", "hour"] = "minute",
        start: datetime | None = None,
        until: datetime | None = None,
    ) -> list[RollUp]:
        """Minutes or hours of a path, oldest first."""
        query = {"source": source, "destination": destination, "metric": metric, "resolution": resolution}
        return self._items(RollUp, "/v1/roll-ups", **query, **{"from": _time(start), "until": _time(until)})

    def baselines(
        self, *, source: str | None = None, destination: str | None = None, metric: str | None = None
    ) -> list[Baseline]:
        """Baseline of each path."""
        return self._items(Baseline, "/v1/baselines", source=source, destination=destination, metric=metric)

    def path_changes(
        self, *, source: str | None = None, destination: str | None = None, metric: str | None = None
    ) -> list[PathChange]:
        """Lasting changes of paths, the newest first."""
        return self._items(PathChange, "/v1/path-changes", source=source, destination=destination, metric=metric)


class Snapshots(_Group):
    """All pairs at one time."""

    def list(self) -> Sequence[Snapshot]:
        """The newest first."""
        return self._items(Snapshot, "/v1/snapshots")

    def take(self) -> Snapshot:
        """Take a snapshot now."""
        return Snapshot.model_validate(self._transport.request("POST", "/v1/snapshots", body={}).json())

    def rows(self, snapshot_id: str = "latest", *, metric: str | None = None) -> Iterator[SnapshotRow]:
        """The rows of a snapshot."""
        path = f"/v1/snapshots/{quote(snapshot_id)}"
        first = self._transport.request("GET", path, query={"metric": metric, "limit": 1}).json()
        # By its own id, so that one taken meanwhile does not mix in.
        yield from self._pages(SnapshotRow, f"/v1/snapshots/{first['snapshot']['id']}", metric=metric)

    def download(
        self,
        target: Path,
        snapshot_id: str = "latest",
        *,
        file_format: Literal["csv", "parquet"] | None = None,
        metric: str | None = None,
    ) -> int:
        """Write a snapshot to a file; the format follows from its name unless stated. Returns the bytes written."""
        chosen = file_format or ("parquet" if target.suffix == ".parquet" else "csv")
        path = f"/v1/snapshots/{quote(snapshot_id)}/file"
        answer = self._transport.request("GET", path, query={"format": chosen, "metric": metric})
        target.write_bytes(answer.content)
        return len(answer.content)


class Alerts(_Group):
    """Alert rules and alerts."""

    def list(self, *, firing: bool = False) -> Sequence[Alert]:
        """Newest first; resolved alerts are included unless only firing ones are wanted."""
        return self._items(Alert, "/v1/alerts", firing=str(firing).lower())

    def rules(self) -> Sequence[AlertRule]:
        """By id."""
        return self._items(AlertRule, "/v1/alert-rules")

    def rule(self, rule_id: str) -> AlertRule:
        """One rule."""
        return AlertRule.model_validate(self._transport.request("GET", f"/v1/alert-rules/{quote(rule_id)}").json())

    def put_rule(self, rule_id: str, *, kind: AlertKind, metric: str, **fields: Any) -> AlertRule:
        """Set an alert rule; more fields: source_node, destination_node, statistic, threshold, for_s, description."""
        body = {"kind": kind, "metric": metric, **{name: value for name, value in fields.items() if value is not None}}
        answer = self._transport.request("PUT", f"/v1/alert-rules/{quote(rule_id)}", body=body)
        return AlertRule.model_validate(answer.json())

    def delete_rule(self, rule_id: str) -> None:
        """Remove an alert rule; its alerts are resolved."""
        self._transport.request("DELETE", f"/v1/alert-rules/{quote(rule_id)}")
