"""Whose flows somebody asks for: an application asks only for flows that start or end at what its tenant owns. Pure.

An end belongs to the tenant that states the longest prefix around it, and of equal prefixes the one that states ports;
tenants that state the same share it. Decision 31 has the reasons.
"""

from __future__ import annotations

import bisect
import functools
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import grpc

from chart.common.rpc_errors import RefusalError
from chart.v1 import reservations_pb2
from chart.v1.flow_grant_pb2 import FlowSelector
from chart.v1.tenant_pb2 import Caller, Tenant, TenantEnd

Prefix = ipaddress.IPv4Network | ipaddress.IPv6Network

DEFAULT_TENANT = "default"
SERVICE_ACCOUNT = "system:serviceaccount:"
PROTOCOLS = {6: "tcp", 17: "udp", 33: "dccp", 132: "sctp"}
EVERYTHING: tuple[Prefix, ...] = (ipaddress.IPv4Network("0.0.0.0/0"), ipaddress.IPv6Network("::/0"))
# Of what a tenant owns, as many are named in a refusal.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Rule:
    """A prefix of a tenant, with the ports of it that count; 0 to 0: all."""

    tenant: str
    prefix: Prefix
    # Only as an end at this node; empty: wherever it is.
    node: str
    protocol: int
    first_port: int
    last_port: int

    @property
    def narrow(self) -> bool:
        """Whether it is for a part of the prefix's flows only."""
        return bool(self.protocol or self.last_port)

    def contains(self, end: End) -> bool:
        """Whether every flow with this end is one of the rule's, as far as node, protocol and port say."""
        return (
            self.node in ("", end.node)
            and self.protocol in (0, end.protocol)
            and (not self.last_port or self.first_port <= end.port <= self.last_port)
        )

    def overlaps(self, end: End) -> bool:
        """Whether some flow with this end may be one of the rule's."""
        return (not end.protocol or self.protocol in (0, end.protocol)) and (
            not end.port or not self.last_port or self.first_port <= end.port <= self.last_port
        )


@dataclass(frozen=True)
class End:
    """One end of the flows that a selector is for. ``prefixes`` empty: any address."""

    name: str
    node: str
    prefixes: tuple[Prefix, ...]
    protocol: int
    port: int
    cgroup_id: int = 0

    def words(self) -> str:
        """As people write it."""
        port = f", {PROTOCOLS.get(self.protocol, self.protocol)} port {self.port}" if self.port else ""
        group = f", control group {self.cgroup_id}" if self.cgroup_id else ""
        return f"{self.name} {self.node} ({', '.join(map(str, self.prefixes)) or 'any address'}{port}{group})"


@dataclass
class Ownership:
    """What belongs to whom, with the prefixes of this moment's nodes."""

    tenants: Mapping[str, Tenant]
    nodes: Mapping[str, tuple[Prefix, ...]]
    _members: dict[str, str] = field(default_factory=dict)
    _namespaces: dict[str, str] = field(default_factory=dict)
    _rules: dict[tuple[int, int, int], list[Rule]] = field(default_factory=dict)
    # Prefix lengths that occur, longest first, by IP version.
    _lengths: dict[int, list[int]] = field(default_factory=dict)
    _starts: list[tuple[int, int, int]] = field(default_factory=list)
    _cgroups: dict[tuple[str, int], set[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        tenants: Iterable[Tenant],
        nodes: Mapping[str, tuple[Prefix, ...]],
        whole: Callable[[str], Iterable[Prefix]] = lambda _: (),
    ) -> Ownership:
        """The index of these tenants. ``nodes``: the prefixes that each states as its own; ``whole``: in what others
        they are stated together.
        """
        made = cls({one.id: one for one in tenants}, nodes)
        for tenant in made.tenants.values():
            made._members.update(dict.fromkeys(tenant.members, tenant.id))
            made._namespaces.update(dict.fromkeys(tenant.namespaces, tenant.id))
            for end in tenant.ends:
                made._take(tenant.id, end, whole)
        made._starts = sorted(made._rules)
        for version, _, length in made._rules:
            made._lengths.setdefault(version, []).append(length)
        made._lengths = {version: sorted(set(found), reverse=True) for version, found in made._lengths.items()}
        return made

    def _take(self, tenant: str, end: TenantEnd, whole: Callable[[str], Iterable[Prefix]]) -> None:
        if end.cgroup_id:
            self._cgroups.setdefault((end.node, end.cgroup_id), set()).add(tenant)
            return
        if end.prefix:
            prefixes: Iterable[Prefix] = [ipaddress.ip_network(end.prefix)]
        elif end.node in self.nodes:
            prefixes = {*self.nodes[end.node], *whole(end.node)}
        else:
            prefixes = ()
        node = end.node if end.prefix else ""
        for prefix in prefixes:
            rule = Rule(tenant, prefix, node, end.protocol, end.ports.first, end.ports.last)
            key = (prefix.version, int(prefix.network_address), prefix.prefixlen)
            self._rules.setdefault(key, []).append(rule)

    def tenant_of(self, owner: str, caller: Caller) -> str:
        """The tenant that a token belongs to: by its claim, its subject, its client id, its Kubernetes namespace."""
        if caller.tenant:
            return caller.tenant
        found = self._members.get(owner) or self._members.get(caller.client)
        found = found or self._namespaces.get(namespace_of(owner))
        return found or DEFAULT_TENANT

    def owns(self, tenant: str, end: End) -> bool:
        """Whether all flows with this end belong to a tenant."""
        if end.cgroup_id and (end.node, end.cgroup_id) in self._cgroups:
            return tenant in self._cgroups[end.node, end.cgroup_id]
        if end.name == "source" and not end.cgroup_id and self._has_foreign_cgroup(tenant, end.node):
            return False
        return all(self._owns_prefix(tenant, prefix, end) for prefix in end.prefixes or EVERYTHING)

    def _has_foreign_cgroup(self, tenant: str, node: str) -> bool:
        return any(at == node and tenant not in owners for (at, _), owners in self._cgroups.items())

    def _owns_prefix(self, tenant: str, prefix: Prefix, end: End) -> bool:
        if any(rule.tenant != tenant and rule.overlaps(end) for rule in self._inside(prefix)):
            return False
        for rules in self._around(prefix):
            mine = [rule for rule in rules if rule.tenant == tenant and rule.contains(end)]
            others = [rule for rule in rules if rule.tenant != tenant and rule.overlaps(end)]
            if mine:
                return all(rule.narrow for rule in mine) or not any(rule.narrow for rule in others)
            if others:
                return False
        return False

    def _around(self, prefix: Prefix) -> Iterator[Sequence[Rule]]:
        """Rules whose prefix contains this one, the longest prefixes first."""
        address = int(prefix.network_address)
        for length in self._lengths.get(prefix.version, ()):
            if length <= prefix.prefixlen:
                rest = prefix.max_prefixlen - length
                found = self._rules.get((prefix.version, address >> rest << rest, length))
                if found:
                    yield found

    def _inside(self, prefix: Prefix) -> Iterator[Rule]:
        """Rules of longer prefixes in this one."""
        first, last = int(prefix.network_address), int(prefix.broadcast_address)
        for index in range(bisect.bisect_left(self._starts, (prefix.version, first)), len(self._starts)):
            version, start, length = self._starts[index]
            if version != prefix.version or start > last:
                return
            if length > prefix.prefixlen:
                yield from self._rules[version, start, length]

    def check(self, owner: str, caller: Caller, ends: tuple[End, End]) -> None:
        """Refuse flows that neither start nor end at what the caller's tenant owns.

        Raises:
            RefusalError: PERMISSION_DENIED, with the part of the selector and what would be accepted.
        """
        if caller.operator:
            return
        name = self.tenant_of(owner, caller)
        if any(self.owns(name, end) for end in ends):
            return
        tenant = self.tenants.get(name)
        if name != DEFAULT_TENANT and tenant is not None and vouched(ends[0], caller.addresses):
            return
        if tenant is None and name != DEFAULT_TENANT:
            raise _refusal("source", f"the token names the tenant {name!r}, which does not exist")
        owned = list(tenant.ends) if tenant is not None else []
        if not owned:
            who = f"{owner} belongs to no tenant" if name == DEFAULT_TENANT else f"the tenant {name} owns nothing yet"
            how = f"chart tenant set NAME --member {owner} --own prefix=PREFIX"
            if caller.addresses:
                who = f"the namespace {namespace_of(owner)} belongs to no tenant"
                how = f"chart tenant set NAME --namespace {namespace_of(owner)}"
            raise _refusal(
                "source",
                f"{who}, so there are no flows that it may ask for",
                f"an operator lets it belong to one: {how}",
            )
        some = [end_words(end) for end in owned[:NAMED]]
        more = f" and {len(owned) - NAMED} more" if len(owned) > NAMED else ""
        raise _refusal(
            self._field(name, ends),
            f"neither {ends[0].words()} nor {ends[1].words()} belongs wholly to the tenant {name};"
            f" it owns {', '.join(some)}{more}",
            *(f"ask for flows that start or end at {one}" for one in some),
        )

    def _field(self, tenant: str, ends: Iterable[End]) -> str:
        """The part of the selector that would have to be another one."""
        for end in ends:
            if end.cgroup_id and (end.node, end.cgroup_id) in self._cgroups:
                return "selector.cgroup_id"
            every = [rule for prefix in end.prefixes for rules in self._around(prefix) for rule in rules]
            if any(rule.tenant == tenant and rule.narrow for rule in every):
                return f"selector.{end.name}_port"
        return "source"


def namespace_of(owner: str) -> str:
    """The Kubernetes namespace of a service account; empty: the owner is none."""
    return owner.removeprefix(SERVICE_ACCOUNT).partition(":")[0] if owner.startswith(SERVICE_ACCOUNT) else ""


def vouched(end: End, addresses: Iterable[str]) -> bool:
    """Whether an end is one or several of these addresses and nothing beside them."""
    known = {ipaddress.ip_network(one) for one in addresses}
    return bool(end.prefixes) and known.issuperset(end.prefixes)


def own_prefix(text: str) -> Prefix | None:
    """A stated address of a node: "10.1.0.0/16" is a prefix behind it, "10.1.1.1/30" its address on a subnet."""
    try:
        interface = ipaddress.ip_interface(text)
    except ValueError:
        return None
    if interface.ip == interface.network.network_address:
        return interface.network
    return ipaddress.ip_network(interface.ip)


def ends_of(selector: FlowSelector, source_node: str, destination_node: str) -> tuple[End, End]:
    """Both ends of the flows that a selector is for."""
    sources = selector.source_prefixes or filter(None, [selector.source_prefix])
    destinations = selector.destination_prefixes or filter(None, [selector.destination_prefix])
    return (
        End("source", source_node, _prefixes(sources), selector.protocol, selector.source_port, selector.cgroup_id),
        End("destination", destination_node, _prefixes(destinations), selector.protocol, selector.destination_port),
    )


def end_words(end: TenantEnd) -> str:
    """What a tenant owns, as people write it."""
    words = end.prefix or f"node {end.node}"
    if end.prefix and end.node:
        words += f" at {end.node}"
    if end.cgroup_id:
        words = f"control group {end.cgroup_id} of {end.node}"
    protocol = f" {PROTOCOLS.get(end.protocol, end.protocol)}" if end.protocol else ""
    first, last = end.ports.first, end.ports.last
    ports = f" port {first}" if first == last else f" ports {first}-{last}"
    return words + protocol + (ports if last else "")


def _prefixes(texts: Iterable[str]) -> tuple[Prefix, ...]:
    return tuple(map(_prefix, texts))


@functools.lru_cache(maxsize=65_536)
def _prefix(text: str) -> Prefix:
    """A prefix; requests name the same ones again and again, and to read one costs more than to look it up."""
    return ipaddress.ip_network(text)


def _refusal(part: str, detail: str, *suggestions: str) -> RefusalError:
    refusal = reservations_pb2.Refusal(code="foreign-selector", detail=detail, field=part, suggestions=suggestions)
    return RefusalError(refusal, grpc.StatusCode.PERMISSION_DENIED)
