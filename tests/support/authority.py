"""An authority for tests, and clients with certificates of every kind: good, of another authority, expired."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from chart.authority.main import serve
from chart.authority.settings import AuthoritySettings
from chart.common.streams import LocalBroker
from chart.registry.tenants import default_tenant
from support.postgres import PostgresServer
from support.processes import free_ports
from support.waiting import eventually


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def csr(key: Any, name: str = "anything") -> str:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode()


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@dataclass
class OtherAuthority:
    """A certificate authority that the domain knows nothing of."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)

    def __post_init__(self) -> None:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another authority")])
        self.certificate = self._sign(name, name, self.key, None, datetime.timedelta(days=1))
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, folder: Path, uri: str, life: datetime.timedelta = datetime.timedelta(hours=1)) -> tuple[str, str]:
        """Files of a certificate that names ``uri``, and of its key."""
        key = new_key()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client")])
        certificate = self._sign(name, self.certificate.subject, key, uri, life)
        return store(folder, f"other-{certificate.serial_number:x}", key, certificate)

    def _sign(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, uri: str | None,
        life: datetime.timedelta,
    ) -> x509.Certificate:  # fmt: skip
        return sign_certificate(self.key, issuer, subject, key, uri, life)


def sign_certificate(
    signer: ec.EllipticCurvePrivateKey, issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePrivateKey,
    uri: str | None, life: datetime.timedelta, begins: datetime.timedelta = datetime.timedelta(days=-2),
    others: tuple[x509.GeneralName, ...] = (),
) -> x509.Certificate:  # fmt: skip
    """A certificate of any authority whose key is at hand, until ``life`` from now; one without ``uri`` is an
    authority's own. ``others``: names besides.
    """
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=uri is None, path_length=None), critical=True)
    )
    if uri is not None:
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri), *others])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA256())


def store(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: Any) -> tuple[str, str]:
    pem = certificate if isinstance(certificate, str) else certificate.public_bytes(serialization.Encoding.PEM).decode()
    (folder / f"{name}.pem").write_text(pem)
    (folder / f"{name}.key").write_bytes(key_pem(key))
    return str(folder / f"{name}.pem"), str(folder / f"{name}.key")


@dataclass
class Place:
    """A running authority and a folder for certificates."""

    settings: AuthoritySettings
    folder: Path
    url: str
    secrets: list[str] = field(default_factory=list)
    clients: list[httpx.AsyncClient] = field(default_factory=list)
    # The streams in memory; None: they are at a broker.
    broker: LocalBroker | None = None
    # Whose certificate of `local` an operator's calls come with.
    operators: str = "user-operator"

    @property
    def ca_file(self) -> Path:
        return self.settings.home / "ca.pem"

    def context(self, files: tuple[str, str] | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if files is not None:
            context.load_cert_chain(*files)
        return context

    def client(self, files: tuple[str, str] | None = None, url: str | None = None) -> httpx.AsyncClient:
        """A client with the certificate of these files, or none."""
        made = httpx.AsyncClient(base_url=url or self.url, verify=self.context(files), timeout=20, trust_env=False)
        self.clients.append(made)
        return made

    @property
    def operator(self) -> httpx.AsyncClient:
        return self.client(self.local(self.operators))

    def local(self, name: str) -> tuple[str, str]:
        """Files of a certificate that the development authority keeps ready."""
        base = self.settings.home / "identities" / name
        return f"{base}.pem", f"{base}.key"

    def files(self, name: str) -> tuple[str, str]:
        """Files of an identity that was enrolled here: `node-alpha`."""
        return str(self.folder / f"{name}.pem"), str(self.folder / f"{name}.key")

    def has(self, name: str) -> bool:
        """Whether a certificate of `local` is there."""
        return Path(self.local(name)[0]).exists()

    async def enrol(self, identity: str, key: ec.EllipticCurvePrivateKey | None = None) -> tuple[str, str]:
        """Enrol with a one-time token as an operator makes it; returns the files."""
        key = key or new_key()
        made = await self.operator.post("/v1/enrolments", json={"identity": identity})
        assert made.status_code == 201, made.text
        self.secrets.append(made.json()["token"])
        issued = await self.client().post("/v1/certificates", json={"csr": csr(key), "token": made.json()["token"]})
        assert issued.status_code == 201, issued.text
        return store(self.folder, identity.replace("/", "-"), key, issued.json()["certificate"])

    async def node(self, name: str) -> httpx.AsyncClient:
        """A client of an enrolled node."""
        return self.client(await self.enrol(f"node/{name}"))

    async def close(self) -> None:
        await asyncio.gather(*(client.aclose() for client in self.clients))


def settings_of(database_url: str, state_dir: Path, **more: Any) -> AuthoritySettings:
    """Settings on free ports; streams in memory."""
    port, http_port = free_ports(2)
    return AuthoritySettings(
        kafka_bootstrap=more.pop("kafka_bootstrap", "local:"),
        database_url=database_url,
        state_dir=state_dir,
        authority_listen=f"127.0.0.1:{port}",
        http_listen=f"127.0.0.1:{http_port}",
        **more,
    )


@asynccontextmanager
async def running(settings: AuthoritySettings, folder: Path) -> AsyncIterator[Place]:
    """An authority in this process, ready, with its local identities made. With streams in memory every address belongs
    to who belongs to no tenant.
    """
    broker = LocalBroker() if settings.kafka_bootstrap == "local:" else None
    if broker is not None:
        await broker.publish("chart.tenant.v1", "default", default_tenant(everything=True))
    task = asyncio.create_task(serve(settings, broker=broker))
    place = Place(settings, folder, f"https://{settings.authority_listen}", broker=broker)

    async def ready() -> bool:
        if task.done():
            task.result()
        return all(place.has(name.replace("/", "-")) for name in settings.authority_local_identities)

    try:
        await eventually(ready, 20)
        yield place
    finally:
        await place.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def empty(postgres: PostgresServer) -> None:
    """An authority that knows nobody."""
    postgres.truncate("authority")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("INSERT INTO authority.revision (value, forgotten) VALUES (1, 0)")
