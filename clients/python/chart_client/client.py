"""The client: `Client(server, token).rate_requests.create(source="alpha", destination="delta", guaranteed_bps=...)`."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal

import httpx

from chart_client import errors, sensing, sse
from chart_client.identities import AuthorisationPolicies, Enrolments, Identities, NextHops, Peers
from chart_client.meshes import Meshes
from chart_client.models import (
    EnforcementMode,
    Event,
    FoundPath,
    Link,
    LinkCapacity,
    Measurement,
    Node,
    Policy,
    SensingConfiguration,
    Series,
    Tunnel,
)
from chart_client.observed import AdvisedFlows, Audit, Authorisations, Flows, InBandFlows, NodeKeys
from chart_client.overlay import Overlay
from chart_client.pair_groups import PairGroups
from chart_client.platform_settings import PlatformSettingsResource
from chart_client.rate_requests import Callbacks, Quotas, RateRequests
from chart_client.registry.plan import Registered
from chart_client.resource import Resource, path_of, time_of
from chart_client.session_rules import SessionRules
from chart_client.tenants import Tenants
from chart_client.transport import DEFAULT_SERVER, TRIES, Transport, development_token, is_loopback, problem_of

# The gateway sends a comment every 15 s; silence for longer than two of them means that the connection is dead.
EVENT_SILENCE_S = 35.0


class Nodes(Resource):
    """Nodes."""

    def list(self) -> Iterator[Node]:
        """By id."""
        return self._all(Node, path_of("nodes"))

    def get(self, node_id: str) -> Node:
        """One node."""
        return self._one(Node, "GET", path_of("nodes", node_id))

    def put(self, node_id: str, *, revision: int | None = None, **fields: Any) -> Node:
        """Register or change a node: description, addresses, sensor_pod_target, tags, map_position; edges,
        tunnel_ends, proxied_traffic and overlay stay when left out. ``revision``: only if the node is still at it.
        """
        headers = {} if revision is None else {"If_Match": f'"{revision}"'}
        return self._one(Node, "PUT", path_of("nodes", node_id), fields, **headers)

    def delete(self, node_id: str) -> None:
        """Remove a node."""
        self._transport.request("DELETE", path_of("nodes", node_id))


class Links(Resource):
    """Directed links."""

    def list(self) -> Iterator[Link]:
        """By id, with their live state."""
        return self._all(Link, path_of("links"))

    def get(self, link_id: str) -> Link:
        """One link."""
        return self._one(Link, "GET", path_of("links", link_id))

    def put(self, link_id: str, *, to_node: str, capacity_bps: int | None = None, **fields: Any) -> Link:
        """Register or change a link; further fields: delay_us, admission_share, scone, scone_police, quick_start,
        quick_start_threshold, quick_start_share, advice_prefixes, tags. Without a capacity it is what the node reports
        of its interface.
        """
        body = {"to_node": to_node, "capacity_bps": capacity_bps, **fields}
        return self._one(Link, "PUT", path_of("links", link_id), body)

    def capacity(self, link_id: str, *, start: datetime | None = None, until: datetime | None = None) -> LinkCapacity:
        """Commitments of a link over a time range, as steps; default: from now on."""
        query = {"from": time_of(start), "until": time_of(until)}
        return LinkCapacity.model_validate(
            self._transport.request("GET", path_of("links", link_id, "capacity"), query=query).json()
        )

    def delete(self, link_id: str) -> None:
        """Remove a link."""
        self._transport.request("DELETE", path_of("links", link_id))


class Policies(Resource):
    """Policies."""

    def list(self) -> Iterator[Policy]:
        """By id."""
        return self._all(Policy, path_of("policies"))

    def get(self, policy_id: str = "default") -> Policy:
        """One policy."""
        return self._one(Policy, "GET", path_of("policies", policy_id))

    def put(
        self,
        policy_id: str = "default",
        *,
        enforcement: EnforcementMode | None = None,
        link_controller: Literal["nec", "rcp"] | None = None,
        max_guaranteed_bps: int | None = None,
        customer_weights: dict[str, int] | None = None,
        default_congestion: str | None = None,
        ipfix_collector: str | None = None,
        quick_start_request_bps: int | None = None,
    ) -> Policy:
        """Set a policy; it reaches every agent within 2 s. What is None follows the default policy; weights of tunnels'
        customers, congestion control of flows whose rate ended and collector of flow records stay when left out, empty
        texts clear them.
        """
        body: dict[str, Any] = {
            "enforcement": enforcement,
            "link_controller": link_controller,
            "max_guaranteed_bps": max_guaranteed_bps,
            "quick_start_request_bps": quick_start_request_bps,
        }
        if customer_weights is not None:
            body["customer_weights"] = customer_weights
        if default_congestion is not None:
            body["default_congestion"] = default_congestion
        if ipfix_collector is not None:
            body["ipfix_collector"] = ipfix_collector
        return self._one(Policy, "PUT", path_of("policies", policy_id), body)

    def delete(self, policy_id: str) -> None:
        """Remove a node's policy; the node follows the default policy."""
        self._transport.request("DELETE", path_of("policies", policy_id))


class SensingConfigurations(Resource):
    """Sensing configurations."""

    def list(self, *, source: str | None = None) -> Iterator[SensingConfiguration]:
        """By id."""
        return self._all(SensingConfiguration, path_of("sensing-configurations"), source=source)

    def get(self, configuration_id: str) -> SensingConfiguration:
        """One configuration."""
        return self._one(SensingConfiguration, "GET", path_of("sensing-configurations", configuration_id))

    def put(self, configuration_id: str, **fields: Any) -> SensingConfiguration:
        """Set a sensing configuration; fields as in `SensingConfiguration`."""
        return self._one(SensingConfiguration, "PUT", path_of("sensing-configurations", configuration_id), fields)

    def delete(self, configuration_id: str) -> None:
        """Remove a sensing configuration; stored results are kept."""
        self._transport.request("DELETE", path_of("sensing-configurations", configuration_id))


class Measurements(Resource):
    """Latest measurements."""

    def list(
        self, *, source: str | None = None, destination: str | None = None, metric: str | None = None
    ) -> Iterator[Measurement]:
        """The newest of each source, destination and metric."""
        return self._all(Measurement, path_of("measurements"), source=source, destination=destination, metric=metric)

    def prometheus(
        self, *, source: str | None = None, destination: str | None = None, metric: str | None = None
    ) -> str:
        """The same as text that Prometheus reads; failed and stale ones are left out."""
        query = {"source": source, "destination": destination, "metric": metric}
        return self._transport.request("GET", path_of("measurements", "prometheus"), query=query).text


class Tunnels(Resource):
    """Elastic tunnels."""

    def list(self) -> Iterator[Tunnel]:
        """By id."""
        return self._all(Tunnel, path_of("tunnels"))

    def get(self, tunnel_id: str) -> Tunnel:
        """One tunnel with the figures of its steps and its last periods."""
        return self._one(Tunnel, "GET", path_of("tunnels", tunnel_id))

    def put(self, tunnel_id: str, *, controller: str = "pi", **fields: Any) -> Tunnel:
        """Set a tunnel's target and controller; further fields as in `TunnelSettings`, without the revision."""
        return self._one(Tunnel, "PUT", path_of("tunnels", tunnel_id), {"controller": controller, **fields})

    def delete(self, tunnel_id: str) -> None:
        """Stop controlling a tunnel."""
        self._transport.request("DELETE", path_of("tunnels", tunnel_id))


class SignedReceipts(Resource):
    """Signed statements of what was granted and delivered."""

    def get(self, request_id: str) -> str:
        """The receipt of a rate request: a JWS that `chart receipt verify` checks offline."""
        return str(self._transport.request("GET", path_of("receipts", request_id)).json()["receipt"])

    def keys(self) -> dict[str, Any]:
        """Public keys that receipts are verified with (JWKS)."""
        found: dict[str, Any] = self._transport.request("GET", "/v1/receipt-keys").json()
        return found


class Client:
    """A connection to one gateway. Close it, or use it as a context manager.

    Args:
        server: base address; default ``CHART_SERVER`` or the platform on this machine.
        token: bearer token, or a function that gives one; default ``CHART_TOKEN``. Without any, a development platform
            on this machine is asked for one.
        timeout_s: for each try of a call.
        tries: how often a call is tried while the gateway is away.
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | Callable[[], str] | None = None,
        *,
        timeout_s: float = 10.0,
        tries: int = TRIES,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        server = server or os.environ.get("CHART_SERVER") or DEFAULT_SERVER
        token = token or os.environ.get("CHART_TOKEN")
        if not token and transport is None and is_loopback(server):
            # Asked for with the first call, so that a client can be made while the gateway is away.
            token = functools.cache(lambda: development_token(server, tries=tries))
        self._transport = Transport(server, token, timeout_s=timeout_s, transport=transport, tries=tries)
        self.rate_requests = RateRequests(self._transport)
        self.callbacks = Callbacks(self._transport)
        self.quotas = Quotas(self._transport)
        self.nodes = Nodes(self._transport)
        self.links = Links(self._transport)
        self.overlay = Overlay(self._transport)
        self.policies = Policies(self._transport)
        self.registered = Registered(self._transport)
        self.session_rules = SessionRules(self._transport)
        self.tenants = Tenants(self._transport)
        self.platform_settings = PlatformSettingsResource(self._transport)
        self.sensing_configurations = SensingConfigurations(self._transport)
        self.meshes = Meshes(self._transport)
        self.pair_groups = PairGroups(self._transport)
        self.measurements = Measurements(self._transport)
        self.sensing = sensing.Sensing(self._transport)
        self.snapshots = sensing.Snapshots(self._transport)
        self.alerts = sensing.Alerts(self._transport)
        self.tunnels = Tunnels(self._transport)
        self.signed_receipts = SignedReceipts(self._transport)
        self.authorisations = Authorisations(self._transport)
        self.authorisation_policies = AuthorisationPolicies(self._transport)
        self.enrolments = Enrolments(self._transport)
        self.identities = Identities(self._transport)
        self.peers = Peers(self._transport)
        self.next_hops = NextHops(self._transport)
        self.audit = Audit(self._transport)
        self.flows = Flows(self._transport)
        self.in_band_flows = InBandFlows(self._transport)
        self.advised_flows = AdvisedFlows(self._transport)
        self.node_keys = NodeKeys(self._transport)

    def paths(
        self,
        source: str,
        destination: str,
        *,
        start: datetime | None = None,
        until: datetime | None = None,
        avoid: Sequence[str] = (),
    ) -> list[FoundPath]:
        """Paths between two nodes with their free rate; the first is the one that a request gets."""
        query = {"from": time_of(start), "until": time_of(until), "avoid": list(avoid) or None}
        answer = self._transport.request("GET", path_of("paths", source, destination), query=query).json()
        return [FoundPath.model_validate(item) for item in answer["items"]]

    def series(
        self,
        kind: Literal["measurement", "link", "grant"],
        subject: str,
        metric: str,
        *,
        start: datetime | None = None,
        until: datetime | None = None,
        step_ms: int = 0,
    ) -> Series:
        """History of one metric; default: the last hour."""
        query = {
            "kind": kind,
            "subject": subject,
            "metric": metric,
            "from": time_of(start),
            "until": time_of(until),
            "step_ms": step_ms,
        }
        return Series.model_validate(self._transport.request("GET", "/v1/series", query=query).json())

    def ready(self) -> dict[str, str]:
        """Outcome of the gateway's readiness checks: "ok", or what is missing."""
        answer = self._transport.look("/readyz")
        try:
            return {str(name): str(words) for name, words in answer.json()["checks"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            return {"gateway": f"responds {answer.status_code} to /readyz; is this a CHART gateway?"}

    def events(self, names: Sequence[str] | None = None, *, resume: bool = True) -> Iterator[Event]:
        """Live events, for ever; goes on where it was when the connection breaks.

        `resync` events tell that some were missed: read the lists anew.

        Raises:
            NotAllowedError: no token, or not one for this.
            UnreachableError: the gateway is gone (only with ``resume=False``).
        """
        last, pause_s = "", 0.2
        while True:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
            query = {"events": ",".join(names) if names else None}
            try:
                with self._transport.stream(
                    "/v1/events", query=query, headers=headers, read_timeout_s=EVENT_SILENCE_S
                ) as response:
                    if not response.is_success:
                        response.read()
                        raise errors.of(problem_of(response))
                    for event in sse.parse(response.iter_lines()):
                        pause_s = 0.2
                        last = event.id or last
                        yield event
            except (httpx.TransportError, errors.UnavailableError) as error:
                if not resume:
                    raise errors.UnreachableError(f"the event stream was interrupted: {error}") from error
            if not resume:
                return
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 5.0)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
