"""Receipts from end to end: records on Kafka, authority, gateway, the `chart` command; verified when all is stopped."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from chart.common.settings import BaseServiceSettings
from chart.common.streams import connect
from chart.gateway.authority import AuthorityClient
from chart.gateway.settings import GatewaySettings
from chart.v1 import grant_status_pb2 as status
from chart.v1 import rate_request_pb2 as rr
from support.authority import empty, running, settings_of
from support.gateway import World, listening, world
from support.kafka import KafkaServer
from support.postgres import PostgresServer
from support.waiting import eventually

pytestmark = pytest.mark.contract

FLOW = "01RECEIPT"
CHART = Path(sys.executable).parent / "chart"


async def chart(*words: str) -> tuple[int, str]:
    """Run the command; exit status and what it said."""
    process = await asyncio.create_subprocess_exec(
        str(CHART), *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def publish(bootstrap: str) -> None:
    """A granted request of alice's, and what two agents counted for it, in the order in which it happens."""
    request = rr.RateRequest(
        id=FLOW, owner="alice", granted_bps=5_000_000, link_ids=["alpha:to-bravo"], lifecycle=rr.LIFECYCLE_ACTIVE,
        created_at_us=1, updated_at_us=2,
    )  # fmt: skip
    broker = connect(BaseServiceSettings(kafka_bootstrap=bootstrap))
    try:
        await broker.publish("chart.rate-request.v1", FLOW, request)
        for node, sent, delivered in (("alpha", 1000, 900), ("bravo", 0, 0), ("alpha", 3000, 2500)):
            counted = status.GrantStatus(
                request_id=FLOW, node=node, generation=1, state=status.GRANT_STATE_REMOVED, sent_bytes=sent,
                delivered_bytes=delivered,
            )  # fmt: skip
            await broker.publish("chart.grant-status.v1", f"{FLOW},{node}", counted)
    finally:
        await broker.close()


async def fetch(place: World, url: str, folder: Path) -> None:
    """What alice does; others get nothing."""
    server = ("--server", url)

    async def counted() -> bool:
        answer = await place.client.get(f"/v1/receipts/{FLOW}", headers=place.headers("application", subject="alice"))
        if answer.status_code != 200:
            return False
        statement = answer.json()["receipt"].split(".")[1]
        return bool(json.loads(base64.urlsafe_b64decode(statement + "=="))["delivered_bytes"] == 2500)

    await eventually(counted, 20)
    alice = ("--token", place.token("application", subject="alice"))
    bob = ("--token", place.token("application", subject="bob"))
    got = await chart("receipt", "get", FLOW, "-o", str(folder / "receipt.json"), *server, *alice)
    assert got[0] == 0, got[1]
    kept = await chart("receipt", "keys", "--keys", str(folder / "keys.json"), *server, *alice)
    assert kept[0] == 0, kept[1]
    others = await chart("receipt", "get", FLOW, *server, *bob)
    assert others[0] != 0
    assert "another" in others[1]


async def test_a_receipt_is_fetched_through_the_gateway_and_verified_offline(
    postgres: PostgresServer, kafka: KafkaServer, tmp_path: Path, store_settings: dict[str, Any]
) -> None:
    empty(postgres)
    async with world(tmp_path / "gateway") as place, listening(place) as url:
        settings = settings_of(
            postgres.role_url("authority"), tmp_path / "state", kafka_bootstrap=kafka.bootstrap,
            token_jwks_url=f"{url}/dev-issuer/jwks", **store_settings,
        )  # fmt: skip
        async with running(settings, tmp_path) as authority:
            place.gateway.authority = AuthorityClient(
                GatewaySettings(authority_url=f"https://127.0.0.1:1,{authority.url}", state_dir=settings.state_dir)
            )
            await publish(kafka.bootstrap)
            await fetch(place, url, tmp_path)
    # From here on nothing runs that could be asked.
    keys = ("--keys", str(tmp_path / "keys.json"))
    code, said = await chart("receipt", "verify", str(tmp_path / "receipt.json"), *keys, "--json")
    assert code == 0, said
    statement = json.loads(said)["statement"]
    assert (statement["sub"], statement["flow"], statement["sent_bytes"]) == ("alice", FLOW, 3000)
    assert statement["granted"]["guaranteed_bps"] == 5_000_000
    assert {one["node"] for one in statement["nodes"]} == {"alpha", "bravo"}
    head, _, signature = json.loads((tmp_path / "receipt.json").read_text())["receipt"].split(".")
    more = base64.urlsafe_b64encode(json.dumps({**statement, "delivered_bytes": 9}).encode()).rstrip(b"=").decode()
    (tmp_path / "altered.json").write_text(json.dumps({"receipt": f"{head}.{more}.{signature}"}))
    assert (await chart("receipt", "verify", str(tmp_path / "altered.json"), *keys))[0] == 1
