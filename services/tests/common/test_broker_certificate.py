"""Who speaks to the broker with a certificate that is renewed waits for it, and ends when it is another one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chart.common.broker_certificate import BrokerCertificate, CertificateReplacedError
from chart.common.clock import SystemClock


class Quick(SystemClock):
    """Sleeps for a moment, whatever is asked."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.001))


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "node.pem"
    properties = tmp_path / "kafka.properties"
    properties.write_text(f"security.protocol=ssl\nssl.certificate.location={path}\n")
    monkeypatch.setenv("CHART_KAFKA_PROPERTIES", str(properties))
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.rename(path)


async def test_it_is_waited_for_while_it_is_made(certificate: Path) -> None:
    ended = asyncio.Event()

    async def make() -> None:
        write(certificate, "")  # a file that is begun is none yet
        await asyncio.sleep(0.01)
        replace(certificate, "one")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await asyncio.wait_for(BrokerCertificate(Quick()).present(make()), 5)
    assert ended.is_set()


async def test_who_makes_it_and_fails_is_heard(certificate: Path) -> None:
    async def fail() -> None:
        msg = "no token"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="no token"):
        await asyncio.wait_for(BrokerCertificate(Quick()).present(fail()), 5)


async def test_another_one_ends_the_process(certificate: Path) -> None:
    write(certificate, "one")
    watched = BrokerCertificate(Quick())
    await watched.present()
    watching = asyncio.create_task(watched.replaced())
    await asyncio.sleep(0.02)
    assert not watching.done()
    remove(certificate)  # what is gone is no other one
    await asyncio.sleep(0.02)
    assert not watching.done()
    replace(certificate, "two")
    with pytest.raises(CertificateReplacedError, match=r"node\.pem was renewed"):
        await asyncio.wait_for(watching, 5)


async def test_without_one_there_is_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHART_KAFKA_PROPERTIES", raising=False)
    watched = BrokerCertificate(Quick())
    await asyncio.wait_for(watched.present(), 5)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watched.replaced(), 0.02)
