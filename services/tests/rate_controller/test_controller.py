"""The controller between a small cluster and a gateway with small services behind it, over their own interfaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest_asyncio

from chart.common.clock import SystemClock
from chart.common.kubernetes import ApiServer
from chart.rate_controller.asks import FINALIZER
from chart.rate_controller.controller import Controller, remove_finalizers
from chart.rate_controller.gateway import GatewayClient
from chart.rate_controller.settings import RateControllerSettings
from chart.v1 import rate_request_pb2 as rr
from support.cluster import Cluster, running_cluster
from support.gateway import World, listening, world
from support.kubernetes import OWN_TOKEN, token
from support.waiting import eventually

AUDIENCE = "chart-gateway"
ACCOUNT = "chart-system/chart-rate-controller"
SPEC: dict[str, Any] = {"podSelector": {"matchLabels": {"app": "sender"}}, "destination": "delta", "rate": "40M"}


@dataclass
class Place:
    """A cluster, a gateway, and what the controller is told of both."""

    cluster: Cluster
    gateway: World
    settings: RateControllerSettings
    api: ApiServer

    def live(self) -> list[Any]:
        return [one for one in self.gateway.reservations.requests.values() if one.lifecycle == rr.LIFECYCLE_ACTIVE]

    def finalizers(self, name: str) -> list[str]:
        found: list[str] = self.cluster.objects["raterequests", "batch", name]["metadata"].get("finalizers") or []
        return found


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    own, mine = tmp_path / "api-token", tmp_path / "gateway-token"
    own.write_text(OWN_TOKEN)
    mine.write_text(token(ACCOUNT, audience=AUDIENCE))
    async with running_cluster() as cluster:
        given = {"kubernetes_url": cluster.url, "kubernetes_token_file": own, "kubernetes_controllers": (ACCOUNT,)}
        async with world(tmp_path, **given) as gateway, listening(gateway) as url:
            gateway.reservations.known |= {f"10.1.0.{number}" for number in range(1, 9)}
            settings = RateControllerSettings(
                kubernetes_url=cluster.url, kubernetes_token_file=own, gateway_url=url, gateway_token_file=mine,
                resync_s=0.3, settling_s=0.05, retry_first_s=0.2, retry_last_s=0.4,
            )  # fmt: skip
            yield Place(cluster, gateway, settings, ApiServer(cluster.url, token_file=own))


@asynccontextmanager
async def controlling(place: Place) -> AsyncIterator[Controller]:
    async with GatewayClient(place.settings) as gateway:
        controller = Controller(place.settings, place.api, gateway, SystemClock())
        task = asyncio.create_task(controller.run())
        try:
            yield controller
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_pod_s_annotations_become_a_request_of_its_namespace(place: Place) -> None:
    place.cluster.pod("batch", "sender-1", "10.1.0.5", egress_rate="40M", destination="delta")
    async with controlling(place):
        await eventually(lambda: place.cluster.events("sender-1"))
        (one,) = place.live()
        assert one.owner == "system:serviceaccount:batch:chart-rates"
        assert list(place.gateway.reservations.callers[one.id].addresses) == ["10.1.0.5"]
        assert (one.specification.source, one.granted_bps) == ("10.1.0.5", 40_000_000)
        assert place.cluster.events("sender-1") == [
            f"Normal RateEnforced 40 Mbit/s granted and enforced (request {one.id})"
        ]
        place.cluster.delete("pods", "batch", "sender-1")
        await eventually(lambda: not place.live())


async def test_a_rate_request_serves_every_selected_pod_until_it_is_deleted(place: Place) -> None:
    place.cluster.pod("batch", "sender-1", "10.1.0.5")
    place.cluster.request("batch", "copy", **SPEC)
    async with controlling(place):
        await eventually(lambda: place.cluster.status("copy").get("state") == "Enforced")
        assert place.finalizers("copy") == [FINALIZER]
        place.cluster.pod("batch", "sender-2", "10.1.0.6")
        await eventually(lambda: place.cluster.status("copy")["enforced"] == 2)
        # Another rate for both, over the same requests.
        before = {one.id for one in place.live()}
        place.cluster.request("batch", "copy", **{**SPEC, "rate": "30M"})
        await eventually(lambda: {one.granted_bps for one in place.live()} == {30_000_000})
        assert {one.id for one in place.live()} == before
        await eventually(lambda: place.cluster.status("copy")["observedGeneration"] == 2)
        place.cluster.delete("raterequests", "batch", "copy")
        await eventually(lambda: ("raterequests", "batch", "copy") not in place.cluster.objects)
        assert not place.live()


async def test_a_refusal_is_told_and_tried_again_until_there_is_room(place: Place) -> None:
    place.cluster.pod("batch", "other-1", "10.1.0.7", egress_rate="70M", destination="delta")
    place.cluster.pod("batch", "sender-1", "10.1.0.5")
    async with controlling(place):
        await eventually(lambda: place.cluster.events("other-1"))
        place.cluster.request("batch", "copy", **SPEC)
        await eventually(lambda: place.cluster.status("copy").get("state") == "Refused")
        (granted,) = [one for one in place.cluster.status("copy")["conditions"] if one["type"] == "Granted"]
        assert "link alpha:to-delta has less left; ask for at most 30000000 bit/s" in granted["message"]
        (event,) = place.cluster.events("copy")
        assert event.startswith("Warning RateRefused pod sender-1: no rate: link alpha")
        place.cluster.delete("pods", "batch", "other-1")
        await eventually(lambda: place.cluster.status("copy")["state"] == "Enforced")


async def test_a_controller_that_starts_anew_makes_nothing_twice_and_loses_nothing(place: Place) -> None:
    place.cluster.pod("batch", "sender-1", "10.1.0.5")
    place.cluster.request("batch", "copy", **SPEC)
    async with controlling(place):
        await eventually(lambda: place.cluster.status("copy").get("state") == "Enforced")
    (before,) = place.live()
    # Meanwhile its pod goes, and another comes.
    place.cluster.delete("pods", "batch", "sender-1")
    place.cluster.pod("batch", "sender-2", "10.1.0.6")
    place.cluster.forget = True
    async with controlling(place):
        await eventually(lambda: [one.specification.source for one in place.live()] == ["10.1.0.6"])
    assert before.lifecycle == rr.LIFECYCLE_RELEASED
    assert len(place.gateway.reservations.requests) == 2


async def test_what_an_operator_released_is_asked_for_again(place: Place) -> None:
    place.cluster.pod("batch", "sender-1", "10.1.0.5", egress_rate="40M", destination="delta")
    async with controlling(place):
        await eventually(place.live)
        (one,) = place.live()
        one.lifecycle = rr.LIFECYCLE_RELEASED
        await eventually(place.live)
        assert place.live()[0].id != one.id


async def test_an_api_server_that_goes_away_loses_nothing(place: Place) -> None:
    place.cluster.request("batch", "copy", **SPEC)
    async with controlling(place):
        await eventually(lambda: place.cluster.status("copy").get("state") == "NoPods")
        place.cluster.away = True
        place.cluster.end_watches()
        await asyncio.sleep(0.3)
        place.cluster.pod("batch", "sender-1", "10.1.0.5")
        place.cluster.away = False
        await eventually(lambda: place.cluster.status("copy")["state"] == "Enforced", limit_s=60)


async def test_a_gateway_that_is_away_is_told_and_a_deletion_waits_for_it(place: Place) -> None:
    place.cluster.pod("batch", "sender-1", "10.1.0.5")
    place.cluster.request("batch", "copy", **SPEC)
    good = place.settings.gateway_url
    async with controlling(place):
        await eventually(lambda: place.cluster.status("copy").get("state") == "Enforced")
    place.settings.gateway_url = "http://127.0.0.1:1"
    async with controlling(place):
        await eventually(lambda: place.cluster.status("copy").get("state") == "Unknown")
        assert "cannot be asked" in place.cluster.status("copy")["conditions"][0]["message"]
        place.cluster.delete("raterequests", "batch", "copy")
        await asyncio.sleep(0.3)
        assert ("raterequests", "batch", "copy") in place.cluster.objects
    place.settings.gateway_url = good
    async with controlling(place):
        await eventually(lambda: ("raterequests", "batch", "copy") not in place.cluster.objects)
    assert not place.live()


async def test_its_own_writing_is_no_news(place: Place) -> None:
    place.settings.resync_s = 60.0
    place.cluster.pod("batch", "sender-1", "10.1.0.5")
    place.cluster.request("batch", "copy", **SPEC)
    async with controlling(place):
        await eventually(lambda: place.cluster.status("copy").get("state") == "Enforced")
        await asyncio.sleep(0.5)
        calls = len(place.cluster.calls)
        await asyncio.sleep(0.5)
        assert len(place.cluster.calls) == calls


async def test_after_an_uninstallation_nothing_holds_rate_requests(place: Place) -> None:
    place.cluster.request("batch", "copy", **SPEC)
    async with controlling(place):
        await eventually(lambda: place.finalizers("copy"))
    assert await remove_finalizers(place.api) == 1
    assert place.finalizers("copy") == []
    assert await remove_finalizers(place.api) == 0
