"""Authorisations and signed receipts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, IPvAnyAddress

from chart.gateway.schemas.common import Input, Output

Service = Literal["available", "guaranteed", "maximum", "variable"]


class AuthorisationBody(Input):
    """Values that are left out are the policy's maximum."""

    client_address: IPvAnyAddress | None = Field(default=None, description="Default: the caller's own.")
    service: Service | None = None
    max_guaranteed_bps: Annotated[int, Field(ge=0, le=10**13)] | None = None
    max_priority: Annotated[int, Field(ge=0, le=255)] | None = None
    delay_class: Annotated[int, Field(ge=0, le=7)] | None = None
    duration_s: Annotated[int, Field(ge=1, le=366 * 86_400)] | None = None


class Authorisation(Output):
    """A time-bound grant for an address."""

    id: str
    owner: str
    client_address: str
    service: Service
    max_guaranteed_bps: int
    max_priority: int
    delay_class: int
    charging: int
    expires_at_us: int = Field(description="Microseconds since the epoch.")


class AuthorisationList(Output):
    """Valid authorisations."""

    items: list[Authorisation]


class SignedReceipt(Output):
    """A JWS (RFC 7515) in compact form, EdDSA."""

    receipt: str


class ReceiptKey(Output):
    """An Ed25519 public key (RFC 8037)."""

    kty: str
    crv: str
    x: str
    kid: str
    use: str
    alg: str


class ReceiptKeys(Output):
    """Public keys of receipts, past ones too."""

    keys: list[ReceiptKey]
