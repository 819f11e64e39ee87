"""Certificates of the broker and of its clients: made once, anew when they are due."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from chart.authority.keystore_embedded import EmbeddedKeyStore
from chart.common import catalogue, kafka_properties
from chart.maintenance import broker_identities
from chart.maintenance.broker_identities import (
    AUTHORITY_FILE,
    BROKER,
    BROKER_FILE,
    CERTIFICATE,
    LIFE,
    PROPERTIES,
)

DOMAIN = "chart.local"


class Signer:
    """An authority, and for whom it signed."""

    def __init__(self, folder: Path) -> None:
        self.store = EmbeddedKeyStore(folder, DOMAIN)
        asyncio.run(self.store.open())
        self.authority = asyncio.run(self.store.authority())
        self.signed: list[str] = []

    def sign(self, request: x509.CertificateSigningRequest, uri: str, names: tuple[str, ...]) -> str:
        self.signed.append(uri)
        issued = asyncio.run(self.store.issue(request, uri, life_s=LIFE.total_seconds(), names=names))
        return issued.pem

    def keep(self, folder: Path, broker_names: tuple[str, ...] = ("127.0.0.1", "kafka")) -> list[str]:
        return broker_identities.keep(
            folder, ("kafka", "registry"), self.sign, authority=self.authority, domain=DOMAIN, broker_names=broker_names
        )


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path / "store")


def test_each_has_a_folder_of_its_own_that_names_it(signer: Signer, tmp_path: Path) -> None:
    assert signer.keep(tmp_path / "broker") == ["kafka", "registry"]
    assert signer.signed == ["spiffe://chart.local/service/kafka", "spiffe://chart.local/service/registry"]
    own = tmp_path / "broker" / "registry"
    certificate = x509.load_pem_x509_certificate((own / CERTIFICATE).read_bytes())
    assert certificate.subject.rfc4514_string() == "UID=registry,CN=registry,OU=service"
    told = kafka_properties.load(str(own / PROPERTIES))
    assert told["ssl.certificate.location"] == str(own / CERTIFICATE)
    assert all((own / name).stat().st_mode & 0o077 == 0 for name in ("service.key", CERTIFICATE, PROPERTIES))
    # Key and certificate in one file are the broker's alone.
    assert "PRIVATE KEY" in (tmp_path / "broker" / BROKER / BROKER_FILE).read_text()
    assert not (own / BROKER_FILE).exists()


def test_what_is_good_stays_and_what_is_due_is_made_anew(signer: Signer, tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    signer.keep(folder)
    assert signer.keep(folder) == []
    assert signer.keep(folder, ("127.0.0.1", "broker.example")) == ["kafka"]  # it is reached by another name
    (folder / "registry" / "service.key").unlink()
    assert signer.keep(folder, ("127.0.0.1", "broker.example")) == ["registry"]
    another = Signer(tmp_path / "another")
    assert another.keep(folder, ("127.0.0.1", "broker.example")) == ["kafka", "registry"]
    assert (folder / "registry" / AUTHORITY_FILE).read_bytes() == another.authority.public_bytes(Encoding.PEM)


@pytest.mark.parametrize(("part", "expected"), [(0.0, False), (0.49, False), (0.51, True), (1.1, True)])
def test_a_certificate_is_due_when_half_of_it_is_over(
    signer: Signer, tmp_path: Path, part: float, expected: bool
) -> None:
    signer.keep(tmp_path)
    pem = (tmp_path / "registry" / CERTIFICATE).read_bytes()
    now = datetime.datetime.now(datetime.UTC) + part * LIFE
    assert broker_identities.due(pem, signer.authority, (), now) is expected


def test_a_program_is_told_the_place_where_it_finds_its_files(signer: Signer, tmp_path: Path) -> None:
    broker_identities.keep(
        tmp_path, ("tunnels",), signer.sign, authority=signer.authority, domain=DOMAIN, broker_names=(),
        seen_in=Path("/run/chart/broker"),
    )  # fmt: skip
    told = kafka_properties.load(str(tmp_path / "tunnels" / PROPERTIES))
    assert told["ssl.ca.location"] == "/run/chart/broker/authority.pem"


def test_every_service_of_the_catalogue_has_one() -> None:
    named = {name for topic in catalogue.load().topics() for name in (*topic.writers, *topic.readers)} - {"node"}
    assert named == set(broker_identities.SERVICES)
