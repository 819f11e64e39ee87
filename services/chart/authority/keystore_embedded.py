"""The embedded key store: AES-256-GCM under a machine-local key. For one machine only, and it says so in its log.

Files, 0600 in a folder 0700: ``master.key`` (32 octets), ``authority.json`` (CA certificate and wrapped key),
``receipts.json`` (wrapped Ed25519 key). Replicas on one machine share the folder; the first makes it.
"""

from __future__ import annotations

import base64
import datetime
import fcntl
import hashlib
import ipaddress
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from chart.authority.keystore import KEY_OCTETS, GeneratedKey, IssuedCertificate, KeyStoreError, Signature
from chart.common.files import write_private
from chart.common.names import common_name

NONCE_OCTETS = 12
AUTHORITY_LIFE_DAYS = 3650
# A certificate is good from a little before now: clocks of nodes differ.
BACKDATED = datetime.timedelta(minutes=5)
_PREFIX = "embedded:v1:"

_log = structlog.get_logger("chart.authority.keystore")


class EmbeddedKeyStore:
    """Key store in files of this machine: AES-256-GCM under a master key, its own CA."""

    name = "embedded"

    def __init__(self, folder: Path, domain: str) -> None:
        self._folder = folder
        self._domain = domain
        self._cipher: AESGCM | None = None
        self._authority: x509.Certificate | None = None
        self._authority_key: ec.EllipticCurvePrivateKey | None = None
        self._receipts: Ed25519PrivateKey | None = None

    async def open(self) -> None:
        """Connect to the store and create what is missing. Raises KeyStoreUnavailable.

        Raises:
            KeyStoreError: files that others may read, or that belong to another master key.
        """
        _log.warning(
            "the embedded key store keeps its master key on this machine: for one machine only, production needs Vault",
            folder=str(self._folder),
        )
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            self._cipher = AESGCM(_private_file(self._folder / "master.key", lambda: secrets.token_bytes(KEY_OCTETS)))
            made = json.loads(_private_file(self._folder / "authority.json", self._make_authority))
            receipts = json.loads(_private_file(self._folder / "receipts.json", self._make_receipts))
        self._authority = x509.load_pem_x509_certificate(made["certificate"].encode())
        key = serialization.load_der_private_key(self._open_sealed("authority-key", made["key"]), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._authority_key = key
        self._receipts = Ed25519PrivateKey.from_private_bytes(self._open_sealed("receipt-key", receipts["key"]))

    async def close(self) -> None:
        """Forget what is in memory and close connections."""
        self._cipher = self._authority_key = self._receipts = None

    async def check(self) -> None:
        """Return when the store works now. Raises KeyStoreUnavailable."""
        if self._cipher is None:
            msg = "the embedded key store is not open"
            raise KeyStoreError(msg)

    async def generate(self, context: str) -> GeneratedKey:
        """A new 256-bit key for this purpose, plain and wrapped."""
        plain = secrets.token_bytes(KEY_OCTETS)
        return GeneratedKey(plain, self._seal(context, plain))

    async def unwrap(self, context: str, wrapped: str) -> bytes:
        """The plain key. Raises KeyStoreError when it was wrapped for another purpose or elsewhere."""
        return self._open_sealed(context, wrapped)

    async def issue(
        self, request: x509.CertificateSigningRequest, uri: str, *, life_s: float, names: tuple[str, ...] = ()
    ) -> IssuedCertificate:
        """A certificate for the request's key with `uri`, DNS names and addresses, valid for `life_s` seconds."""
        assert self._authority is not None
        assert self._authority_key is not None
        now = datetime.datetime.now(datetime.UTC)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if names else [])]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name(uri.rsplit("/", 1)[-1]))]))
            .issuer_name(self._authority.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + datetime.timedelta(seconds=life_s))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri), *_names(names)]), False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(request.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._authority_key.public_key()), critical=False
            )
            .sign(self._authority_key, hashes.SHA256())
        )
        return IssuedCertificate(_pem(certificate), _pem(self._authority))

    async def authority(self) -> x509.Certificate:
        """The certificate that issued all others."""
        assert self._authority is not None
        return self._authority

    async def sign_receipt(self, message: bytes) -> Signature:
        """An Ed25519 signature (64 octets) under the receipts' key."""
        assert self._receipts is not None
        return Signature(self._receipt_key()["kid"], self._receipts.sign(message))

    async def receipt_keys(self) -> dict[str, Any]:
        """The public keys of receipts, past ones too, as a JWKS document."""
        return {"keys": [self._receipt_key()]}

    def _receipt_key(self) -> dict[str, str]:
        assert self._receipts is not None
        raw = self._receipts.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return jwk(raw, hashlib.sha256(raw).hexdigest()[:16])

    def _seal(self, context: str, plain: bytes) -> str:
        assert self._cipher is not None
        nonce = secrets.token_bytes(NONCE_OCTETS)
        return _PREFIX + base64.b64encode(nonce + self._cipher.encrypt(nonce, plain, context.encode())).decode()

    def _open_sealed(self, context: str, wrapped: str) -> bytes:
        assert self._cipher is not None
        try:
            if not wrapped.startswith(_PREFIX):
                raise ValueError(wrapped[:8])
            sealed = base64.b64decode(wrapped.removeprefix(_PREFIX), validate=True)
            return self._cipher.decrypt(sealed[:NONCE_OCTETS], sealed[NONCE_OCTETS:], context.encode())
        except (ValueError, InvalidTag) as error:
            msg = f"a wrapped key of {context} cannot be opened: another master key, another purpose, or another store"
            raise KeyStoreError(msg) from error

    def _make_authority(self) -> bytes:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"CHART authority of {self._domain}"[:64])])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + datetime.timedelta(days=AUTHORITY_LIFE_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(False, False, False, False, False, True, True, False, False),  # signs certificates, CRLs
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        der = key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return json.dumps({"certificate": _pem(certificate), "key": self._seal("authority-key", der)}).encode()

    def _make_receipts(self) -> bytes:
        raw = Ed25519PrivateKey.generate().private_bytes_raw()
        return json.dumps({"key": self._seal("receipt-key", raw)}).encode()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def jwk(public: bytes, key_id: str) -> dict[str, str]:
    """An Ed25519 public key of receipts as JWK (RFC 8037)."""
    encoded = base64.urlsafe_b64encode(public).rstrip(b"=").decode()
    return {"kty": "OKP", "crv": "Ed25519", "x": encoded, "kid": key_id, "use": "sig", "alg": "EdDSA"}


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _names(names: tuple[str, ...]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _private_file(path: Path, make: Any) -> bytes:
    """Contents of a file that only its owner may read; made when missing.

    Raises:
        KeyStoreError: others may read it.
    """
    if not path.exists():
        write_private(path, make())
    if path.stat().st_mode & 0o077:
        msg = f"{path} can be read by others: chmod 600 it, and replace what it protects if others had access"
        raise KeyStoreError(msg)
    return path.read_bytes()
