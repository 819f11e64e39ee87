"""Where keys come from: one interface, two stores (embedded for one machine, HashiCorp Vault).

The store makes keys, wraps them for the database, issues certificates and signs receipts. The authority never writes a
plain key anywhere. Every wrapped key is bound to its purpose (``context``): a row copied to another pair does not open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from cryptography import x509

KEY_OCTETS = 32


class KeyStoreError(Exception):
    """The store refuses for good: a wrapped key that is not its own, a request that it will never grant."""


class KeyStoreUnavailable(KeyStoreError):  # noqa: N818 - the name of a state that passes
    """The store cannot work now (sealed, unreachable); the words say why. Keys already held go on until they end."""


@dataclass(frozen=True)
class GeneratedKey:
    """A new key, plain and wrapped."""

    plain: bytes
    wrapped: str


@dataclass(frozen=True)
class IssuedCertificate:
    """A certificate and the authority that issued it, PEM."""

    pem: str
    authority_pem: str


@dataclass(frozen=True)
class Signature:
    """An Ed25519 signature and the id of its key in `KeyStore.receipt_keys`."""

    key_id: str
    value: bytes


class KeyStore(Protocol):
    """What the authority needs of a store; every call may raise `KeyStoreUnavailable`."""

    name: str

    async def open(self) -> None:
        """Get ready; makes what is missing. Raises `KeyStoreUnavailable` when that cannot be done now."""
        ...

    async def close(self) -> None:
        """Close connections; forget what is in memory."""
        ...

    async def check(self) -> None:
        """Return when the store works now."""
        ...

    async def generate(self, context: str) -> GeneratedKey:
        """A new 256-bit key for this purpose."""
        ...

    async def unwrap(self, context: str, wrapped: str) -> bytes:
        """The key again. Raises `KeyStoreError` when it was wrapped for another purpose or elsewhere."""
        ...

    async def issue(
        self, request: x509.CertificateSigningRequest, uri: str, *, life_s: float, names: tuple[str, ...] = ()
    ) -> IssuedCertificate:
        """A certificate for the request's key that carries ``uri`` and, for servers, DNS names and addresses."""
        ...

    async def authority(self) -> x509.Certificate:
        """The certificate that issued all others."""
        ...

    async def sign_receipt(self, message: bytes) -> Signature:
        """An Ed25519 signature under the receipts' key."""
        ...

    async def receipt_keys(self) -> dict[str, Any]:
        """The public keys of receipts, past ones too, as a JWKS document (RFC 7517, RFC 8037)."""
        ...
