"""Each service killed with -9 in the middle of requests: what was acknowledged is there, and its grant is out."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from chart.common import streams
from chart.common.settings import BaseServiceSettings
from chart_lab.platform.stack import Platform
from support.waiting import Limit

pytestmark = pytest.mark.contract

NODES = ("north", "middle", "south")


@pytest.fixture(scope="module", autouse=True)
def network(rest: httpx.Client) -> None:
    """Three nodes in a line, with 10 Gb/s links, so that every request of the test fits."""
    for index, node in enumerate(NODES):
        rest.put(f"/v1/nodes/{node}", json={"addresses": [f"10.77.0.{index + 1}/32"]}).raise_for_status()
    for a, b in (("north", "middle"), ("middle", "south")):
        for source, target in ((a, b), (b, a)):
            body = {"to_node": target, "capacity_bps": 10_000_000_000, "delay_us": 1000}
            rest.put(f"/v1/links/{source}:to-{target}", json=body).raise_for_status()


class Requester(threading.Thread):
    """Asks for a small rate again and again; keeps the ids of what was acknowledged."""

    def __init__(self, base_url: str, token: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.failed = 0
        self._stop_asking = threading.Event()
        self._client = httpx.Client(base_url=base_url, headers={"Authorization": f"Bearer {token}"}, timeout=5)

    def run(self) -> None:
        body = {
            "source": "north",
            "destination": "south",
            "protocol": "tcp",
            "service": "guaranteed",
            "guaranteed_bps": 1_000_000,
        }
        with self._client as client:
            while not self._stop_asking.is_set():
                key = str(uuid.uuid4())
                try:
                    answer = client.post("/v1/rate-requests", json=body, headers={"Idempotency-Key": key})
                except httpx.HTTPError:
                    self.failed += 1
                    self._stop_asking.wait(0.05)
                    continue
                if answer.status_code == 201:
                    self.acknowledged.append(answer.json()["id"])
                elif answer.status_code in (502, 503, 504):
                    self.failed += 1
                    self._stop_asking.wait(0.05)
                elif answer.status_code == 429:
                    self._stop_asking.wait(float(answer.headers.get("Retry-After", "1")))
                else:
                    self.refused.append(answer.text)

    def stop(self) -> None:
        self._stop_asking.set()
        self.join(20)
        assert not self.is_alive()


async def granted_ids(platform: Platform) -> set[str]:
    """Ids that have a grant on the stream now."""
    broker = streams.connect(BaseServiceSettings(kafka_bootstrap=platform.settings.kafka_bootstrap))
    try:
        state = await broker.compacted("chart.flow-grant.v1")
        await state.wait_ready()
        return {key for key, _ in state.items()}
    finally:
        await broker.close()


@pytest.mark.parametrize("victim", ["gateway", "reservations", "registry", "allocator", "archiver"])
def test_no_acknowledged_request_is_lost(
    victim: str,
    platform: Platform,
    rest: httpx.Client,
    token: str,
    kill: Callable[[str], int],
    until: Callable[..., None],
) -> None:
    requester = Requester(platform.settings.gateway_url, token)
    requester.start()
    try:
        until(lambda: len(requester.acknowledged) >= 10, "requests are acknowledged before the kill")
        pid = kill(victim)
        before = len(requester.acknowledged)

        def back() -> bool:
            return all(row.healthy and row.pid != pid for row in platform.status())

        try:
            until(back, f"{victim} is back and healthy")
        except AssertionError as error:
            unhealthy = [row for row in platform.status() if not row.healthy]
            logs = [Path(row.log).read_text(errors="replace")[-3000:] for row in unhealthy]
            raise AssertionError(f"{error}: {unhealthy}\n" + "\n".join(logs)) from error
        until(lambda: len(requester.acknowledged) >= before + 10, "requests are acknowledged after the kill")
    finally:
        requester.stop()
    assert requester.refused == []
    for request_id in requester.acknowledged:
        answer = rest.get(f"/v1/rate-requests/{request_id}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["lifecycle"] == "ACTIVE"
    limit = Limit(20)
    missing = set(requester.acknowledged)
    while missing and not limit.over:
        missing -= asyncio.run(granted_ids(platform))
    assert not missing, f"{len(missing)} acknowledged requests never got a grant"
