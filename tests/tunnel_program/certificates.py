"""Certificates for tests of the tunnel's TLS: an authority, and what can be wrong with a certificate of its own."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def subject(name: str) -> x509.Name:
    """A name with nothing but a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@dataclass
class Authority:
    """Signs certificates and leaves them as PEM files in a folder."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        """Makes the authority's own certificate."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(subject(self.name))
            .issuer_name(subject(self.name))
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=30))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    @property
    def path(self) -> Path:
        """The authority's certificate."""
        return self.folder / f"{self.name}.pem"

    def issue(self, name: str, *names: str, days: tuple[float, float] = (-1, 1)) -> list[str]:
        """Makes a key and a certificate; names: URIs, DNS, addresses. Returns options of chart-tunnel."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject(name))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([general(one) for one in names]), False)
        certificate = builder.sign(self.key, hashes.SHA256())
        paths = {kind: self.folder / f"{name}-{kind}.pem" for kind in ("certificate", "key")}
        paths["certificate"].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths["key"].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return options(paths["certificate"], paths["key"], self.path)


def node_names(node: str, domain: str) -> tuple[str, str]:
    """What the authority of a domain writes into the certificate of a node."""
    return f"spiffe://{domain}/node/{node}", f"{node}.node.{domain}"


def general(name: str) -> x509.GeneralName:
    """A name for a certificate: a URI, an address, or else a DNS name."""
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def options(certificate: Path, key: Path, authority: Path) -> list[str]:
    """The options of chart-tunnel for these files."""
    return ["--tls-certificate", str(certificate), "--tls-key", str(key), "--tls-authority", str(authority)]
