"""Session rules: what nodes ask in band for every session of a kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from chart_client.models import Model, ServiceType
from chart_client.resource import Resource, path_of

SessionClass = Literal["voice", "video", "data"]


class SessionSelector(Model):
    """Sessions of one kind, as the node that sends sees them; every field that is set must match."""

    protocol: Literal["tcp", "udp"] | None = None
    local_ports: str | None = None
    remote_ports: str | None = None
    local_prefix: str | None = None
    remote_prefix: str | None = None
    dscp: int | None = None


class NodeSessionRule(Model):
    """A rule as a node reported it."""

    node: str
    current: bool
    asks: bool
    fault: str = ""
    sessions: int
    expedited_sessions: int
    guaranteed_bps: int


class SessionRule(Model):
    """A session rule, and what nodes report of it."""

    id: str
    revision: int
    name: str
    session_class: SessionClass
    selectors: list[SessionSelector]
    service: ServiceType
    guaranteed_bps: int
    available_bps: int
    delay_class: int
    priority: int
    burst_tolerance: int
    nodes: list[str]
    node_tags: dict[str, str]
    enabled: bool
    authorised: bool
    built_in: bool
    expedited: bool
    sessions: int
    expedited_sessions: int
    reported_by: list[NodeSessionRule] = Field(default_factory=list)

    def stated(self) -> dict[str, Any]:
        """The fields that `SessionRules.put` takes."""
        reported = {"id", "revision", "built_in", "expedited", "sessions", "expedited_sessions", "reported_by"}
        return self.model_dump(mode="json", exclude=reported)


class SessionRules(Resource):
    """Session rules."""

    def list(self) -> Iterator[SessionRule]:
        """By id."""
        return self._all(SessionRule, path_of("session-rules"))

    def get(self, rule_id: str) -> SessionRule:
        """One rule."""
        return self._one(SessionRule, "GET", path_of("session-rules", rule_id))

    def put(self, rule_id: str, *, revision: int | None = None, **fields: Any) -> SessionRule:
        """Set a rule; fields as in `SessionRule.stated`. ``revision``: only if the rule is still at this one."""
        headers = {} if revision is None else {"If_Match": f'"{revision}"'}
        return self._one(SessionRule, "PUT", path_of("session-rules", rule_id), fields, **headers)

    def enable(self, rule_id: str, *, enabled: bool = True) -> SessionRule:
        """Let sessions ask by a rule, or no longer; the rest of it stays."""
        rule = self.get(rule_id)
        return self.put(rule_id, revision=rule.revision, **{**rule.stated(), "enabled": enabled})

    def delete(self, rule_id: str) -> None:
        """Remove a rule; built-in ones can only be disabled."""
        self._transport.request("DELETE", path_of("session-rules", rule_id))
