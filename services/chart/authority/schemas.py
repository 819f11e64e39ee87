"""Bodies of requests and answers. Rates in bit/s, moments in microseconds since the epoch, durations in seconds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, IPvAnyAddress, IPvAnyNetwork

from chart.common import names

Service = Literal["available", "guaranteed", "maximum", "variable"]
ElementName = Annotated[
    str, Field(pattern=rf"^{names.NODE}(@[a-z0-9.-]{{1,100}})?$", max_length=names.NODE_LENGTH_MAX + 101)
]


class Body(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class CertificateBody(Body):
    """A signing request; the token stands in for a certificate at enrolment."""

    csr: str = Field(max_length=16_384, description="PKCS #10, PEM.")
    token: str | None = Field(
        default=None, min_length=16, max_length=8192, description="A one-time token, or a pod's service account token."
    )
    identity: str | None = Field(
        default=None,
        max_length=names.NODE_LENGTH_MAX + 5,
        description="Who the caller says to be: a token of another is refused, not used.",
    )


class Certificate(BaseModel):
    """An issued certificate."""

    certificate: str
    authority: str
    identity: str
    serial: str
    not_after_us: int
    renew_at_us: int
    element_id: int | None


class EnrolmentBody(Body):
    """Make a one-time token."""

    identity: str = Field(max_length=names.NODE_LENGTH_MAX + 5, examples=["node/alpha"])
    life_s: int = Field(default=3600, ge=1, le=7 * 86_400)
    repetition_key: str | None = Field(
        default=None, min_length=1, max_length=128, description="The same call again: the same enrolment."
    )


class Enrolment(BaseModel):
    """The token is shown once; only its hash is kept."""

    id: str
    token: str
    identity: str
    expires_at_us: int


class ListedEnrolment(BaseModel):
    """An enrolment without its token, and the certificate that it led to."""

    id: str
    identity: str
    state: Literal["open", "used", "expired", "withdrawn"]
    created_by: str
    created_at_us: int
    expires_at_us: int
    used_at_us: int | None
    withdrawn_at_us: int | None
    serial: str | None
    not_after_us: int | None
    revoked_at_us: int | None = Field(description="Of the certificate; 0: it is not revoked.")


class ListedIdentity(BaseModel):
    """Who was given a certificate, with the newest one."""

    identity: str
    element_id: int | None
    active: bool
    revoked_at_us: int = Field(description="Of the identity; 0: it never was.")
    serial: str | None
    issued_at_us: int | None
    not_after_us: int | None
    certificate_revoked_at_us: int | None
    revoked_because: str | None


class RevocationBody(Body):
    """Revoke every certificate of an identity, or one by its serial number."""

    identity: str | None = Field(default=None, max_length=140)
    serial: str | None = Field(default=None, pattern=r"^[0-9a-f]{1,40}$")
    reason: str = Field(default="", max_length=200)


class Revocation(BaseModel):
    """A certificate that was revoked; ``active``: whether its identity is enrolled, with another certificate."""

    identity: str
    serial: str
    revoked_at_us: int
    reason: str
    not_after_us: int
    active: bool


class KeyEpoch(BaseModel):
    """One epoch of a key. ``epoch`` is the octet in signals; sign with the newest whose ``sign_from_us`` has come."""

    epoch: int
    generation: int
    key: str = Field(description="32 octets, base64.")
    sign_from_us: int
    expires_at_us: int


class KeySet(BaseModel):
    """Current and previous key of an ordered pair. Ask again at ``poll_at_us`` at the latest."""

    sender: str
    receiver: str
    sender_id: int | None
    receiver_id: int | None
    epochs: list[KeyEpoch]
    renew_at_us: int
    now_us: int


class StreamKeySet(BaseModel):
    """Keys under which a node authenticates the records it writes."""

    node: str
    epochs: list[KeyEpoch]
    renew_at_us: int
    now_us: int


class NextHop(BaseModel):
    """``next_element`` null: the entry was removed. ``shim_address``: where the next element takes the UDP shim."""

    prefix: str
    next_element: str | None
    source: str = ""
    shim_address: str | None = None


class NextHopEntry(NextHop):
    """A next hop of any element, for operators."""

    element: str
    expires_at_us: int | None


class ElementId(BaseModel):
    """``id`` null: the element is enrolled no more; forget its keys."""

    element: str
    id: int | None


class NextHops(BaseModel):
    """What changed since a revision; ``full``: everything, replace what you have."""

    revision: int
    full: bool
    next_hops: list[NextHop]
    elements: list[ElementId]
    # Elements whose tables name the caller as the next one: it needs their keys to verify what they send. Always whole.
    senders: list[str]


class NextHopBody(Body):
    """State the next element of an element towards a prefix; null removes it."""

    element: ElementName
    prefix: IPvAnyNetwork
    next_element: ElementName | None
    shim_address: IPvAnyAddress | None = None


class ReportBody(Body):
    """A signal that failed here: the whole packet from its IP header, or the datagram of the shim."""

    carrier: Literal["ipv4", "ipv6", "shim"]
    packet: str = Field(max_length=1024, description="Base64.")


class Report(BaseModel):
    """The outcome of a report."""

    changed: bool
    sender: str | None
    prefix: str | None


class AuthorisationBody(Body):
    """Ask for an authorisation; what is not stated becomes as much as the policy gives."""

    client_address: IPvAnyAddress | None = None
    service: Service | None = None
    max_guaranteed_bps: int | None = Field(default=None, ge=0, le=10**13)
    max_priority: int | None = Field(default=None, ge=0, le=255)
    delay_class: int | None = Field(default=None, ge=0, le=7)
    duration_s: int | None = Field(default=None, ge=1)


class Authorisation(BaseModel):
    """A time-bound grant for an address; of a removed one only id and ``removed`` count."""

    id: str
    owner: str
    client_address: str
    service: Service
    max_guaranteed_bps: int
    max_priority: int
    delay_class: int
    charging: int
    expires_at_us: int
    removed: bool = False


class Unauthorised(BaseModel):
    """What to do with who asks without an authorisation."""

    action: Literal["drop", "free"]
    available_bps: int


class Authorisations(BaseModel):
    """What changed since a revision; ``full``: everything, replace what you have."""

    revision: int
    full: bool
    authorisations: list[Authorisation]
    unauthorised: Unauthorised


class PolicyBody(Body):
    """What people of some kind may be given."""

    subjects: list[Annotated[str, Field(pattern=r"^(\*|role/[a-z]+|user/.{1,128})$")]] = Field(
        min_length=1, max_length=1000
    )
    services: list[Service] = Field(min_length=1, max_length=4)
    max_guaranteed_bps: int = Field(ge=0, le=10**13)
    max_priority: int = Field(ge=0, le=255)
    max_delay_class: int = Field(default=3, ge=0, le=7)
    charging: int = Field(default=0, ge=0, le=15)
    max_duration_s: int = Field(ge=1, le=366 * 86_400)
    any_address: bool = False


class Policy(PolicyBody):
    """A policy with its name."""

    id: str


class PeerBody(Body):
    """A neighbouring domain, entered by hand on both sides. ``pairs``: ordered pairs of border elements, ours by name,
    theirs as ``name@domain``.
    """

    url: str = Field(pattern=r"^https://[^\s]{1,200}$")
    ca_pem: str = Field(max_length=16_384)
    pairs: list[tuple[ElementName, ElementName]] = Field(max_length=1000)


class Peer(BaseModel):
    """A neighbouring domain."""

    domain: str
    url: str
    pairs: list[tuple[str, str]]
    ca_sha256: str


class Receipt(BaseModel):
    """A signed statement: JWS (RFC 7515), EdDSA, verified with the keys of /v1/receipt-keys without asking anybody."""

    receipt: str
