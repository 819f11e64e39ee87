"""Who may do what at the broker: rules of access that follow from the catalogue, and the difference to those in force.

A certificate's subject names a kind that the issuer set and a name (identity.py of the authority); PRINCIPAL_RULE makes
`node:alpha` of it. A node gets what `node` may in the catalogue, a service what its name may. What no rule allows is
refused (`allow.everyone.if.no.acl.found=false`), so a node writes nothing that commands nodes, and who is revoked has
lost every right at once, on connections that are open too: the broker asks for each request.

Rules of Kafka do not tell keys apart: what a node writes about another one is refused by the readers
(record_check.py), which also hold against tombstones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget the re-exports
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from chart.common.catalogue import Catalogue

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# For `ssl.principal.mapping.rules` of a broker: subject `UID=alpha,CN=alpha,OU=node` becomes `node:alpha`. A subject
# of another form matches no rule, and the broker refuses the connection.
PRINCIPAL_RULE = "RULE:^UID=([A-Za-z0-9._@-]+),CN=[^,]*,OU=(node|service|user)$/$2:$1/"
# Makes topics and changes rules; the broker's own name is `service:kafka`.
ADMINISTRATOR = "service:topics"
# May change the rules of nodes, nothing else of the cluster.
AUTHORITY = "service:authority"
LIMIT_S = 15.0
LOOK_EVERY_S = 0.1

Resource = Literal["TOPIC", "GROUP", "BROKER"]
CLUSTER = "kafka-cluster"
UNGROUPED = "chart-ungrouped"


@dataclass(frozen=True, order=True)
class Rule:
    """One right: `principal` (``node:alpha``) may do `operation` on a topic, on groups that begin with a name, or on
    the cluster.
    """

    principal: str
    resource: Resource
    name: str
    operation: str
    prefix: bool = False

    def __str__(self) -> str:
        what = {"TOPIC": "", "GROUP": "group ", "BROKER": "cluster "}[self.resource]
        return f"{self.principal} may {self.operation} {what}{self.name}{'*' if self.prefix else ''}"


@dataclass
class Difference:
    """What separates the rules in force from those wanted."""

    missing: list[Rule] = field(default_factory=list)
    surplus: list[Rule] = field(default_factory=list)


class NoAuthoriser(RuntimeError):  # noqa: N818 - a state of the broker
    """The broker checks nobody's rights: whoever reaches it may write everything."""


class RulesNotInForceError(RuntimeError):
    """The broker acknowledged rules and does not judge by them."""


def of_node(catalogue: Catalogue, node: str) -> frozenset[Rule]:
    """Rights of one node."""
    principal = f"node:{node}"
    return _of_role(catalogue, "node", principal, dead_letters=False) | {_ungrouped(principal)}


def of_services(catalogue: Catalogue) -> frozenset[Rule]:
    """Rights of every service that the catalogue names, and of those that look after the broker."""
    names = {name for topic in catalogue.topics() for name in (*topic.writers, *topic.readers)} - {"node"}
    rules: set[Rule] = set()
    for name in names:
        principal = f"service:{name}"
        rules |= _of_role(catalogue, name, principal, dead_letters=True)
        # Groups of a service begin with its name: `reservations`, `reservations-leases`.
        rules.add(Rule(principal, "GROUP", name, "READ", prefix=True))
        rules.add(_ungrouped(principal))
    for operation in ("ALTER", "DESCRIBE"):
        rules.add(Rule(AUTHORITY, "BROKER", CLUSTER, operation))
    return frozenset(rules)


def _ungrouped(principal: str) -> Rule:
    """Readers of whole streams name a group too, in which nothing is shared and nothing committed."""
    return Rule(principal, "GROUP", UNGROUPED, "READ")


def _of_role(catalogue: Catalogue, role: str, principal: str, *, dead_letters: bool) -> frozenset[Rule]:
    rules: set[Rule] = set()
    for topic in catalogue.topics():
        # The right to write or read includes that to describe.
        if role in topic.writers:
            rules.add(Rule(principal, "TOPIC", topic.name, "WRITE"))
        if role in topic.readers:
            rules.add(Rule(principal, "TOPIC", topic.name, "READ"))
            if dead_letters and topic.dlq:
                rules.add(Rule(principal, "TOPIC", topic.dlq_name, "WRITE"))
    return frozenset(rules)


def difference(wanted: Iterable[Rule], actual: Iterable[Rule]) -> Difference:
    """What has to be added and removed, in order."""
    wanted, actual = set(wanted), set(actual)
    return Difference(sorted(wanted - actual), sorted(actual - wanted))


def in_force(admin: AdminClient, limit_s: float = LIMIT_S) -> set[Rule]:
    """Every right that the broker knows.

    Raises:
        NoAuthoriser: it checks nobody.
        KafkaException: it does not answer, or refuses.
    """
    anything: Any = None  # the stubs of the library forget that None stands for any
    every = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    with _asking():
        bindings = admin.describe_acls(every, request_timeout=limit_s).result(limit_s)
    return {_rule(binding) for binding in bindings if binding.permission_type == AclPermissionType.ALLOW}


def change(admin: AdminClient, found: Difference, limit_s: float = LIMIT_S) -> None:
    """Add what is missing, remove the surplus, and return when the broker that is asked judges by it: the controller
    acknowledges a rule before brokers have it.

    Raises:
        NoAuthoriser: the broker checks nobody.
        KafkaException: it does not answer, or refuses.
        RulesNotInForceError: within the limit it did not follow.
    """
    with _asking():
        _send(admin, found, limit_s)
    if found.missing or found.surplus:
        _await(admin, found, limit_s)


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    """A broker without authoriser says so when it is asked to change rules; to who reads them it may say `none`."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() == KafkaError.SECURITY_DISABLED:
            msg = "the broker has no authoriser: whoever reaches it may write everything"
            raise NoAuthoriser(msg) from error
        raise


def _send(admin: AdminClient, found: Difference, limit_s: float) -> None:
    if found.missing:
        for future in admin.create_acls([_binding(rule) for rule in found.missing], request_timeout=limit_s).values():
            future.result(limit_s)
    if found.surplus:
        filters = [_filter(rule) for rule in found.surplus]
        for future in admin.delete_acls(filters, request_timeout=limit_s).values():
            future.result(limit_s)


def _await(admin: AdminClient, found: Difference, limit_s: float) -> None:
    def waiting() -> int:
        actual = in_force(admin, limit_s)
        return len(set(found.missing) - actual) + len(set(found.surplus) & actual)

    looking = Retrying(retry=retry_if_result(bool), wait=wait_fixed(LOOK_EVERY_S), stop=stop_after_delay(limit_s))
    try:
        looking(waiting)
    except RetryError as error:
        msg = f"{error.last_attempt.result()} rules of access are acknowledged but not in force after {limit_s:g} s"
        raise RulesNotInForceError(msg) from error


def _rule(binding: AclBinding) -> Rule:
    return Rule(
        principal=binding.principal.removeprefix("User:"),
        resource=cast("Resource", ResourceType(binding.restype).name),
        name=binding.name,
        operation=AclOperation(binding.operation).name,
        prefix=binding.resource_pattern_type == ResourcePatternType.PREFIXED,
    )


def _arguments(rule: Rule) -> tuple[object, ...]:
    pattern = ResourcePatternType.PREFIXED if rule.prefix else ResourcePatternType.LITERAL
    return (
        ResourceType[rule.resource],
        rule.name,
        pattern,
        f"User:{rule.principal}",
        "*",
        AclOperation[rule.operation],
        AclPermissionType.ALLOW,
    )


def _binding(rule: Rule) -> AclBinding:
    return AclBinding(*_arguments(rule))  # type: ignore[arg-type]


def _filter(rule: Rule) -> AclBindingFilter:
    return AclBindingFilter(*_arguments(rule))  # type: ignore[arg-type]
