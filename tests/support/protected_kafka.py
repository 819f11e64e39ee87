"""A real broker that speaks mutual TLS and asks for every request who may do it, and certificates of its authority."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from chart.authority.keystore_embedded import EmbeddedKeyStore
from chart.common import broker_access, catalogue, topics
from chart.common.broker_access import Difference
from chart_lab.platform.kafka import BrokerTls
from support.authority import csr, new_key
from support.kafka import KafkaServer, Settings

DOMAIN = "chart.local"


@dataclass
class ProtectedKafka:
    """A broker that speaks mutual TLS, and whom its authority gave certificates."""

    server: KafkaServer
    folder: Path
    authority: EmbeddedKeyStore

    def client(self, identity: str, **more: str | int | bool) -> Settings:
        """librdkafka's settings of ``node/alpha`` or another."""
        return {
            **settings_of(self.folder, self.authority, identity),
            "bootstrap.servers": self.server.bootstrap,
            **more,
        }

    def admin(self, identity: str = "service/topics") -> AdminClient:
        """Who looks after the broker, or another."""
        return AdminClient(self.client(identity))

    def give(self, node: str) -> None:
        """The rights of a node, as its enrolment gives them."""
        wanted = broker_access.of_node(catalogue.load(), node)
        broker_access.change(self.admin("service/authority"), Difference(missing=sorted(wanted)))


def settings_of(folder: Path, authority: EmbeddedKeyStore, identity: str) -> Settings:
    """How an identity proves who it is; its certificate is made when it is first asked for."""
    path = folder / identity.replace("/", "-")
    if not path.with_suffix(".crt").exists():
        issue(folder, authority, identity)
    return {
        "security.protocol": "ssl",
        "ssl.ca.location": str(folder / "authority.pem"),
        "ssl.certificate.location": str(path.with_suffix(".crt")),
        "ssl.key.location": str(path.with_suffix(".key")),
        "log_level": 0,
    }


def issue(folder: Path, authority: EmbeddedKeyStore, identity: str, life_s: int = 3600) -> None:
    """A new key and certificate of an identity, in the place of former ones as a renewal does: first the key."""
    path = folder / identity.replace("/", "-")
    key = new_key()
    names = ("127.0.0.1", "localhost") if identity == "service/kafka" else ()
    request = x509.load_pem_x509_csr(csr(key).encode())
    issuing = authority.issue(request, f"spiffe://{DOMAIN}/{identity}", life_s=life_s, names=names)
    with ThreadPoolExecutor(1) as thread:  # asked for inside of event loops too
        issued = thread.submit(asyncio.run, issuing).result()
    certificate = issued.pem.encode()
    if not (folder / "authority.pem").exists():
        (folder / "authority.pem").write_text(issued.authority_pem)
    for suffix, octets in ((".key", pkcs8(key)), (".crt", certificate), (".pem", pkcs8(key) + certificate)):
        draft = path.with_suffix(f"{suffix}.new")
        draft.write_bytes(octets)
        draft.rename(path.with_suffix(suffix))


def pkcs8(key: object) -> bytes:
    """A private key in the one form that Kafka reads (PEM, PKCS #8)."""
    return key.private_bytes(  # type: ignore[attr-defined, no-any-return]
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@contextlib.contextmanager
def running(folder: Path) -> Iterator[ProtectedKafka]:
    """The broker with the catalogue's topics and the rights of services. Its authority's store lies where an authority
    with the state directory ``folder / "state"`` has it.
    """
    authority = EmbeddedKeyStore(folder / "state" / "authority" / "store", DOMAIN)
    asyncio.run(authority.open())
    settings_of(folder, authority, "service/kafka")
    protection = BrokerTls(folder / "service-kafka.pem", folder / "authority.pem")
    server = KafkaServer(folder / "broker", protection, settings_of(folder, authority, "service/topics"))
    try:
        server.start()
        protected = ProtectedKafka(server, folder, authority)
        with environment(protected, "service/topics"):
            topics.apply(server.bootstrap)
        yield protected
    finally:
        server.stop()


@contextlib.contextmanager
def environment(cluster: ProtectedKafka, identity: str) -> Iterator[None]:
    """Who a program is, by the file that CHART_KAFKA_PROPERTIES names."""
    file = cluster.folder / f"{identity.replace('/', '-')}.properties"
    settings = settings_of(cluster.folder, cluster.authority, identity)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items() if name != "log_level"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHART_KAFKA_PROPERTIES", str(file))
        yield
