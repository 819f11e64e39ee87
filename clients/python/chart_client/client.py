"""The client: `Client(server, token).rate_requests.create(source="alpha", destination="delta", guaranteed_bps=...)`."""

from __future__ import annotations

import functools
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import httpx

from chart_client import errors, sensing, sse
from chart_client.models import (
    Callback,
    EnforcementMode,
    Event,
    FoundPath,
    Link,
    LinkCapacity,
    Measurement,
    Model,
    Node,
    Policy,
    Preview,
    Quota,
    RateRequest,
    Receipt,
    SensingConfiguration,
    Series,
    ServiceType,
    Tunnel,
)
from chart_client.transport import DEFAULT_SERVER, Transport, development_token, is_loopback, problem_of

M = TypeVar("M", bound=Model)

# The gateway sends a comment every 15 s; silence for longer than two of them means that the connection is dead.
EVENT_SILENCE_S = 35.0
_FINAL = frozenset({"RELEASED", "EXPIRED", "CANCELLED"})


def _time(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        msg = "a time needs a zone: datetime.now(UTC), or .astimezone()"
        raise ValueError(msg)
    return moment.isoformat()


def _path(*parts: str) -> str:
    return "/".join(["/v1", *(quote(part, safe=":") for part in parts)])


class _Resource:
    """Base of the groups of calls."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _all(self, model: type[M], path: str, **query: Any) -> Iterator[M]:
        """Every item of every page."""
        cursor = None
        while True:
            page = self._transport.request("GET", path, query={**query, "cursor": cursor}).json()
            for item in page["items"]:
                yield model.model_validate(item)
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def _one(self, model: type[M], method: str, path: str, body: object = None, **headers: str) -> M:
        answer = self._transport.request(
            method, path, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        return model.model_validate(answer.json())


class RateRequests(_Resource):
    """Ask for a rate, follow it, release it."""

    @staticmethod
    def _body(source: str, destination: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        body = {"source": source, "destination": destination, **fields}
        body["start"], body["end"] = _time(body.get("start")), _time(body.get("end"))
        return {name: value for name, value in body.items() if value is not None}

    def create(
        self,
        source: str,
        destination: str,
        *,
        guaranteed_bps: int = 0,
        service: ServiceType = "variable",
        protocol: Literal["tcp", "udp"] | None = None,
        source_port: int | None = None,
        destination_port: int | None = None,
        dscp: int | None = None,
        cgroup_id: int | None = None,
        minimum_bps: int | None = None,
        maximum_bps: int | None = None,
        priority: int = 0,
        delay_priority: int = 0,
        burst_tolerance: int = 0,
        start: datetime | None = None,
        end: datetime | None = None,
        duration_s: int | None = None,
        traffic_class: Literal["foreground", "background"] = "foreground",
        hold: bool = False,
        callback_url: str | None = None,
        avoid: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        description: str = "",
        idempotency_key: str | None = None,
    ) -> RateRequest:
        """Ask for a rate; it is committed when this returns. Source and destination are nodes, addresses or prefixes.

        With `hold` it waits for `commit`, at most 900 s. Background takes what foreground leaves, up to guaranteed_bps.

        Raises:
            RefusedError: with floor, ceiling and suggestions.
        """
        fields = {name: value for name, value in locals().items() if name not in ("self", "idempotency_key")}
        source, destination = fields.pop("source"), fields.pop("destination")
        fields["avoid"] = list(avoid)
        body = self._body(source, destination, fields)
        return self._one(
            RateRequest, "POST", _path("rate-requests"), body, Idempotency_Key=idempotency_key or uuid.uuid4().hex
        )

    def preview(self, source: str, destination: str, **fields: Any) -> Preview:
        """What `create` with the same arguments would get; commits nothing."""
        return self._one(Preview, "POST", "/v1/rate-requests:preview", self._body(source, destination, fields))

    def get(self, request_id: str) -> RateRequest:
        """One request."""
        return self._one(RateRequest, "GET", _path("rate-requests", request_id))

    def list(
        self,
        *,
        lifecycle: str | None = None,
        enforcement: str | None = None,
        service_state: str | None = None,
        callback_state: str | None = None,
        tags: Mapping[str, str] | None = None,
        search: str | None = None,
        link: str | None = None,
        owner: str | None = None,
        updated_since: datetime | None = None,
    ) -> Iterator[RateRequest]:
        """Requests that may be seen, newest first. A tag with an empty value stands for any value."""
        wanted = [f"{name}={value}" if value else name for name, value in (tags or {}).items()]
        return self._all(
            RateRequest,
            _path("rate-requests"),
            lifecycle=lifecycle,
            enforcement=enforcement,
            service_state=service_state,
            callback_state=callback_state,
            tag=wanted or None,
            q=search,
            link=link,
            owner=owner,
            updated_since=_time(updated_since),
        )

    def commit(self, request_id: str) -> RateRequest:
        """Commit a held request."""
        return self._one(RateRequest, "POST", _path("rate-requests", request_id, "commit"))

    def change(self, request_id: str, *, revision: int | None = None, **fields: Any) -> RateRequest:
        """Raise, lower, extend or shorten a request in service: guaranteed_bps, minimum_bps, maximum_bps, end,
        priority, callback_url, tags, description. What is not named stays; `end=None`: until it is released.

        Raises:
            RefusedError: it does not fit; everything is as before.
        """
        headers = {} if revision is None else {"If_Match": f'"{revision}"'}
        return self._one(RateRequest, "PATCH", _path("rate-requests", request_id), self._changes(fields), **headers)

    def preview_change(self, request_id: str, **fields: Any) -> Preview:
        """What `change` would get; changes nothing."""
        return self._one(Preview, "POST", _path("rate-requests", request_id, "preview"), self._changes(fields))

    @staticmethod
    def _changes(fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _time(value) if isinstance(value, datetime) else value for name, value in fields.items()}

    def clone(self, request_id: str, **changes: Any) -> RateRequest:
        """Ask anew for what a request asked for, with other values where they are given; it starts now."""
        asked = self.get(request_id).request
        taken = [
            *("guaranteed_bps", "service", "protocol", "source_port", "destination_port", "dscp", "minimum_bps"),
            *("maximum_bps", "priority", "traffic_class", "callback_url", "avoid", "tags", "description"),
        ]
        fields = {name: getattr(asked, name) for name in taken}
        if asked.duration_s and not asked.start:
            fields["duration_s"] = asked.duration_s
        return self.create(asked.source, asked.destination, **{**fields, **changes})

    def receipt(self, request_id: str) -> Receipt:
        """What was granted and delivered."""
        return self._one(Receipt, "GET", _path("rate-requests", request_id, "receipt"))

    def release(self, request_id: str) -> RateRequest:
        """Give the rate back; its flows go on under the kernel's own congestion control."""
        return self._one(RateRequest, "POST", _path("rate-requests", request_id, "release"))

    def wait_enforced(self, request_id: str, *, timeout_s: float = 10.0, period_s: float = 0.02) -> RateRequest:
        """Return the request once every node on its path has confirmed.

        Raises:
            NotEnforcedError: a node failed, the request ended, or the time is up.
        """
        end = time.monotonic() + timeout_s
        while True:
            request = self.get(request_id)
            if request.enforcement == "ENFORCED":
                return request
            if request.enforcement == "FAILED" or request.lifecycle in _FINAL:
                raise errors.NotEnforcedError(f"{request_id} is not enforced: {shortfall(request)}")
            if time.monotonic() > end:
                msg = f"{request_id} is not enforced after {timeout_s:g} s: {shortfall(request)}"
                raise errors.NotEnforcedError(msg)
            time.sleep(period_s)


def shortfall(request: RateRequest) -> str:
    """The first reason why a request is not enforced, in words."""
    if request.lifecycle in _FINAL:
        return f"it is {request.lifecycle.lower()}{': ' + request.reason if request.reason else ''}"
    for confirmation in request.confirmations:
        if confirmation.state == "FAILED":
            return f"{confirmation.node} could not apply it: {confirmation.reason or 'no reason given'}"
    for confirmation in request.confirmations:
        if confirmation.state == "OBSERVED":
            return f"{confirmation.node} only observes: {confirmation.reason or 'its mode does not enforce'}"
    applied = {confirmation.node for confirmation in request.confirmations if confirmation.state == "APPLIED"}
    missing = [node for node in request.confirming_nodes if node not in applied]
    if missing:
        return f"no word yet from {', '.join(missing)}"
    return request.reason or "no node has to confirm it"


class Callbacks(_Resource):
    """What applications were told."""

    def list(self, *, request: str | None = None, state: str | None = None) -> Iterator[Callback]:
        """Newest first; DEAD ones were given up."""
        return self._all(Callback, _path("callbacks"), request=request, state=state)

    def retry(self, callback_id: str) -> Callback:
        """Send one again."""
        return self._one(Callback, "POST", _path("callbacks", callback_id, "retry"))

    def secret(self, *, replace: bool = False) -> str:
        """The secret that callbacks of this application are signed with; `replace` makes a new one."""
        method = "POST" if replace else "GET"
        return str(self._transport.request(method, _path("callback-secret")).json()["secret"])


class Quotas(_Resource):
    """What applications may have at once."""

    def list(self) -> Iterator[Quota]:
        """By application."""
        return self._all(Quota, _path("quotas"))

    def get(self, application: str = "default") -> Quota:
        """One quota."""
        return self._one(Quota, "GET", _path("quotas", application))

    def put(self, application: str = "default", **bounds: int | None) -> Quota:
        """State one: max_requests, max_total_bps, max_priority, horizon_s; what is left out has no bound."""
        return self._one(Quota, "PUT", _path("quotas", application), bounds)

    def delete(self, application: str) -> None:
        """Remove one."""
        self._transport.request("DELETE", _path("quotas", application))


class Nodes(_Resource):
    """Hosts and network elements."""

    def list(self) -> Iterator[Node]:
        """By id."""
        return self._all(Node, _path("nodes"))

    def get(self, node_id: str) -> Node:
        """One node."""
        return self._one(Node, "GET", _path("nodes", node_id))

    def put(self, node_id: str, **fields: Any) -> Node:
        """State a node: description, addresses, sensor_pod_target, tags, map_position."""
        return self._one(Node, "PUT", _path("nodes", node_id), fields)

    def delete(self, node_id: str) -> None:
        """Remove a node."""
        self._transport.request("DELETE", _path("nodes", node_id))


class Links(_Resource):
    """Directed links."""

    def list(self) -> Iterator[Link]:
        """By id, with their live state."""
        return self._all(Link, _path("links"))

    def get(self, link_id: str) -> Link:
        """One link."""
        return self._one(Link, "GET", _path("links", link_id))

    def put(self, link_id: str, *, to_node: str, capacity_bps: int, **fields: Any) -> Link:
        """State a link; further fields: delay_us, admission_share, tags."""
        body = {"to_node": to_node, "capacity_bps": capacity_bps, **fields}
        return self._one(Link, "PUT", _path("links", link_id), body)

    def capacity(self, link_id: str, *, start: datetime | None = None, until: datetime | None = None) -> LinkCapacity:
        """What the link has committed over a time, as steps; default: from now on for ever."""
        query = {"from": _time(start), "until": _time(until)}
        return LinkCapacity.model_validate(
            self._transport.request("GET", _path("links", link_id, "capacity"), query=query).json()
        )

    def delete(self, link_id: str) -> None:
        """Remove a link."""
        self._transport.request("DELETE", _path("links", link_id))


class Policies(_Resource):
    """What operators decide."""

    def list(self) -> Iterator[Policy]:
        """By id."""
        return self._all(Policy, _path("policies"))

    def get(self, policy_id: str = "default") -> Policy:
        """One policy."""
        return self._one(Policy, "GET", _path("policies", policy_id))

    def put(
        self,
        policy_id: str = "default",
        *,
        enforcement: EnforcementMode,
        link_controller: Literal["nec", "rcp"] = "nec",
        max_guaranteed_bps: int = 0,
        customer_weights: dict[str, int] | None = None,
    ) -> Policy:
        """Decide a policy; it reaches every agent within 2 s. Weights of tunnels' customers stay when left out."""
        body: dict[str, Any] = {
            "enforcement": enforcement,
            "link_controller": link_controller,
            "max_guaranteed_bps": max_guaranteed_bps,
        }
        if customer_weights is not None:
            body["customer_weights"] = customer_weights
        return self._one(Policy, "PUT", _path("policies", policy_id), body)


class SensingConfigurations(_Resource):
    """What shall be measured."""

    def list(self, *, source: str | None = None) -> Iterator[SensingConfiguration]:
        """By id."""
        return self._all(SensingConfiguration, _path("sensing-configurations"), source=source)

    def put(self, configuration_id: str, **fields: Any) -> SensingConfiguration:
        """Have something measured; fields as in `SensingConfiguration`."""
        return self._one(SensingConfiguration, "PUT", _path("sensing-configurations", configuration_id), fields)

    def delete(self, configuration_id: str) -> None:
        """Measure it no more."""
        self._transport.request("DELETE", _path("sensing-configurations", configuration_id))


class Measurements(_Resource):
    """What was measured last."""

    def list(
        self, *, source: str | None = None, destination: str | None = None, metric: str | None = None
    ) -> Iterator[Measurement]:
        """The newest of each source, destination and metric."""
        return self._all(Measurement, _path("measurements"), source=source, destination=destination, metric=metric)


class Tunnels(_Resource):
    """Elastic tunnels."""

    def list(self) -> Iterator[Tunnel]:
        """By id."""
        return self._all(Tunnel, _path("tunnels"))

    def get(self, tunnel_id: str) -> Tunnel:
        """One tunnel with the figures of its steps and its last periods."""
        return self._one(Tunnel, "GET", _path("tunnels", tunnel_id))

    def put(self, tunnel_id: str, *, controller: str = "pi", **fields: Any) -> Tunnel:
        """State what a tunnel shall carry; further fields as in `TunnelSettings`, without the revision."""
        return self._one(Tunnel, "PUT", _path("tunnels", tunnel_id), {"controller": controller, **fields})

    def delete(self, tunnel_id: str) -> None:
        """Control a tunnel no more."""
        self._transport.request("DELETE", _path("tunnels", tunnel_id))


class SignedReceipts(_Resource):
    """Signed statements of what was granted and delivered."""

    def get(self, request_id: str) -> str:
        """The receipt of a rate request: a JWS that `chart receipt verify` checks offline."""
        return str(self._transport.request("GET", _path("receipts", request_id)).json()["receipt"])

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
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | Callable[[], str] | None = None,
        *,
        timeout_s: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        server = server or os.environ.get("CHART_SERVER") or DEFAULT_SERVER
        token = token or os.environ.get("CHART_TOKEN")
        if not token and transport is None and is_loopback(server):
            # Asked for with the first call, so that a client can be made while the gateway is away.
            token = functools.cache(lambda: development_token(server))
        self._transport = Transport(server, token, timeout_s=timeout_s, transport=transport)
        self.rate_requests = RateRequests(self._transport)
        self.callbacks = Callbacks(self._transport)
        self.quotas = Quotas(self._transport)
        self.nodes = Nodes(self._transport)
        self.links = Links(self._transport)
        self.policies = Policies(self._transport)
        self.sensing_configurations = SensingConfigurations(self._transport)
        self.measurements = Measurements(self._transport)
        self.sensing = sensing.Sensing(self._transport)
        self.snapshots = sensing.Snapshots(self._transport)
        self.alerts = sensing.Alerts(self._transport)
        self.tunnels = Tunnels(self._transport)
        self.signed_receipts = SignedReceipts(self._transport)

    def paths(
        self,
        source: str,
        destination: str,
        *,
        start: datetime | None = None,
        until: datetime | None = None,
        avoid: Sequence[str] = (),
    ) -> list[FoundPath]:
        """Paths between two nodes with what may still be committed on them, that of a request first."""
        query = {"from": _time(start), "until": _time(until), "avoid": list(avoid) or None}
        answer = self._transport.request("GET", _path("paths", source, destination), query=query).json()
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
            "from": _time(start),
            "until": _time(until),
            "step_ms": step_ms,
        }
        return Series.model_validate(self._transport.request("GET", "/v1/series", query=query).json())

    def ready(self) -> dict[str, str]:
        """Outcome of the gateway's readiness checks: "ok", or what is missing."""
        answer = self._transport.look("/readyz")
        try:
            return {str(name): str(words) for name, words in answer.json()["checks"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            return {"gateway": f"answers {answer.status_code} to /readyz; is this CHART's gateway?"}

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
                    raise errors.UnreachableError(f"the event stream broke: {error}") from error
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
