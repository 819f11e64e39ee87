"""Rate requests, callbacks and quotas."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from chart_client import errors
from chart_client.models import Callback, Preview, Quota, RateRequest, Receipt, ServiceType
from chart_client.resource import Resource, path_of, time_of

NOT_MODIFIED = 304
# At the gateway, for one call; never more than half of the time limit of a try.
LONGEST_WAIT_S = 5.0
_FINAL = frozenset({"RELEASED", "EXPIRED", "CANCELLED"})


class RateRequests(Resource):
    """Request a rate, follow it, release it."""

    @staticmethod
    def _body(source: str, destination: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        body = {"source": source, "destination": destination, **fields}
        body["start"], body["end"] = time_of(body.get("start")), time_of(body.get("end"))
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
        headers = {} if idempotency_key is None else {"Idempotency_Key": idempotency_key}
        return self._one(RateRequest, "POST", path_of("rate-requests"), body, **headers)

    def preview(self, source: str, destination: str, **fields: Any) -> Preview:
        """What `create` with the same arguments would be granted; commits nothing."""
        return self._one(Preview, "POST", "/v1/rate-requests:preview", self._body(source, destination, fields))

    def get(self, request_id: str) -> RateRequest:
        """One request."""
        return self._one(RateRequest, "GET", path_of("rate-requests", request_id))

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
            path_of("rate-requests"),
            lifecycle=lifecycle,
            enforcement=enforcement,
            service_state=service_state,
            callback_state=callback_state,
            tag=wanted or None,
            q=search,
            link=link,
            owner=owner,
            updated_since=time_of(updated_since),
        )

    def commit(self, request_id: str) -> RateRequest:
        """Commit a held request."""
        return self._one(RateRequest, "POST", path_of("rate-requests", request_id, "commit"))

    def change(self, request_id: str, *, revision: int | None = None, **fields: Any) -> RateRequest:
        """Raise, lower, extend or shorten a request in service: guaranteed_bps, minimum_bps, maximum_bps, end,
        priority, callback_url, tags, description. What is not named stays; `end=None`: until it is released.

        Raises:
            RefusedError: it does not fit; everything is as before.
        """
        headers = {} if revision is None else {"If_Match": f'"{revision}"'}
        return self._one(RateRequest, "PATCH", path_of("rate-requests", request_id), self._changes(fields), **headers)

    def preview_change(self, request_id: str, **fields: Any) -> Preview:
        """What `change` would be granted; changes nothing."""
        return self._one(Preview, "POST", path_of("rate-requests", request_id, "preview"), self._changes(fields))

    @staticmethod
    def _changes(fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: time_of(value) if isinstance(value, datetime) else value for name, value in fields.items()}

    def clone(self, request_id: str, **changes: Any) -> RateRequest:
        """Create a request, starting now, with the values of another one and the given changes."""
        asked = self.get(request_id).request
        taken = [
            *("guaranteed_bps", "service", "protocol", "source_port", "destination_port", "dscp", "minimum_bps"),
            *("maximum_bps", "priority", "delay_priority", "burst_tolerance", "traffic_class", "callback_url"),
            *("avoid", "tags", "description"),
        ]
        fields = {name: getattr(asked, name) for name in taken}
        if asked.duration_s and not asked.start:
            fields["duration_s"] = asked.duration_s
        return self.create(asked.source, asked.destination, **{**fields, **changes})

    def receipt(self, request_id: str) -> Receipt:
        """What was granted and delivered."""
        return self._one(Receipt, "GET", path_of("rate-requests", request_id, "receipt"))

    def release(self, request_id: str) -> RateRequest:
        """Release a request; its flows continue under the default congestion control."""
        return self._one(RateRequest, "POST", path_of("rate-requests", request_id, "release"))

    def wait_enforced(self, request_id: str, *, timeout_s: float = 10.0, period_s: float = 0.02) -> RateRequest:
        """Return the request once every node on its path has confirmed.

        Raises:
            NotEnforcedError: a node failed, the request ended, or the time is up.
        """
        end = time.monotonic() + timeout_s
        request = self.get(request_id)
        while True:
            if request.enforcement == "ENFORCED":
                return request
            if request.enforcement == "FAILED" or request.lifecycle in _FINAL:
                raise errors.NotEnforcedError(f"{request_id} is not enforced: {shortfall(request)}")
            if time.monotonic() > end:
                msg = f"{request_id} is not enforced after {timeout_s:g} s: {shortfall(request)}"
                raise errors.NotEnforcedError(msg)
            began = time.monotonic()
            newer = self.newer(request, wait_s=min(LONGEST_WAIT_S, max(0.0, end - began)))
            if newer is None:
                # A gateway that does not wait is not asked all the time.
                time.sleep(max(0.0, period_s - (time.monotonic() - began)))
            request = newer or request

    def newer(self, request: RateRequest, *, wait_s: float = LONGEST_WAIT_S) -> RateRequest | None:
        """Wait at the gateway for a change of the request; None when there is none within the time."""
        answer = self._transport.request(
            "GET",
            path_of("rate-requests", request.id),
            query={"wait_s": round(min(wait_s, self._transport.timeout_s / 2), 3)},
            headers={"If-None-Match": f'"{request.revision}"'},
        )
        return None if answer.status_code == NOT_MODIFIED else RateRequest.model_validate(answer.json())


def shortfall(request: RateRequest) -> str:
    """The first reason why a request is not enforced."""
    if request.lifecycle in _FINAL:
        return f"it is {request.lifecycle.lower()}{': ' + request.reason if request.reason else ''}"
    for confirmation in request.confirmations:
        if confirmation.state == "FAILED":
            return f"{confirmation.node} could not apply it: {confirmation.reason or 'no reason reported'}"
    for confirmation in request.confirmations:
        if confirmation.state == "OBSERVED":
            return f"{confirmation.node} is in mode observe: {confirmation.reason or 'it does not enforce'}"
    applied = {confirmation.node for confirmation in request.confirmations if confirmation.state == "APPLIED"}
    missing = [node for node in request.confirming_nodes if node not in applied]
    if missing:
        return f"no report yet from {', '.join(missing)}"
    return request.reason or "no node has to confirm the request"


class Callbacks(Resource):
    """Callbacks to applications."""

    def list(self, *, request: str | None = None, state: str | None = None) -> Iterator[Callback]:
        """Newest first; DEAD: delivery was given up."""
        return self._all(Callback, path_of("callbacks"), request=request, state=state)

    def retry(self, callback_id: str) -> Callback:
        """Send a callback again."""
        return self._one(Callback, "POST", path_of("callbacks", callback_id, "retry"))

    def secret(self, *, replace: bool = False) -> str:
        """The secret that callbacks of this application are signed with; `replace` makes a new one."""
        method = "POST" if replace else "GET"
        return str(self._transport.request(method, path_of("callback-secret")).json()["secret"])


class Quotas(Resource):
    """Quotas of applications."""

    def list(self) -> Iterator[Quota]:
        """By application."""
        return self._all(Quota, path_of("quotas"))

    def get(self, application: str = "default") -> Quota:
        """One quota."""
        return self._one(Quota, "GET", path_of("quotas", application))

    def put(self, application: str = "default", **bounds: int | None) -> Quota:
        """Set a quota: max_requests, max_total_bps, max_priority, horizon_s, max_held_bps; left out: unlimited."""
        return self._one(Quota, "PUT", path_of("quotas", application), bounds)

    def delete(self, application: str) -> None:
        """Remove a quota; the default quota applies again."""
        self._transport.request("DELETE", path_of("quotas", application))
