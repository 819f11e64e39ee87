"""Certificates of the broker and of who speaks to it: made before any of them runs, also before the authority, which
speaks to the broker itself. A folder for each name, so that each program can be given its own and no other.

| file | what |
|---|---|
| ``service.pem``, ``service.key`` | certificate and key of ``service/<name>`` |
| ``records.pem``, ``records.key`` | where wanted: of ``service/records``, who checks records of nodes |
| ``broker.pem`` | of ``kafka``: both in one file, as the broker reads them |
| ``authority.pem`` | the certificate that issued them |
| ``kafka.properties`` | what ``CHART_KAFKA_PROPERTIES`` names |

Clients of the broker read these files when they start: after a renewal they are started anew.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Callable, Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from chart.common.files import write_private

BROKER = "kafka"
# Makes topics and rules of access.
ADMINISTRATOR = "topics"
SERVICES = ("allocator", "archiver", "authority", "gateway", "inference", "registry", "reservations", "tunnels")
# Renewed at half of it, by whatever starts the platform.
LIFE = datetime.timedelta(days=365)
CERTIFICATE, KEY, PROPERTIES = "service.pem", "service.key", "kafka.properties"
RECORDS, RECORDS_CERTIFICATE, RECORDS_KEY = "records", "records.pem", "records.key"
BROKER_FILE, AUTHORITY_FILE = "broker.pem", "authority.pem"


Request = x509.CertificateSigningRequest
# Signs a request for a URI, with DNS names and addresses that the holder is reached at; the certificate as PEM.
Sign = Callable[[Request, str, tuple[str, ...]], str]


def properties(authority: Path, certificate: Path, key: Path) -> str:
    """Settings of a client with these files."""
    return (
        "security.protocol=ssl\n"
        f"ssl.ca.location={authority}\n"
        f"ssl.certificate.location={certificate}\n"
        f"ssl.key.location={key}\n"
    )


def due(certificate_pem: bytes, authority: x509.Certificate, names: tuple[str, ...], now: datetime.datetime) -> bool:
    """Whether a certificate is to be made anew: half over, of another authority, or good for other names."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        certificate.verify_directly_issued_by(authority)
    except Exception:  # whatever is in that file, a new certificate mends it
        return True
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    told = {*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))}
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return told != set(names) or now >= begin + (end - begin) / 2


def keep(
    folder: Path,
    names: Iterable[str],
    sign: Sign,
    *,
    authority: x509.Certificate,
    domain: str,
    broker_names: tuple[str, ...],
    seen_in: Path | None = None,
    records: Iterable[str] = (),
) -> list[str]:
    """Make the certificates that are due below ``folder``; returns whose. ``broker_names``: how clients reach the
    broker; ``seen_in``: where a program finds its own folder, when it does not see this one; ``records``: who checks
    records of nodes.

    Raises:
        OSError: the files cannot be written.
    """
    now = datetime.datetime.now(datetime.UTC)
    made = []
    for name in names:
        own = folder / name
        certificate, key = own / CERTIFICATE, own / KEY
        server_names = broker_names if name == BROKER else ()
        seen = seen_in or own
        told = properties(seen / AUTHORITY_FILE, seen / CERTIFICATE, seen / KEY)
        write_private(own / PROPERTIES, told.encode())
        write_private(own / AUTHORITY_FILE, authority.public_bytes(serialization.Encoding.PEM))
        fresh = _identity(certificate, key, f"spiffe://{domain}/service/{name}", sign, authority, server_names, now)
        if name in records:
            files = own / RECORDS_CERTIFICATE, own / RECORDS_KEY
            fresh |= _identity(*files, f"spiffe://{domain}/service/{RECORDS}", sign, authority, (), now)
        if name == BROKER and fresh:
            write_private(own / BROKER_FILE, key.read_bytes() + certificate.read_bytes())
        if fresh:
            made.append(name)
    return made


def _identity(
    certificate: Path,
    key: Path,
    uri: str,
    sign: Sign,
    authority: x509.Certificate,
    names: tuple[str, ...],
    now: datetime.datetime,
) -> bool:
    """Make certificate and key when they are due; whether they were."""
    old = certificate.read_bytes() if certificate.exists() and key.exists() else b""
    if not due(old, authority, names, now):
        return False
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, uri.rpartition("/")[2])])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(private, hashes.SHA256())
    pem = sign(request, uri, names)
    # The key first: whoever sees the new certificate finds its key.
    write_private(
        key,
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
    write_private(certificate, pem.encode())
    return True


def is_address(name: str) -> bool:
    """Whether it is an address and no DNS name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
