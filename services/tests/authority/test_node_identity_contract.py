"""A process beside the agent, with a real authority: its certificate, the node's key, records that a service takes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from chart.common import node_identity, record_mac
from chart.common.authority_calls import AuthorityCalls
from chart.common.clock import SystemClock
from chart.common.node_identity import NodeIdentity
from chart.common.record_check import AuthorityKeys, RecordCheck
from chart.common.record_mac import RecordMacError
from chart.common.record_sign import RecordSigner
from chart.common.settings import BaseServiceSettings
from support.authority import OtherAuthority, Place, key_pem, new_key, sign_certificate
from support.waiting import eventually

pytestmark = pytest.mark.contract
TOPIC, KEY = "chart.measurement.v1", "alpha,bravo,rtt_us"


@dataclass
class Settings:
    """Of a process that serves node alpha."""

    state_dir: Path
    authority_url: str
    authority_ca: Path | None
    node: str = "alpha"
    node_identity: Path | None = None
    enrolment_token_file: Path | None = None
    service_account_token_file: Path | None = None


@contextlib.asynccontextmanager
async def beside(settings: Settings) -> AsyncIterator[tuple[RecordSigner, AuthorityCalls]]:
    calls = node_identity.calls_of(settings)
    assert calls is not None
    signer = RecordSigner(settings.node, calls, SystemClock())
    runs = [asyncio.create_task(one.run()) for one in (NodeIdentity(settings, calls, SystemClock()), signer)]
    try:
        yield signer, calls
    finally:
        for task in runs:
            task.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        await calls.close()


def keep(folder: Path, certificate: str, key: str) -> None:
    """As an agent does after its enrolment or a renewal."""
    for name, file in (("node.key", key), ("node.pem", certificate)):
        (folder / name).write_bytes(Path(file).read_bytes())


def signed(signer: RecordSigner) -> dict[str, str]:
    code = signer.header(TOPIC, KEY, b"x")
    assert code is not None
    return {record_mac.HEADER: code}


async def test_a_pod_of_its_own_enrols_signs_and_ends_with_its_node(place: Place, tmp_path: Path) -> None:
    await eventually(lambda: place.has("service-records"))
    made = await place.operator.post("/v1/enrolments", json={"identity": "node/alpha", "life_s": 60})
    token = tmp_path / "token"
    token.write_text(made.json()["token"] + "\n")
    settings = Settings(tmp_path / "pod", place.url, place.ca_file, enrolment_token_file=token)
    keys = AuthorityKeys(BaseServiceSettings(state_dir=place.settings.state_dir, authority_url=place.url))
    check = RecordCheck(keys, "require")
    async with beside(settings) as (signer, calls):
        await eventually(lambda: signer.signs)
        assert calls.key.stat().st_mode & 0o077 == 0
        await check.check(TOPIC, KEY, b"x", signed(signer))
        with pytest.raises(RecordMacError, match="written as alpha, but the record is of bravo"):
            await check.check(TOPIC, "bravo,alpha,rtt_us", b"x", signed(signer))
        body = {"identity": "node/alpha", "reason": "stolen"}
        assert (await place.operator.post("/v1/revocations", json=body)).status_code == 204
        await eventually(lambda: not signer.signs, limit_s=10)
    await check.close()


class DeafCalls(AuthorityCalls):
    """Asks, and hears nothing of the first answers."""

    deaf = 2

    async def post(self, path: str, body: dict[str, Any], *, certified: bool = True) -> Any:
        """As its class does, with the answer lost."""
        answer = await super().post(path, body, certified=certified)
        if self.deaf:
            self.deaf -= 1
            raise httpx.ReadTimeout("")
        return answer


async def test_a_one_time_token_whose_answer_was_lost_is_still_good(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_identity, "BACK_OFF_S", (0.01, 0.05))
    monkeypatch.setattr(node_identity, "AuthorityCalls", DeafCalls)
    made = await place.operator.post("/v1/enrolments", json={"identity": "node/alpha", "life_s": 60})
    token = tmp_path / "token"
    token.write_text(made.json()["token"])
    settings = Settings(tmp_path / "pod", place.url, place.ca_file, enrolment_token_file=token)
    async with beside(settings) as (signer, calls):
        await eventually(lambda: signer.signs)
        assert isinstance(calls, DeafCalls)
        assert calls.deaf == 0
        key = serialization.load_pem_private_key(calls.key.read_bytes(), None)
        assert x509.load_pem_x509_certificate(calls.certificate.read_bytes()).public_key() == key.public_key()
        assert {one.name for one in calls.key.parent.iterdir()} == {calls.key.name, calls.certificate.name}


async def test_a_certificate_of_an_authority_that_is_no_more_is_replaced(place: Place, tmp_path: Path) -> None:
    made = await place.operator.post("/v1/enrolments", json={"identity": "node/alpha", "life_s": 60})
    token = tmp_path / "token"
    token.write_text(made.json()["token"])
    other, key, folder = OtherAuthority(), new_key(), tmp_path / "pod" / "identity"
    folder.mkdir(parents=True)
    name = x509.Name([])
    life = datetime.timedelta(hours=24)
    left = sign_certificate(other.key, other.certificate.subject, name, key, "spiffe://chart.local/node/alpha", life)
    (folder / "node.pem").write_bytes(left.public_bytes(serialization.Encoding.PEM))
    (folder / "node.key").write_bytes(key_pem(key))
    settings = Settings(tmp_path / "pod", place.url, place.ca_file, enrolment_token_file=token)
    async with beside(settings) as (signer, calls):
        await eventually(lambda: signer.signs)
        assert x509.load_pem_x509_certificate(calls.certificate.read_bytes()).serial_number != left.serial_number


async def test_the_agents_certificate_is_used_and_taken_anew(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    settings = Settings(tmp_path / "pod", place.url, place.ca_file, node_identity=folder / "node")
    async with beside(settings) as (signer, calls):
        assert not signer.signs
        keep(folder, *await place.enrol("node/alpha"))
        await eventually(lambda: signer.signs)
        assert not (tmp_path / "pod").exists()
        # The agent renewed: connections of before go on, the next one presents the new certificate.
        keep(folder, *await place.enrol("node/alpha"))
        assert (await calls.get("/v1/stream-keys/alpha"))["node"] == "alpha"


@pytest.mark.parametrize(
    ("begins_h", "life_h", "words"),
    [(1, 24, "is not valid before"), (-24, -1, "expired at")],
)
async def test_a_clock_that_is_off_is_named_with_both_times(
    tmp_path: Path, begins_h: int, life_h: int, words: str
) -> None:
    other = OtherAuthority()
    (tmp_path / "ca.pem").write_text(other.pem)
    key = new_key()
    served = sign_certificate(
        other.key,
        other.certificate.subject,
        x509.Name([]),
        key,
        "spiffe://chart.local/service/authority",
        datetime.timedelta(hours=life_h),
        begins=datetime.timedelta(hours=begins_h),
        others=(x509.IPAddress(ipaddress.ip_address("127.0.0.1")),),
    )
    file = tmp_path / "served.pem"
    file.write_bytes(served.public_bytes(serialization.Encoding.PEM) + key_pem(key))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        calls = AuthorityCalls(f"https://127.0.0.1:{port}", tmp_path / "ca.pem", tmp_path / "none")
        with pytest.raises(httpx.ConnectError) as caught:
            await calls.post("/v1/certificates", {}, certified=False)
        told = await calls.words(caught.value)
    moment = served.not_valid_before_utc if begins_h > 0 else served.not_valid_after_utc
    assert f"the authority's certificate {words} {moment.strftime('%Y-%m-%dT%H:%M:%SZ')}, and it is " in told
    assert "a clock is off" in told
