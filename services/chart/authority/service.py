"""What the authority decides: pure functions over plain data (Brassil et al., The CHART System, section 3).

Keys: an epoch lives for ``life``; at half of it the next one is made, announced ``lead`` ahead of its first use, so
that both ends hold it by then and rotation refuses no valid signal. The one before is accepted until its own life ends.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from chart.common.problems import ProblemError

# The epoch of a signal has eight bits; a number comes again only when nobody accepts its last use any more.
WIRE_EPOCHS = 256
# Both ends of a pair may start anew at about the same time, as upgrades have it; an end that restarts over and over
# gets no more than so many epochs in this time.
DEMANDS_AT_ONCE = 4
DEMANDS_WITHIN_US = 4_000_000

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

SERVICES = ("available", "guaranteed", "maximum", "variable")


@dataclass(frozen=True, slots=True)
class Epoch:
    """One key of an ordered pair without the key; moments in microseconds since the epoch."""

    generation: int
    created_at_us: int
    sign_from_us: int
    renew_at_us: int
    expires_at_us: int

    @property
    def wire(self) -> int:
        """The octet that signals carry."""
        return self.generation % WIRE_EPOCHS


@dataclass(frozen=True)
class KeyTimes:
    """How long keys live and how far ahead they are announced, microseconds."""

    life_us: int
    lead_us: int


def live(epochs: Iterable[Epoch], now_us: int) -> list[Epoch]:
    """Epochs that are still accepted, oldest first."""
    return sorted((one for one in epochs if one.expires_at_us > now_us), key=lambda one: one.generation)


def next_epoch(epochs: Sequence[Epoch], now_us: int, times: KeyTimes, *, demanded: bool = False) -> Epoch | None:
    """The epoch that must be made now; None when what there is will do.

    ``demanded``: an end has started anew and lost its sequence or its window; it must not go on with an old epoch.

    Raises:
        ProblemError: 429, demanded faster than epochs may be made.
    """
    newest = max(epochs, key=lambda one: one.generation, default=None)
    usable = newest is not None and newest.expires_at_us > now_us
    if newest is not None and usable:
        if not demanded and now_us < newest.renew_at_us:
            return None
        if demanded:
            _check_demand(epochs, newest, now_us)
    # What nobody can sign with meanwhile need not be announced ahead.
    sign_from_us = now_us + (times.lead_us if usable and not demanded else 0)
    return Epoch(
        generation=newest.generation + 1 if newest is not None else 1,
        created_at_us=now_us,
        sign_from_us=sign_from_us,
        renew_at_us=now_us + times.life_us // 2,
        expires_at_us=now_us + times.life_us,
    )


def _check_demand(epochs: Sequence[Epoch], newest: Epoch, now_us: int) -> None:
    # A restore leaves numbers out between the epochs of before it and those of after it: the octet alone may meet.
    ahead = {(newest.generation + 1 - one.generation) % WIRE_EPOCHS for one in live(epochs, now_us)}
    lately = sum(now_us - one.created_at_us < DEMANDS_WITHIN_US for one in epochs)
    if lately >= DEMANDS_AT_ONCE or ahead & {0, WIRE_EPOCHS - 1}:
        raise ProblemError(
            429,
            "Too many epochs",
            f"Of this pair {DEMANDS_AT_ONCE} epochs are created in {DEMANDS_WITHIN_US // 1_000_000} s at most:"
            " epoch numbers must not repeat while they are accepted.",
            suggestions=["Ask for the keys, and for a new epoch after a second."],
            kind="too-many-epochs",
        )


@dataclass(frozen=True)
class Policy:
    """What people of some kind may be given. ``subjects``: ``user/<name>``, ``role/<role>`` or ``*``."""

    id: str
    subjects: tuple[str, ...]
    services: tuple[str, ...] = SERVICES
    max_guaranteed_bps: int = 100_000_000
    max_priority: int = 127
    max_delay_class: int = 3
    charging: int = 0
    max_duration_s: int = 8 * 3600
    # Whether an authorisation may name another address than the asker's own.
    any_address: bool = False


DEFAULT_POLICY = Policy(id="default", subjects=("*",))


def policy_for(subject: str, roles: Iterable[str], policies: Iterable[Policy]) -> Policy:
    """The most particular policy: one that names the subject, one that names a role (the first by id), or ``*``."""
    ordered = sorted(policies, key=lambda one: one.id)
    for wanted in ({subject}, {f"role/{role}" for role in roles}, {"*"}):
        for policy in ordered:
            if not wanted.isdisjoint(policy.subjects):
                return policy
    return DEFAULT_POLICY


@dataclass(frozen=True)
class Asked:
    """What someone asks an authorisation for; None: as much as the policy gives."""

    service: str | None = None
    max_guaranteed_bps: int | None = None
    max_priority: int | None = None
    delay_class: int | None = None
    duration_s: int | None = None


@dataclass(frozen=True)
class Granted:
    """The substance of an authorisation."""

    service: str
    max_guaranteed_bps: int
    max_priority: int
    delay_class: int
    charging: int
    duration_s: int

    def body(self) -> dict[str, str | int]:
        """As it is stored and sent."""
        return {
            "service": self.service,
            "max_guaranteed_bps": self.max_guaranteed_bps,
            "max_priority": self.max_priority,
            "delay_class": self.delay_class,
            "charging": self.charging,
        }


def authorise(asked: Asked, policy: Policy, longest_s: int) -> Granted:
    """What is granted: what was asked, when the policy allows it.

    Raises:
        ProblemError: 403 with the field and what would be granted.
    """
    if asked.service is not None and asked.service not in policy.services:
        raise ProblemError(
            403, "Not authorised", f"The policy {policy.id} does not allow the service {asked.service}.",
            field="service", suggestions=[f"Ask for {' or '.join(policy.services)}."], kind="above-policy",
        )  # fmt: skip

    def within(name: str, wanted: int | None, ceiling: int) -> int:
        if wanted is not None and wanted > ceiling:
            raise ProblemError(
                403, "Not authorised", f"The policy {policy.id} allows at most {ceiling} for {name}.",
                field=name, ceiling=ceiling, kind="above-policy",
            )  # fmt: skip
        return ceiling if wanted is None else wanted

    best = next((name for name in ("guaranteed", "variable", "maximum") if name in policy.services), "available")
    return Granted(
        service=asked.service or best,
        max_guaranteed_bps=within("max_guaranteed_bps", asked.max_guaranteed_bps, policy.max_guaranteed_bps),
        max_priority=within("max_priority", asked.max_priority, policy.max_priority),
        delay_class=within("delay_class", asked.delay_class, policy.max_delay_class),
        charging=policy.charging,
        duration_s=within("duration_s", asked.duration_s, min(policy.max_duration_s, longest_s)),
    )


def check_address(stated: str | None, own: str | None, policy: Policy, *, operator: bool) -> str:
    """The address that an authorisation is for; one's own unless the policy or the role says otherwise.

    Raises:
        ProblemError: 403 or 422 with the reason.
    """
    if stated is None or stated == own:
        if own is None:
            raise ProblemError(422, "Invalid value", "Set client_address: the address of the caller is unknown.",
                               field="client_address", kind="invalid-value")  # fmt: skip
        return own
    if not (operator or policy.any_address):
        raise ProblemError(
            403, "Not authorised", f"The policy {policy.id} authorises your own address only.",
            field="client_address", suggestions=[f"Use {own}." if own else "Ask from the machine itself."],
            kind="above-policy",
        )  # fmt: skip
    return stated


@dataclass
class Topology:
    """What next hops are worked out from: prefixes by element, and who is joined to whom (directed); and the
    addresses of elements themselves, where they take the UDP shim.
    """

    prefixes: dict[str, tuple[Network, ...]] = field(default_factory=dict)
    neighbours: dict[str, set[str]] = field(default_factory=dict)
    addresses: dict[str, tuple[Address, ...]] = field(default_factory=dict)

    def shim_address(self, element: str, version: int) -> Address | None:
        """The first address of an element in a version of IP; None: the shim cannot reach it."""
        return next((one for one in self.addresses.get(element, ()) if one.version == version), None)


def next_hops(topology: Topology) -> dict[tuple[str, Network], str]:
    """For each element and prefix of another: the first element on a shortest path, by name among equals."""
    table: dict[tuple[str, Network], str] = {}
    for element in topology.prefixes:
        first = _first_hops(element, topology.neighbours)
        for other, prefixes in topology.prefixes.items():
            if other in first:
                table.update({(element, prefix): first[other] for prefix in prefixes})
    return table


def _first_hops(element: str, neighbours: Mapping[str, set[str]]) -> dict[str, str]:
    first: dict[str, str] = {}
    wave = [(other, other) for other in sorted(neighbours.get(element, ()))]
    while wave:
        following: list[tuple[str, str]] = []
        for node, via in wave:
            if node == element or node in first:
                continue
            first[node] = via
            following += [(other, via) for other in sorted(neighbours.get(node, ()))]
        wave = following
    return first
