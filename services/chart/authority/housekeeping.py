"""What the authority does by itself: its own certificate, those of the machine's services, and what time ends."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path

import psycopg
import psycopg_pool
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from chart.authority import certificates, enrolments, repository, tls
from chart.authority.context import Authority
from chart.authority.identity import Identity, microseconds, of_short
from chart.authority.keystore import KeyStore, KeyStoreError, KeyStoreUnavailable
from chart.authority.schemas import EnrolmentBody
from chart.authority.settings import AuthoritySettings
from chart.common.files import write_private
from chart.common.names import common_name
from chart.common.problems import ProblemError

EVERY_S = 1.0
FORGET_EVERY_S = 60.0
LOCAL_EVERY_S = 30.0

_log = structlog.get_logger("chart.authority")


def request_for(name: str, key: object) -> x509.CertificateSigningRequest:
    """A signing request."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name(name))])
    return x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())  # type: ignore[arg-type]


async def own_certificate(settings: AuthoritySettings, store: KeyStore, context: ssl.SSLContext) -> int:
    """Get a certificate for this replica and use it; returns when half of its life is over, microseconds."""
    own = Identity(settings.authority_domain, "service", "authority")
    names = [name.strip() for name in settings.authority_names.split(",") if name.strip()]
    names += [address.rpartition(":")[0].strip("[] ") for address in settings.authority_listen.split(",")]
    key = tls.new_key()
    unique = tuple(dict.fromkeys(name for name in names if name not in ("0.0.0.0", "::")))  # noqa: S104
    issued = await store.issue(
        request_for("authority", key), own.uri, life_s=settings.authority_certificate_life_s, names=unique
    )
    tls.load(context, issued.pem, key)
    certificate = x509.load_pem_x509_certificate(issued.pem.encode())
    life_us = microseconds(certificate.not_valid_after_utc) - microseconds(certificate.not_valid_before_utc)
    return microseconds(certificate.not_valid_after_utc) - life_us // 2


def publish_authority(settings: AuthoritySettings, authority: x509.Certificate) -> Path:
    """Write the authority's certificate where clients of this machine find it."""
    path = settings.home / "ca.pem"
    pem = authority.public_bytes(serialization.Encoding.PEM)
    if not path.exists() or path.read_bytes() != pem:
        write_private(path, pem)
        path.chmod(0o644)
    return path


def due(path: Path, now_us: int, authority: x509.Certificate) -> bool:
    """Whether the certificate in a file is missing, half over, or of another authority."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        certificate.verify_directly_issued_by(authority)
    except Exception:  # whatever is in that file, a new certificate mends it
        return True
    until_us = microseconds(certificate.not_valid_after_utc)
    return 2 * now_us >= until_us + microseconds(certificate.not_valid_before_utc)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Whether no other replica of this machine works in the folder; inside, none begins."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


async def local_identities(authority: Authority, names: Iterable[str]) -> bool:
    """Keep certificates of this machine's services ready: <state>/authority/identities/<kind>-<name>.{pem,key}.

    False: another replica of this machine is at it; two at once would leave the key of one and the certificate of the
    other.
    """
    folder = authority.settings.home / "identities"
    with alone(folder) as here:
        if here:
            await _make_identities(authority, names, folder)
    return here


async def _make_identities(authority: Authority, names: Iterable[str], folder: Path) -> None:
    issuer = await authority.store.authority()
    for name in names:
        path = folder / f"{name.replace('/', '-')}.pem"
        if not due(path, authority.clock.now_us(), issuer):
            continue
        holder = of_short(name, authority.settings.authority_domain)
        key = tls.new_key()
        csr = request_for(holder.name, key).public_bytes(serialization.Encoding.PEM).decode()
        body = EnrolmentBody(identity=holder.short, life_s=round(authority.settings.authority_enrolment_life_s))
        enrolment = await enrolments.make(authority, body, "authority")
        issued = await certificates.issue(authority, csr, token=enrolment.token, holder=None)
        # The key first: whoever sees the new certificate finds its key.
        write_private(path.with_suffix(".key"), tls.key_pem(key))
        write_private(path, issued.certificate.encode())
        _log.info("made a certificate for a service of this machine", identity=holder.short, file=str(path))


async def run(authority: Authority, context: ssl.SSLContext, renew_at_us: int) -> None:
    """Until cancelled; what fails is tried again."""
    settings, clock = authority.settings, authority.clock
    locals_at = forgot_at = float("-inf")
    while True:
        try:
            if clock.now_us() >= renew_at_us:
                renew_at_us = await own_certificate(settings, authority.store, context)
            due_here = settings.environment == "development" and clock.monotonic() - locals_at > LOCAL_EVERY_S
            if due_here and await local_identities(authority, settings.authority_local_identities):
                locals_at = clock.monotonic()
            async with authority.pool.connection() as connection, connection.transaction():
                await repository.expire(connection, clock.now_us())
                if clock.monotonic() - forgot_at > FORGET_EVERY_S:
                    kept_s = (settings.authority_tombstones_s, settings.authority_enrolments_kept_s)
                    await repository.forget(connection, *(clock.now_us() - round(one * 1e6) for one in kept_s))
                    forgot_at = clock.monotonic()
        except (KeyStoreError, KeyStoreUnavailable, ProblemError) as error:
            _log.warning("certificates cannot be renewed now, trying again", reason=str(error))
        except (psycopg.Error, psycopg_pool.PoolTimeout, OSError) as error:
            _log.warning("housekeeping failed, trying again", reason=type(error).__name__)
        await asyncio.sleep(EVERY_S)
