"""Who a certificate says that its holder is: ``spiffe://<domain>/node|user|service/<name>``; pure.

A certificate counts when the authority of the domain that it names issued it: the TLS handshake believes every
authority that is trusted, this domain's and its neighbours', so the application compares issuer and name once more.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from chart.common.names import common_name, is_label, is_node

Kind = Literal["node", "user", "service"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_NAME: Mapping[str, Callable[[str], object]] = {
    "node": is_node,
    "service": is_label,
    "user": re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._@-]{0,126}[A-Za-z0-9])?").fullmatch,
}
_DOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,98}[a-z0-9])?")


class IdentityError(ValueError):
    """Not an identity, or a certificate that does not prove one; the words may be shown to its holder."""


@dataclass(frozen=True)
class Identity:
    """A node, a person or a service of a domain."""

    domain: str
    kind: Kind
    name: str

    @property
    def uri(self) -> str:
        """The SPIFFE id."""
        return f"spiffe://{self.domain}/{self.kind}/{self.name}"

    @property
    def short(self) -> str:
        """Without the domain: ``node/alpha``."""
        return f"{self.kind}/{self.name}"

    @property
    def server_name(self) -> str:
        """The DNS name of who serves under this identity: ``alpha.node.<domain>``. Nobody looks it up; who calls a node
        expects it in the node's certificate, whatever address was dialled.
        """
        return f"{self.name}.{self.kind}.{self.domain}"

    def __str__(self) -> str:
        return self.uri


def of_uri(uri: str) -> Identity:
    """The identity of a SPIFFE id.

    Raises:
        IdentityError: it is none.
    """
    scheme, _, rest = uri.partition("://")
    parts = rest.split("/")
    if scheme != "spiffe" or len(parts) != 3 or not _DOMAIN.fullmatch(parts[0]):
        msg = f"{uri!r} is not spiffe://<domain>/node|user|service/<name>"
        raise IdentityError(msg)
    return of_short(f"{parts[1]}/{parts[2]}", parts[0])


def of_short(text: str, domain: str) -> Identity:
    """The identity ``node/alpha`` of a domain.

    Raises:
        IdentityError: it is none.
    """
    kind, _, name = text.partition("/")
    for known in KINDS:
        if kind == known:
            if not _NAME[kind](name):
                msg = f"{name!r} is not a name of a {kind}: letters, digits, - (nodes: also dots, people: also . _ @)"
                raise IdentityError(msg)
            return Identity(domain, known, name)
    msg = f"{text!r} is not node/<name>, user/<name> or service/<name>"
    raise IdentityError(msg)


def subject(uri: str) -> x509.Name:
    """The subject of a certificate: `UID=alpha,CN=alpha,OU=node`.

    For programs that know subjects and not URIs, as Kafka does. Kind and whole name both stand in it, so that
    node `gateway` and service `gateway` are two; the common name alone may be shortened.
    """
    identity = of_uri(uri)
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, identity.kind),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name(identity.name)),
            x509.NameAttribute(NameOID.USER_ID, identity.name),
        ]
    )


@dataclass(frozen=True)
class Proof:
    """A certificate that was checked: who, its serial number (hexadecimal, lower case), and from when until when it and
    its issuer's are good: nobody has compared that with a clock yet.
    """

    identity: Identity
    serial: str
    not_after_us: int
    not_before_us: int = 0


def moment(at_us: int) -> str:
    """Microseconds since the epoch as words of a problem have them: RFC 3339, UTC, whole seconds."""
    return datetime.datetime.fromtimestamp(at_us // 1_000_000, datetime.UTC).isoformat().replace("+00:00", "Z")


def microseconds(moment: datetime.datetime) -> int:
    """Microseconds since the epoch of an aware time."""
    return int(moment.timestamp() * 1e6)


def serial_of(certificate: x509.Certificate) -> str:
    """Serial number as tables and logs write it."""
    return f"{certificate.serial_number:x}"


def prove(der: bytes, authorities: Mapping[str, x509.Certificate]) -> Proof:
    """Check a certificate that came through a handshake against the authorities by domain.

    Raises:
        IdentityError: it names nobody or several, or another domain's authority issued it.
    """
    try:
        certificate = x509.load_der_x509_certificate(der)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        msg = "the certificate names no identity (subject alternative name with a spiffe URI)"
        raise IdentityError(msg) from error
    uris = [uri for uri in names.get_values_for_type(x509.UniformResourceIdentifier) if uri.startswith("spiffe:")]
    if len(uris) != 1:
        msg = f"the certificate names {len(uris)} identities, it must name one"
        raise IdentityError(msg)
    identity = of_uri(uris[0])
    issuer = authorities.get(identity.domain)
    if issuer is None:
        msg = f"the domain {identity.domain} is not known here: both operators must enter each other as peers"
        raise IdentityError(msg)
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError) as error:
        msg = f"the certificate names the domain {identity.domain}, but its authority did not issue it"
        raise IdentityError(msg) from error
    return Proof(
        identity,
        serial_of(certificate),
        min(microseconds(one.not_valid_after_utc) for one in (certificate, issuer)),
        max(microseconds(one.not_valid_before_utc) for one in (certificate, issuer)),
    )


def key_digest(request: x509.CertificateSigningRequest) -> bytes:
    """By which a key is known again: SHA-256 of its public part (SubjectPublicKeyInfo, DER)."""
    public = request.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(public).digest()


def check_request(pem: str) -> x509.CertificateSigningRequest:
    """A certificate signing request whose key is strong enough and really the sender's.

    Names in the request do not matter: the certificate carries the identity that the token was made for.

    Raises:
        IdentityError: what is wrong with it.
    """
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        good = request.is_signature_valid
        key = request.public_key()
    except Exception as error:  # the parser raises many kinds on bytes that someone made up
        msg = "csr is not a PEM certificate signing request (PKCS #10)"
        raise IdentityError(msg) from error
    if not good:
        msg = "the signature of the certificate signing request is wrong"
        raise IdentityError(msg)
    strong = (
        (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, (ec.SECP256R1, ec.SECP384R1)))
        or isinstance(key, ed25519.Ed25519PublicKey)
        or (isinstance(key, rsa.RSAPublicKey) and 2048 <= key.key_size <= 4096)
    )
    if not strong:
        msg = "the key must be P-256, P-384, Ed25519, or RSA of 2048 to 4096 bits"
        raise IdentityError(msg)
    return request
