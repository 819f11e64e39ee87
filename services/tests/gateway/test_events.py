"""The event stream: resume, filter, coalescing, slow clients, ownership; over the hub and over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from chart.common.clock import FakeClock
from chart.gateway.ended import Introspection
from chart.gateway.events import NAMES, TURNS, EventHub, EventStream, Filter, TooManyClientsError, written
from chart.gateway.live import Change
from chart.v1 import grant_status_pb2, link_load_pb2, link_rate_pb2, measurement_pb2, policy_pb2, topology_pb2
from support.gateway import NOW_US, World, listening, world
from support.waiting import eventually

EVERYTHING = Filter(frozenset(NAMES), "me", True)


def hub(**change: Any) -> EventHub:
    settings = {"ring": 100, "client_queue": 50, "clients": 3, "coalesce_s": 0.2, "ping_s": 15.0, **change}
    return EventHub(FakeClock(), **settings)


def taken(stream: EventStream) -> list[dict[str, Any]]:
    """Events that wait in a stream now."""
    text = written(stream._queue, together=stream.wanted.together)
    stream._queue.clear()
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":") and ": " in line)
        if "event" in fields:
            found.append({**fields, "data": json.loads(fields["data"])})
    return found


def change(number: int, name: str = "policy", **more: Any) -> Change:
    return Change(name, {"n": number}, **more)


def numbers(stream: EventStream) -> list[int]:
    return [event["data"]["n"] for event in taken(stream)]


async def test_resume_gives_exactly_what_was_missed() -> None:
    center = hub()
    first = center.open(EVERYTHING, None)
    center.publish(change(n) for n in range(5))
    seen = taken(first)
    again = center.open(EVERYTHING, seen[2]["id"])
    assert numbers(again) == [3, 4]
    center.publish([change(5)])
    assert numbers(again) == [5]
    up_to_date = center.open(EVERYTHING, taken(first)[-1]["id"])
    assert taken(up_to_date) == []


@pytest.mark.parametrize("identity", ["other-3", "x", "-", "5", "0-99999999999999999999999999"])
async def test_resume_from_elsewhere_says_resync(identity: str) -> None:
    center = hub()
    center.publish([change(1)])
    assert [event["event"] for event in taken(center.open(EVERYTHING, identity))] == ["resync"]


async def test_resume_beyond_the_ring_says_resync() -> None:
    center = hub(ring=3)
    first = center.open(EVERYTHING, None)
    center.publish([change(0)])
    identity = taken(first)[0]["id"]
    center.publish(change(n) for n in range(1, 4))
    assert numbers(center.open(EVERYTHING, identity)) == [1, 2, 3]
    center.publish([change(4)])
    assert [event["event"] for event in taken(center.open(EVERYTHING, identity))] == ["resync"]


async def test_loads_are_coalesced_by_link() -> None:
    center = hub()
    stream = center.open(EVERYTHING, None)
    for n in range(10):
        center.publish([change(n, "link-load", coalesce_key="a"), change(n + 100, "link-load", coalesce_key="b")])
    assert taken(stream) == []
    center.flush()
    assert sorted(numbers(stream)) == [9, 109]
    center.flush()
    assert taken(stream) == []


async def test_links_take_turns_within_the_interval() -> None:
    center = hub()
    stream = center.open(EVERYTHING, None)
    center.publish(change(n, "link-load", coalesce_key=f"link-{n}") for n in range(100))
    seen: list[int] = []
    for turn in range(TURNS):
        center.flush(turn)
        now = numbers(stream)
        assert 0 < len(now) < 60
        seen += now
    assert sorted(seen) == list(range(100))


async def test_together_is_a_list_and_resumes_only_after_all_of_it() -> None:
    center = hub()
    stream = center.open(Filter(frozenset(NAMES), "operator", True, together=True), None)
    for n in range(3):
        center.publish([change(n, "link-load", coalesce_key=f"l{n}"), change(n, "link-rate", coalesce_key=f"r{n}")])
    center.flush()
    center.publish([change(7)])
    first, last, policy = taken(stream)
    assert {first["event"], last["event"]} == {"link-load", "link-rate"}
    assert sorted(one["n"] for one in first["data"]) == sorted(one["n"] for one in last["data"]) == [0, 1, 2]
    assert "id" not in first
    assert policy["data"] == {"n": 7}
    resumed = center.open(Filter(frozenset(NAMES), "operator", True, together=True), last["id"])
    assert [one["event"] for one in taken(resumed)] == ["policy"]


async def test_filter_and_owner() -> None:
    center = hub(clients=10)
    mine = center.open(Filter(frozenset({"rate-request"}), "me", False), None)
    other = center.open(Filter(frozenset({"rate-request"}), "other", False), None)
    operator = center.open(EVERYTHING, None)
    center.publish([change(1, "rate-request", owner="me"), change(2), change(3, "grant-status", owner="")])
    assert numbers(mine) == [1]
    assert numbers(other) == []
    assert numbers(operator) == [1, 2, 3]
    # Resuming shows no more than following did.
    late = center.open(Filter(frozenset(NAMES), "other", False), f"{center._epoch}-0")
    assert numbers(late) == [2]


async def test_slow_client_is_let_go() -> None:
    center = hub(client_queue=5)
    slow, quick = center.open(EVERYTHING, None), center.open(EVERYTHING, None)
    for n in range(20):
        center.publish([change(n)])
        taken(quick)
    last = taken(slow)
    assert [event["event"] for event in last] == ["closed"]
    assert "slow" in last[0]["data"]["reason"]
    with pytest.raises(StopAsyncIteration):
        await anext(slow)
    center.publish([change(99)])
    assert numbers(quick) == [99]


async def test_ping_limit_and_close() -> None:
    center = hub(ping_s=0.01, clients=1)
    stream = center.open(EVERYTHING, None)
    assert (await anext(stream)).startswith("retry: ")
    assert await anext(stream) == ": ping\n\n"
    with pytest.raises(TooManyClientsError):
        center.open(EVERYTHING, None)
    center.close()
    assert taken(stream)[0]["event"] == "closed"
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


class Reader:
    """Reads an event stream over HTTP in the background."""

    def __init__(self, client: httpx.AsyncClient, headers: dict[str, str], query: str = "") -> None:
        self.events: list[dict[str, Any]] = []
        self._task = asyncio.create_task(self._read(client, headers, query))

    async def _read(self, client: httpx.AsyncClient, headers: dict[str, str], query: str) -> None:
        async with client.stream("GET", f"/v1/events{query}", headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            self.events.append({"event": "open"})
            fields: dict[str, Any] = {}
            async for line in answer.aiter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "event" in fields:
                    self.events.append({**fields, "data": json.loads(fields["data"])})
                    fields = {}

    def named(self, name: str) -> list[Any]:
        return [event["data"] for event in self.events if event["event"] == name]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_every_stream_becomes_an_event(place: World) -> None:
    link = topology_pb2.Link(id="alpha:to-delta", from_node="alpha", to_node="delta", capacity_bps=10_000_000)
    load = link_load_pb2.LinkLoadReport(node="alpha", interval_us=100_000, interval_end_us=NOW_US)
    load.links.add(link_id=link.id, sent_bytes=62_500, queue_bytes=7)
    rate = link_rate_pb2.LinkRates(node="alpha", generation=1, valid_until_us=2**52)
    rate.links.add(link_id=link.id, available_bps=4_000_000)
    async with listening(place) as url, httpx.AsyncClient(base_url=url) as client:
        reader = Reader(client, place.headers())
        await eventually(lambda: reader.events)
        publish = place.broker.publish
        await publish("chart.topology.v1", link.id, topology_pb2.TopologyEntity(revision=1, link=link))
        await publish("chart.policy.v1", "default", policy_pb2.Policy(id="default", revision=3))
        await eventually(lambda: reader.named("topology"))
        await publish("chart.link-load.v1", "alpha", load)
        await publish("chart.link-rate.v1", "alpha", rate)
        measured = measurement_pb2.Measurement(
            source_node="alpha", destination_node="delta", metric="rtt_us", value=5.0, unit="us", measured_at_us=2**52
        )
        await publish("chart.measurement.v1", "alpha,delta,rtt_us", measured)
        status = grant_status_pb2.GrantStatus(
            request_id="r", node="alpha", state=grant_status_pb2.GRANT_STATE_FAILED, reason="no"
        )
        await publish("chart.grant-status.v1", "r,alpha", status)
        wanted = ("policy", "link-load", "link-rate", "measurement", "grant-status")
        await eventually(lambda: all(reader.named(name) for name in wanted))
        await reader.close()
    assert reader.named("link-load")[0] | {"at": ""} == {
        "link_id": "alpha:to-delta",
        "sent_bps": 5_000_000,
        "explicit_rate_bps": 0,
        "legacy_bps": 0,
        "utilisation": 0.5,
        "queue_bytes": 7,
        "dropped_packets": 0,
        "at": "",
    }
    assert reader.named("link-rate")[0]["available_bps"] == 4_000_000
    assert reader.named("topology")[0]["link"]["id"] == "alpha:to-delta"
    assert reader.named("policy")[0]["revision"] == 3
    assert reader.named("measurement")[0]["value"] == 5.0
    assert reader.named("grant-status")[0]["state"] == "FAILED"


async def test_application_hears_of_its_own_requests(place: World) -> None:
    async with listening(place) as url, httpx.AsyncClient(base_url=url) as client:
        mine = Reader(client, place.headers("application", subject="mine"))
        other = Reader(client, place.headers("application", subject="other"))
        operator = Reader(client, place.headers("operator"), "?events=rate-request")
        await eventually(lambda: mine.events and other.events and operator.events)
        body = {"source": "alpha", "destination": "delta", "guaranteed_bps": 1_000_000}
        await client.post("/v1/rate-requests", json=body, headers=place.headers("application", subject="mine"))
        await eventually(lambda: mine.named("rate-request") and operator.named("rate-request"))
        assert mine.named("rate-request")[0]["owner"] == "mine"
        assert not other.named("rate-request")
        for reader in (mine, other, operator):
            await reader.close()


async def test_resume_over_http(place: World) -> None:
    async with listening(place) as url, httpx.AsyncClient(base_url=url) as client:
        reader = Reader(client, place.headers())
        await eventually(lambda: reader.events)
        for revision in (1, 2):
            await place.broker.publish("chart.policy.v1", "default", policy_pb2.Policy(id="default", revision=revision))
            await eventually(lambda: len(reader.named("policy")) >= revision)  # noqa: B023 - awaited in the loop
        await reader.close()
        await place.broker.publish("chart.policy.v1", "default", policy_pb2.Policy(id="default", revision=3))
        resumed = Reader(client, {**place.headers(), "Last-Event-ID": reader.events[1]["id"]})
        await eventually(lambda: len(resumed.named("policy")) == 2)
        assert [data["revision"] for data in resumed.named("policy")] == [2, 3]
        await resumed.close()
        # A browser's new EventSource cannot send the header: the same in the address.
        browser = Reader(client, place.headers(), f"?after={reader.events[1]['id']}")
        await eventually(lambda: len(browser.named("policy")) == 2)
        await browser.close()


async def test_unknown_event_is_refused(place: World) -> None:
    answer = await place.client.get("/v1/events?events=weather", headers=place.headers())
    assert answer.status_code == 422
    assert answer.json()["field"] == "events"


async def test_a_stream_ends_with_its_token(tmp_path: Path) -> None:
    async with (
        world(tmp_path, events_check_s=0.1, dev_token_lifetime_s=2) as place,
        listening(place) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        reader = Reader(client, place.headers())
        await eventually(lambda: reader.named("closed"), 10)
        assert "the token has expired" in reader.named("closed")[0]["reason"]
        await reader.close()


async def test_a_stream_ends_when_its_session_is_signed_out(tmp_path: Path) -> None:
    async with (
        world(tmp_path, events_check_s=0.1) as place,
        listening(place) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        await client.post("/auth/dev-login", json={"role": "operator"})
        session = client.cookies["chart_session"]
        reader = Reader(client, {"Cookie": f"chart_session={session}"})
        other = Reader(client, place.headers())
        await eventually(lambda: reader.events and other.events)
        assert (await client.post("/auth/logout", json={})).status_code == 204
        await eventually(lambda: reader.named("closed"), 5)
        assert "signed out" in reader.named("closed")[0]["reason"]
        # The token itself is worth nothing any more either; another's goes on.
        answer = await client.get("/auth/me", headers={"Authorization": f"Bearer {session}"})
        assert (answer.status_code, "signed out" in answer.text) == (401, True)
        assert not other.named("closed")
        await reader.close()
        await other.close()


class Provider(httpx.AsyncBaseTransport):
    """Says whether tokens count (RFC 7662)."""

    def __init__(self) -> None:
        self.active: bool | None = True
        self.asked = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        assert request.headers["authorization"].startswith("Basic ")
        if self.active is None:
            return httpx.Response(503)
        return httpx.Response(200, json={"active": self.active})


async def test_a_stream_ends_when_the_provider_revokes_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chart.gateway.ended.ANSWER_KEPT_S", 0.05)
    async with (
        world(tmp_path, events_check_s=0.1) as place,
        listening(place) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        provider = Provider()
        settings = place.gateway.settings.model_copy(update={"token_introspection_url": "https://issuer/introspect"})
        place.gateway.introspection = Introspection(settings, provider)
        reader = Reader(client, place.headers())
        await eventually(lambda: provider.asked >= 2, 10)
        # A provider that is away ends nothing.
        provider.active = None
        asked = provider.asked
        await eventually(lambda: provider.asked >= asked + 2, 10)
        assert not reader.named("closed")
        provider.active = False
        await eventually(lambda: reader.named("closed"), 5)
        assert "revoked" in reader.named("closed")[0]["reason"]
        await reader.close()


def test_streams_of_one_subject_are_limited() -> None:
    center = hub(clients_per_subject=2)
    mine = Filter(frozenset(NAMES), "app", sees_all=False)
    streams = [center.open(mine, None) for _ in range(2)]
    with pytest.raises(TooManyClientsError, match="app has 2 event streams open already"):
        center.open(mine, None)
    center.open(Filter(frozenset(NAMES), "other", sees_all=False), None)
    streams[0].close()
    center.open(mine, None)
