"""Enrolments, identities, revocations, neighbouring domains, next hops, and policies of authorisations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, IPvAnyAddress, Strict

from chart.common import names
from chart.gateway.schemas.authorisations import Service
from chart.gateway.schemas.common import Input, Output, Timestamp

IDENTITY_PATTERN = rf"^(node/{names.NODE}|service/{names.LABEL})$"
# A node of this domain, or one of a neighbouring domain: name@domain.
ELEMENT_PATTERN = rf"^{names.NODE}(@[a-z0-9.-]{{1,100}})?$"
DOMAIN_PATTERN = r"^[a-z0-9]([a-z0-9.-]{0,98}[a-z0-9])?$"

IdentityName = Annotated[
    str, Field(pattern=IDENTITY_PATTERN, max_length=names.NODE_LENGTH_MAX + 5, examples=["node/alpha"])
]
ElementName = Annotated[str, Field(pattern=ELEMENT_PATTERN, max_length=names.NODE_LENGTH_MAX + 101, examples=["bravo"])]


class EnrolmentBody(Input):
    """Whom a one-time token is for."""

    identity: IdentityName
    life_s: int = Field(default=3600, ge=1, le=7 * 86_400, description="How long the token may wait to be used.")


class NewEnrolment(Output):
    """A one-time token, shown this once, and what its holder needs besides to enrol."""

    id: str
    identity: str
    token: str = Field(description="Only its hash is kept. It enrols once.")
    expires_at: Timestamp
    authority_url: str = Field(description="Addresses of the authority's replicas, separated by commas.")
    authority_ca_pem: str = Field(description="Certificate that the authority's own is checked with.")


class Enrolment(Output):
    """An enrolment without its token, and the certificate that it led to."""

    id: str
    identity: str
    state: Literal["open", "used", "expired", "withdrawn"]
    created_by: str
    created_at: Timestamp | None
    expires_at: Timestamp
    used_at: Timestamp | None
    withdrawn_at: Timestamp | None
    certificate_serial: str | None = Field(description="Null: the token was not used.")
    certificate_expires_at: Timestamp | None
    certificate_revoked_at: Timestamp | None


class Enrolments(Output):
    """The newest first."""

    items: list[Enrolment]


class Identity(Output):
    """Who was given a certificate, with the newest one."""

    identity: str
    element_id: int | None = Field(description="Of a node: the sender id of its signals.")
    state: Literal["enrolled", "expired", "revoked"]
    certificate_serial: str | None
    certificate_issued_at: Timestamp | None
    certificate_expires_at: Timestamp | None
    revoked_at: Timestamp | None
    reason: str = Field(description="Why it was revoked.")


class Identities(Output):
    """By name."""

    items: list[Identity]


class RevocationBody(Input):
    """Every certificate of an identity, or one by its serial number."""

    identity: str | None = Field(default=None, max_length=names.NODE_LENGTH_MAX + 5, examples=["node/alpha"])
    serial: str | None = Field(default=None, pattern=r"^[0-9a-f]{1,40}$", max_length=40)
    reason: str = Field(default="", max_length=200)


class Revocation(Output):
    """A certificate that was revoked."""

    identity: str
    serial: str
    revoked_at: Timestamp
    reason: str
    certificate_expires_at: Timestamp
    enrolled_again: bool = Field(description="Whether the identity is enrolled, with another certificate.")


class Revocations(Output):
    """The newest first."""

    items: list[Revocation]


class PeerBody(Input):
    """A neighbouring domain. It counts once its operator enters ours too."""

    url: str = Field(
        pattern=r"^https://[^\s]{1,200}$", max_length=208, examples=["https://authority.example.net:18443"]
    )
    ca_pem: str = Field(max_length=16_384, description="Certificate of the neighbour's authority, PEM.")
    pairs: list[Annotated[tuple[ElementName, ElementName], Strict(False)]] = Field(
        max_length=1000,
        description="Sender and receiver across the border: ours by name, theirs as name@domain.",
        examples=[[["edge", "border@example.net"]]],
    )


class Peer(Output):
    """A neighbouring domain."""

    domain: str
    url: str
    ca_sha256: str = Field(description="Fingerprint of its authority's certificate.")
    pairs: list[tuple[str, str]]


class Peers(Output):
    """By domain."""

    items: list[Peer]


class NextHopBody(Input):
    """The next element towards a prefix."""

    next_element: ElementName
    shim_address: IPvAnyAddress | None = Field(
        default=None, description="Where the next element takes the UDP shim; null: it cannot be reached that way."
    )


class NextHop(Output):
    """The next element of an element towards a prefix."""

    element: str
    prefix: str = Field(examples=["10.9.0.0/16"])
    next_element: str
    source: Literal["operator", "report", "topology"] = Field(
        description="Who said so. An operator's word counts more than what a report proved, and that more than what"
        " follows from the topology."
    )
    shim_address: str | None
    expires_at: Timestamp | None = Field(default=None, description="Of what a report proved.")


class NextHops(Output):
    """By element and prefix."""

    items: list[NextHop]


class AuthorisationPolicyBody(Input):
    """What people of some kind may be given."""

    subjects: list[Annotated[str, Field(pattern=r"^(\*|role/[a-z]+|user/.{1,128})$", max_length=133)]] = Field(
        min_length=1,
        max_length=1000,
        description="user/NAME, role/ROLE or * for everybody; the most particular policy holds.",
        examples=[["role/application"]],
    )
    services: list[Service] = Field(min_length=1, max_length=4)
    max_guaranteed_bps: int = Field(ge=0, le=10**13)
    max_priority: int = Field(ge=0, le=255)
    max_delay_class: int = Field(default=3, ge=0, le=7)
    charging: int = Field(default=0, ge=0, le=15)
    max_duration_s: int = Field(ge=1, le=366 * 86_400)
    any_address: bool = Field(default=False, description="Also for other addresses than the asker's own.")


class AuthorisationPolicy(Output):
    """A policy of authorisations."""

    id: str
    subjects: list[str]
    services: list[Service]
    max_guaranteed_bps: int
    max_priority: int
    max_delay_class: int
    charging: int
    max_duration_s: int
    any_address: bool


class AuthorisationPolicies(Output):
    """By id."""

    items: list[AuthorisationPolicy]
