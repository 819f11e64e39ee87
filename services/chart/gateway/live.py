"""What the gateway knows of the network right now, built from the streams. Pure: records in, answers and events out.

Nothing here is durable; a restarted gateway reads the compacted streams again and has the same view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.protobuf.message import Message

from chart.gateway import mapping, reservation_mapping
from chart.gateway import overlay as overlay_view
from chart.gateway.schemas import network
from chart.gateway.schemas.common import timestamp
from chart.v1 import (
    archive_pb2,
    grant_status_pb2,
    link_load_pb2,
    link_rate_pb2,
    measurement_pb2,
    node_state_pb2,
    path_table_pb2,
    policy_pb2,
    rate_request_pb2,
    topology_pb2,
)

TOPOLOGY = "chart.topology.v1"
NODE_STATE = "chart.node-state.v1"
POLICY = "chart.policy.v1"
LINK_RATE = "chart.link-rate.v1"
RATE_REQUEST = "chart.rate-request.v1"
PATH_TABLE = "chart.path-table.v1"
LINK_LOAD = "chart.link-load.v1"
MEASUREMENT = "chart.measurement.v1"
GRANT_STATUS = "chart.grant-status.v1"

COMPACTED = (TOPOLOGY, NODE_STATE, POLICY, LINK_RATE, RATE_REQUEST, PATH_TABLE)
PASSING = (LINK_LOAD, MEASUREMENT, GRANT_STATUS)

LINK_METRICS = ("rtt_us", "loss_ratio", "available_bandwidth_bps")
AnyMeasurement = measurement_pb2.Measurement | archive_pb2.LatestMeasurement


class Change(NamedTuple):
    """Something that clients of the event stream are told; made twenty thousand times a second in a large network.

    ``owner`` is the application that alone (beside people) may see it; ``coalesce_key`` marks what comes so often that
    only the newest of an interval is sent.
    """

    name: str
    data: Mapping[str, Any]
    owner: str | None = None
    coalesce_key: str | None = None


class Late(Mapping[str, Any]):
    """Data that is put into words when somebody reads it: most of what links say is replaced before it is sent."""

    __slots__ = ("_made", "_make", "_values")

    def __init__(self, make: Callable[..., Mapping[str, Any]], *values: object) -> None:
        self._make = make
        self._values = values
        self._made: Mapping[str, Any] | None = None

    def made(self) -> Mapping[str, Any]:
        """The words themselves."""
        if self._made is None:
            self._made = self._make(*self._values)
        return self._made

    def __getitem__(self, key: str) -> Any:
        return self.made()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.made())

    def __len__(self) -> int:
        return len(self.made())


@dataclass(frozen=True)
class Staleness:
    """Ages after which a fact is not current any more, microseconds."""

    node_us: int
    load_us: int
    measurement_us: int


@dataclass
class LiveState:
    """The newest of everything."""

    staleness: Staleness
    nodes: dict[str, topology_pb2.TopologyEntity] = field(default_factory=dict)
    links: dict[str, topology_pb2.TopologyEntity] = field(default_factory=dict)
    node_states: dict[str, node_state_pb2.NodeState] = field(default_factory=dict)
    path_tables: dict[str, path_table_pb2.PathTable] = field(default_factory=dict)
    policies: dict[str, policy_pb2.Policy] = field(default_factory=dict)
    link_rates: dict[str, link_rate_pb2.LinkRates] = field(default_factory=dict)
    rate_of_link: dict[str, tuple[link_rate_pb2.LinkRate, int]] = field(default_factory=dict)
    requests: dict[str, rate_request_pb2.RateRequest] = field(default_factory=dict)
    load_of_link: dict[str, tuple[link_load_pb2.LinkLoad, int, int]] = field(default_factory=dict)
    measurements: dict[tuple[str, str, str], AnyMeasurement] = field(default_factory=dict)

    # ------------------------------------------------------------ records in

    def apply(self, topic: str, key: str, value: Message | None, now_us: int) -> list[Change]:
        """Take in one record; returns what changed. A record of an unknown stream is a mistake of the caller."""
        handlers: dict[str, Callable[[str, Any, int], list[Change]]] = {
            TOPOLOGY: self._topology,
            NODE_STATE: self._node_state,
            PATH_TABLE: self._path_table,
            POLICY: self._policy,
            LINK_RATE: self._link_rates,
            RATE_REQUEST: self._rate_request,
            LINK_LOAD: self._link_load,
            MEASUREMENT: self._measurement,
            GRANT_STATUS: self._grant_status,
        }
        return handlers[topic](key, value, now_us)

    def _topology(self, key: str, value: topology_pb2.TopologyEntity | None, now_us: int) -> list[Change]:
        if value is None:
            kind = "node" if self.nodes.pop(key, None) else "link"
            self.links.pop(key, None)
            return [Change("topology", {"kind": kind, "id": key, "removed": True, kind: None})]
        kind = value.WhichOneof("entity") or "node"
        (self.nodes if kind == "node" else self.links)[key] = value
        shown: network.Node | network.Link
        if kind == "node":
            shown = self.node(value.node, value.revision, now_us)
        else:
            shown = self.link(value.link, value.revision, now_us)
        data = {"kind": kind, "id": key, "removed": False, kind: shown.model_dump(mode="json")}
        return [Change("topology", data)]

    def _node_state(self, key: str, value: node_state_pb2.NodeState | None, now_us: int) -> list[Change]:
        if value is None:
            self.node_states.pop(key, None)
            return [Change("node-state", {"node": key, "state": None})]
        self.node_states[key] = value
        state = self.state_of(key, now_us)
        assert state is not None
        return [Change("node-state", {"node": key, "state": state.model_dump(mode="json")})]

    def _path_table(self, key: str, value: path_table_pb2.PathTable | None, _now_us: int) -> list[Change]:
        """Nobody is told: who looks at routes asks for them."""
        if value is None or not value.links:
            self.path_tables.pop(key, None)
        else:
            self.path_tables[key] = value
        return []

    def _policy(self, key: str, value: policy_pb2.Policy | None, _now_us: int) -> list[Change]:
        if value is None:
            self.policies.pop(key, None)
            return [Change("policy", {"id": key, "removed": True})]
        self.policies[key] = value
        default = self.policies.get("default")
        # What the others leave out follows the default: what holds for their nodes changes with it.
        changed = list(self.policies.values()) if key == "default" else [value]
        return [Change("policy", mapping.policy(one, default).model_dump(mode="json")) for one in changed]

    def _link_rates(self, key: str, value: link_rate_pb2.LinkRates | None, _now_us: int) -> list[Change]:
        before = self.link_rates.pop(key, None)
        for rate in before.links if before else ():
            self.rate_of_link.pop(rate.link_id, None)
        if value is None:
            return []
        timestamp(value.valid_until_us)  # raises here what nobody could read later
        self.link_rates[key] = value
        changes = []
        for rate in value.links:
            self.rate_of_link[rate.link_id] = (rate, value.valid_until_us)
            words = Late(self._rate_data, rate, value.valid_until_us)
            changes.append(Change("link-rate", words, coalesce_key=rate.link_id))
        return changes

    def _rate_request(self, key: str, value: rate_request_pb2.RateRequest | None, _now_us: int) -> list[Change]:
        if value is None:
            self.requests.pop(key, None)
            return []
        self.requests[key] = value
        return [
            Change("rate-request", reservation_mapping.rate_request(value).model_dump(mode="json"), owner=value.owner)
        ]

    def _link_load(self, _key: str, value: link_load_pb2.LinkLoadReport | None, _now_us: int) -> list[Change]:
        if value is None or value.interval_us == 0:
            return []
        timestamp(value.interval_end_us)  # as above
        interval_us, end_us = value.interval_us, value.interval_end_us
        changes = []
        for load in value.links:
            link = load.link_id
            self.load_of_link[link] = (load, interval_us, end_us)
            changes.append(Change("link-load", Late(self._load_data, load, interval_us, end_us), None, link))
        return changes

    def _rate_data(self, rate: link_rate_pb2.LinkRate, valid_until_us: int) -> Mapping[str, Any]:
        return {"link_id": rate.link_id, **mapping.link_rate(rate, valid_until_us).model_dump(mode="json")}

    def _load_data(self, load: link_load_pb2.LinkLoad, interval_us: int, end_us: int) -> Mapping[str, Any]:
        return {"link_id": load.link_id, **self._load_values(load, interval_us, end_us)}

    def _measurement(self, _key: str, value: measurement_pb2.Measurement | None, now_us: int) -> list[Change]:
        if value is None or not self.note_measurement(value):
            return []
        shown = self.measurement(value, now_us).model_dump(mode="json")
        key = f"{value.source_node},{value.destination_node},{value.metric}"
        return [Change("measurement", shown, coalesce_key=key)]

    def note_measurement(self, value: AnyMeasurement) -> bool:
        """Keep a measurement unless a newer one of its kind is there; whether it was kept."""
        identity = (value.source_node, value.destination_node, value.metric)
        known = self.measurements.get(identity)
        if known is not None and known.measured_at_us > value.measured_at_us:
            return False
        self.measurements[identity] = value
        return True

    def _grant_status(self, _key: str, value: grant_status_pb2.GrantStatus | None, _now_us: int) -> list[Change]:
        if value is None:
            return []
        request = self.requests.get(value.request_id)
        data = {
            "request_id": value.request_id,
            "generation": value.generation,
            **reservation_mapping.confirmation(value).model_dump(mode="json"),
        }
        # Of a request that is not known yet nobody but people may hear: "" is no application's name.
        return [Change("grant-status", data, owner=request.owner if request else "")]

    # ------------------------------------------------------------ answers out

    def state_of(self, node: str, now_us: int) -> network.NodeState | None:
        """State that a node's agent reported."""
        message = self.node_states.get(node)
        if message is None:
            return None
        return mapping.node_state(message, stale=now_us - message.reported_at_us > self.staleness.node_us)

    def current_states(self, now_us: int) -> list[node_state_pb2.NodeState]:
        """States of the nodes whose agents reported lately."""
        return [one for one in self.node_states.values() if now_us - one.reported_at_us <= self.staleness.node_us]

    def overlay(self, now_us: int) -> overlay_view.View:
        """The overlay now."""
        oldest_us = now_us - self.staleness.node_us
        current = [node for node, state in self.node_states.items() if state.reported_at_us >= oldest_us]
        return overlay_view.live_view(self.path_tables, self.node_states, current, now_us)

    def node(self, message: topology_pb2.Node, revision: int, now_us: int) -> network.Node:
        """A node as REST shows it."""
        return mapping.node(message, revision, self.state_of(message.id, now_us))

    def link(self, message: topology_pb2.Link, revision: int, now_us: int) -> network.Link:
        """A link as REST shows it; loads and rates that have run out are not shown."""
        load = None
        if (known := self.load_of_link.get(message.id)) and now_us - known[2] <= self.staleness.load_us:
            load = self._load(*known)
        rate = None
        if (leased := self.rate_of_link.get(message.id)) and leased[1] >= now_us:
            rate = mapping.link_rate(*leased)
        return mapping.link(message, revision, load=load, rate=rate, measured=self._measured(message, now_us))

    def _load(self, load: link_load_pb2.LinkLoad, interval_us: int, end_us: int) -> network.LinkLoad:
        return network.LinkLoad(**self._load_values(load, interval_us, end_us))

    def _load_values(self, load: link_load_pb2.LinkLoad, interval_us: int, end_us: int) -> dict[str, Any]:
        """A `network.LinkLoad` as it is sent; made without one, since thousands go out in a second."""
        entity = self.links.get(load.link_id)
        capacity_bps = entity.link.capacity_bps if entity else 0
        sent_bps = load.sent_bytes * 8_000_000 // interval_us
        return {
            "sent_bps": sent_bps,
            "explicit_rate_bps": load.explicit_rate_bytes * 8_000_000 // interval_us,
            "legacy_bps": load.legacy_bytes * 8_000_000 // interval_us,
            "utilisation": round(sent_bps / capacity_bps, 6) if capacity_bps else 0.0,
            "queue_bytes": load.queue_bytes,
            "dropped_packets": load.dropped_packets,
            "at": timestamp(end_us),
        }

    def _measured(self, link: topology_pb2.Link, now_us: int) -> network.LinkMeasured | None:
        found: dict[str, network.MeasuredValue | None] = {}
        for metric in LINK_METRICS:
            known = self.measurements.get((link.from_node, link.to_node, metric))
            good = known is not None and not known.error
            found[metric] = self._measured_value(known, now_us) if known is not None and good else None
        return network.LinkMeasured(**found) if any(found.values()) else None

    def _measured_value(self, known: AnyMeasurement, now_us: int) -> network.MeasuredValue:
        return network.MeasuredValue(
            value=known.value, at=timestamp(known.measured_at_us), stale=self.is_stale(known, now_us)
        )

    def is_stale(self, known: AnyMeasurement, now_us: int) -> bool:
        """Whether a measurement is older than measurements may be."""
        return now_us - known.measured_at_us > self.staleness.measurement_us

    def measurement(self, known: AnyMeasurement, now_us: int) -> Any:
        """A measurement as REST shows it."""
        return mapping.measurement(known, stale=self.is_stale(known, now_us))

    def find_measurements(self, source: str, destination: str, metric: str) -> Iterable[AnyMeasurement]:
        """Latest measurements, filtered; empty matches anything."""
        for identity, known in sorted(self.measurements.items()):
            if all(
                not wanted or wanted == part
                for wanted, part in zip((source, destination, metric), identity, strict=True)
            ):
                yield known
