"""Whom the authority believes: enrolments, identities, revocations, neighbouring domains, next hops, and what people
may be authorised for. For operators.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field

from chart_client.models import Model, ServiceType
from chart_client.resource import Resource, path_of


class NewEnrolment(Model):
    """A one-time token, shown this once, and what its holder needs besides to enrol."""

    id: str
    identity: str
    token: str
    expires_at: datetime
    authority_url: str
    authority_ca_pem: str


class Enrolment(Model):
    """An enrolment without its token, and the certificate that it led to."""

    id: str
    identity: str
    state: Literal["open", "used", "expired", "withdrawn"]
    created_by: str
    created_at: datetime | None = None
    expires_at: datetime
    used_at: datetime | None = None
    withdrawn_at: datetime | None = None
    certificate_serial: str | None = None
    certificate_expires_at: datetime | None = None
    certificate_revoked_at: datetime | None = None


class Identity(Model):
    """Who was given a certificate, with the newest one. ``element_id``: sender id of a node's signals."""

    identity: str
    element_id: int | None = None
    state: Literal["enrolled", "expired", "revoked"]
    certificate_serial: str | None = None
    certificate_issued_at: datetime | None = None
    certificate_expires_at: datetime | None = None
    revoked_at: datetime | None = None
    reason: str = ""


class Revocation(Model):
    """A certificate that was revoked."""

    identity: str
    serial: str
    revoked_at: datetime
    reason: str = ""
    certificate_expires_at: datetime
    enrolled_again: bool = False


class Peer(Model):
    """A neighbouring domain. ``pairs``: sender and receiver, theirs as ``name@domain``."""

    domain: str
    url: str
    ca_sha256: str
    pairs: list[tuple[str, str]] = Field(default_factory=list)


class NextHop(Model):
    """The next element of an element towards a prefix, and who said so."""

    element: str
    prefix: str
    next_element: str
    source: str
    shim_address: str | None = None
    expires_at: datetime | None = None


class AuthorisationPolicy(Model):
    """What people of some kind may be given. ``subjects``: ``user/NAME``, ``role/ROLE`` or ``*``."""

    id: str
    subjects: list[str]
    services: list[ServiceType]
    max_guaranteed_bps: int
    max_priority: int
    max_delay_class: int
    charging: int
    max_duration_s: int
    any_address: bool


class Enrolments(Resource):
    """One-time tokens of nodes and services."""

    def list(self, *, limit: int = 1000) -> Iterator[Enrolment]:
        """Open ones and those that are over, the newest first."""
        return self._all(Enrolment, path_of("enrolments"), limit=limit)

    def create(self, identity: str, *, life_s: int = 3600) -> NewEnrolment:
        """A one-time token for ``node/NAME`` or ``service/NAME``: shown this once."""
        return self._one(NewEnrolment, "POST", path_of("enrolments"), {"identity": identity, "life_s": life_s})

    def withdraw(self, enrolment_id: str) -> None:
        """Its token enrols nobody any more."""
        self._transport.request("DELETE", path_of("enrolments", enrolment_id))


class Identities(Resource):
    """Who has a certificate."""

    def list(self) -> Iterator[Identity]:
        """Everybody who was ever given one, by name."""
        return self._all(Identity, path_of("identities"))

    def revoke(self, identity: str | None = None, *, serial: str | None = None, reason: str = "") -> None:
        """Revoke every certificate of an identity, or one by its serial number."""
        stated = {"identity": identity, "serial": serial, "reason": reason}
        body = {name: value for name, value in stated.items() if value is not None}
        self._transport.request("POST", path_of("revocations"), body=body)

    def revocations(self, *, limit: int = 1000) -> Iterator[Revocation]:
        """Certificates that were revoked, the newest revocation first."""
        return self._all(Revocation, path_of("revocations"), limit=limit)


class Peers(Resource):
    """Neighbouring domains."""

    def list(self) -> Iterator[Peer]:
        """By domain."""
        return self._all(Peer, path_of("peers"))

    def put(self, domain: str, *, url: str, ca_pem: str, pairs: Sequence[tuple[str, str]]) -> Peer:
        """State a neighbour; it counts when its operator enters us too."""
        body = {"url": url, "ca_pem": ca_pem, "pairs": [builtins.list(pair) for pair in pairs]}
        return self._one(Peer, "PUT", path_of("peers", domain), body)

    def delete(self, domain: str) -> None:
        """Its certificates are believed no more."""
        self._transport.request("DELETE", path_of("peers", domain))


class NextHops(Resource):
    """Next elements towards prefixes; a prefix as in ``10.9.0.0/16``."""

    def list(self, *, element: str | None = None, limit: int = 1000) -> Iterator[NextHop]:
        """Of all elements or of one: what operators stated, reports proved, and the topology says."""
        return self._all(NextHop, path_of("next-hops"), element=element, limit=limit)

    def get(self, element: str, destination: str) -> NextHop:
        """The one towards an address, as the element itself is told."""
        return self._one(NextHop, "GET", path_of("next-hops", element, destination))

    def put(self, element: str, prefix: str, *, next_element: str, shim_address: str | None = None) -> NextHop:
        """State one; it stands until an operator takes it back."""
        body = {"next_element": next_element, "shim_address": shim_address}
        return self._one(NextHop, "PUT", path_of("next-hops", element, *_parts(prefix)), body)

    def delete(self, element: str, prefix: str) -> None:
        """Delete an entry; the one of the topology holds again within a minute."""
        self._transport.request("DELETE", path_of("next-hops", element, *_parts(prefix)))


def _parts(prefix: str) -> tuple[str, str]:
    """Network and length; a lone address is a host."""
    network, slash, bits = prefix.partition("/")
    return network, bits if slash else "128" if ":" in network else "32"


class AuthorisationPolicies(Resource):
    """Who may be authorised for what."""

    def list(self) -> Iterator[AuthorisationPolicy]:
        """By id."""
        return self._all(AuthorisationPolicy, path_of("authorisation-policies"))

    def get(self, policy_id: str) -> AuthorisationPolicy:
        """One policy."""
        return self._one(AuthorisationPolicy, "GET", path_of("authorisation-policies", policy_id))

    def put(
        self,
        policy_id: str,
        *,
        subjects: Sequence[str],
        services: Sequence[ServiceType],
        max_guaranteed_bps: int,
        max_priority: int,
        max_duration_s: int,
        max_delay_class: int = 3,
        charging: int = 0,
        any_address: bool = False,
    ) -> AuthorisationPolicy:
        """Set a policy; it applies to authorisations made from now on."""
        body = {
            "subjects": builtins.list(subjects),
            "services": builtins.list(services),
            "max_guaranteed_bps": max_guaranteed_bps,
            "max_priority": max_priority,
            "max_delay_class": max_delay_class,
            "charging": charging,
            "max_duration_s": max_duration_s,
            "any_address": any_address,
        }
        return self._one(AuthorisationPolicy, "PUT", path_of("authorisation-policies", policy_id), body)

    def delete(self, policy_id: str) -> None:
        """Remove a policy; authorisations that it gave stand until their end."""
        self._transport.request("DELETE", path_of("authorisation-policies", policy_id))
