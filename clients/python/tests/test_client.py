"""The client against a running gateway, and its repeated tries against scripted answers."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import Literal, TypedDict

import httpx
import pytest

import chart_client
from chart.v1 import policy_pb2
from chart_client import Client, errors, sse
from chart_client.transport import Transport
from chart_client.units import format_bps, parse_rate
from support.gateway_thread import Running
from support.waiting import eventually


class Asked(TypedDict):
    guaranteed_bps: int
    destination_port: int
    protocol: Literal["tcp", "udp"]


def test_life_of_a_request(gateway: Running) -> None:
    with Client() as chart:
        asked: Asked = {"guaranteed_bps": 60_000_000, "destination_port": 5201, "protocol": "tcp"}
        assert chart.rate_requests.preview("alpha", "delta", **asked).granted
        request = chart.rate_requests.create("alpha", "delta", **asked, duration_s=600)
        assert chart.rate_requests.wait_enforced(request.id).enforcement == "ENFORCED"
        assert request.request.destination_port == 5201
        assert [one.id for one in chart.rate_requests.list(lifecycle="ACTIVE")] == [request.id]
        refusal = chart.rate_requests.preview("alpha", "delta", **asked)
        assert refusal.refusal is not None
        assert refusal.refusal.ceiling == 40_000_000
        with pytest.raises(chart_client.RefusedError) as caught:
            chart.rate_requests.create("alpha", "delta", **asked)
        assert caught.value.problem.field == "guaranteed_bps"
        assert caught.value.problem.ceiling == 40_000_000
        assert chart.rate_requests.release(request.id).lifecycle == "RELEASED"
        gateway.place.reservations.requests[request.id].enforcement = 1
        with pytest.raises(chart_client.NotEnforcedError, match="released"):
            chart.rate_requests.wait_enforced(request.id)
        with pytest.raises(chart_client.NotFoundError):
            chart.rate_requests.get("nothing")


def test_network(gateway: Running) -> None:
    with Client() as chart:
        for name in ("alpha", "delta"):
            chart.nodes.put(name, addresses=["10.1.0.1/32"])
        link = chart.links.put("alpha:to-delta", to_node="delta", capacity_bps=10**8, delay_us=1000)
        assert (link.from_node, link.interface) == ("alpha", "to-delta")
        assert [node.id for node in chart.nodes.list()] == ["alpha", "delta"]
        assert chart.policies.put(enforcement="observe").enforcement == "observe"
        assert chart.policies.get().revision == 1
        configured = chart.sensing_configurations.put(
            "x", source_node="alpha", destination_node="delta", destination_address="10.1.0.2", sensor="ping",
            period_ms=1000,
        )  # fmt: skip
        assert configured.owner == "chart-cli"
        assert [item.metric for item in chart.measurements.list(source="alpha")] == ["rtt_us"]
        assert chart.series("link", "alpha:to-delta", "sent_bps").points[1].value is None
        assert set(chart.ready().values()) == {"ok"}
        chart.sensing_configurations.delete("x")
        chart.links.delete("alpha:to-delta")
        assert list(chart.links.list()) == []


def test_wrong_token(gateway: Running) -> None:
    with Client(token="nonsense") as chart, pytest.raises(chart_client.NotAllowedError):
        list(chart.nodes.list())


def test_events_go_on_after_a_break(gateway: Running) -> None:
    hub = gateway.place.gateway.hub

    async def publish(revision: int) -> None:
        policy = policy_pb2.Policy(id="default", revision=revision)
        await gateway.place.broker.publish("chart.policy.v1", "default", policy)

    async def publish_when_heard() -> None:
        await eventually(lambda: hub._clients)
        await publish(1)

    async def break_all_and_publish() -> None:
        for stream in tuple(hub._clients):
            stream.end("a break")
        await publish(2)

    with Client() as chart:
        events = chart.events(["policy"])
        heard = asyncio.run_coroutine_threadsafe(publish_when_heard(), gateway.loop)
        assert next(events).data["revision"] == 1
        heard.result(5)
        asyncio.run_coroutine_threadsafe(break_all_and_publish(), gateway.loop).result(5)
        seen = list(itertools.islice(events, 2))
        assert [event.name for event in seen] == ["closed", "policy"]
        assert seen[1].data["revision"] == 2


def scripted(*answers: httpx.Response | Exception) -> tuple[Transport, list[httpx.Request], list[float]]:
    sent: list[httpx.Request] = []
    pauses: list[float] = []
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        now = left.pop(0)
        if isinstance(now, Exception):
            raise now
        return now

    transport = Transport(
        "http://gateway", "t", timeout_s=1, transport=httpx.MockTransport(answer), sleep=pauses.append
    )
    return transport, sent, pauses


def test_tries_again_with_the_same_key() -> None:
    away = httpx.Response(503, headers={"Retry-After": "2"}, json={"title": "x", "status": 503})
    transport, sent, pauses = scripted(httpx.ConnectError("no"), away, httpx.Response(201, json={"ok": True}))
    answer = transport.request("POST", "/v1/rate-requests", body={}, headers={"Idempotency-Key": "k"})
    assert answer.json() == {"ok": True}
    assert [request.headers["idempotency-key"] for request in sent] == ["k"] * 3
    assert pauses[1] == 2.0
    assert 0 < pauses[0] <= 0.2


def test_every_post_carries_a_key_of_its_own() -> None:
    under_way = httpx.Response(409, headers={"Retry-After": "1"}, json={"title": "Under way", "status": 409})
    done = httpx.Response(200, json={})
    transport, sent, pauses = scripted(httpx.ReadTimeout("late"), under_way, done, done, done)
    for method in ("POST", "POST", "PUT"):
        transport.request(method, "/v1/rate-requests/r/release")
    keys = [request.headers.get("idempotency-key") for request in sent]
    assert keys[0] == keys[1] == keys[2]
    assert None not in keys[:4]
    assert keys[3] != keys[0]
    assert keys[4] is None
    assert pauses[1] == 1.0
    transport, _, _ = scripted(httpx.Response(409, json={"title": "Refused", "detail": "full", "status": 409}))
    with pytest.raises(errors.RefusedError, match="full"):
        transport.request("POST", "/v1/rate-requests")


def test_gives_up_and_says_why() -> None:
    transport, sent, _ = scripted(*[httpx.ConnectError("refused")] * 4)
    with pytest.raises(errors.UnreachableError, match="no response from the gateway at http://gateway: refused"):
        transport.request("GET", "/v1/nodes")
    assert len(sent) == 4
    transport, sent, _ = scripted(httpx.Response(422, json={"title": "Invalid", "detail": "no", "status": 422}))
    with pytest.raises(errors.RefusedError, match="no"):
        transport.request("GET", "/v1/nodes")
    assert len(sent) == 1
    transport, _, _ = scripted(httpx.Response(502, text="<html>"))
    with pytest.raises(errors.ProblemError, match="502"):
        transport.request("GET", "/v1/nodes")


def test_parsing_of_events() -> None:
    lines = [
        ": hello",
        "retry: 5",
        "",
        "id: 7",
        "event: policy",
        'data: {"a":',
        "data: 1}",
        "",
        "event: half",
        "data: {",
    ]
    assert list(sse.parse(lines)) == [chart_client.Event(id="7", name="policy", data={"a": 1})]


def test_units() -> None:
    assert [parse_rate(text) for text in ("60M", "1.5 Gbit/s", "800kbps", "9")] == [
        60_000_000,
        1_500_000_000,
        800_000,
        9,
    ]
    for wrong in ("", "M", "-5M", "60 apples"):
        with pytest.raises(ValueError, match="is not a rate"):
            parse_rate(wrong)
    assert [format_bps(rate) for rate in (60_000_000, 0, None)] == ["60 Mbit/s", "0 bit/s", "-"]


def test_times_need_a_zone(gateway: Running) -> None:
    with Client() as chart:
        with pytest.raises(ValueError, match="zone"):
            chart.series("link", "a:b", "sent_bps", start=datetime(2026, 1, 1))
        assert chart.series("link", "a:b", "sent_bps", start=datetime.now(UTC).replace(minute=0, microsecond=1)).unit
