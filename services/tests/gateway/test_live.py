"""The live view: staleness, leases, and streams that come, go and carry nonsense."""

from __future__ import annotations

from typing import Any

from prometheus_client import REGISTRY

from chart.common.clock import FakeClock
from chart.common.streams import LocalBroker
from chart.gateway.events import NAMES, EventHub, Filter, written
from chart.gateway.live import LiveState, Staleness
from chart.gateway.streams import Followers
from chart.v1 import (
    link_load_pb2,
    link_rate_pb2,
    measurement_pb2,
    node_state_pb2,
    policy_pb2,
    rate_request_pb2,
    topology_pb2,
)
from support.gateway import NOW_US, World
from support.waiting import eventually

LINK = topology_pb2.Link(id="a:to-b", from_node="a", to_node="b", interface="to-b", capacity_bps=1000)
SECOND_US = 1_000_000
EDGE = {"interface": "eth1", "aggregate_bps": 10**7, "exceed": "drop"}


def live() -> LiveState:
    return LiveState(Staleness(node_us=30 * SECOND_US, load_us=2 * SECOND_US, measurement_us=120 * SECOND_US))


def test_what_has_run_out_is_not_shown() -> None:
    state = live()
    load = link_load_pb2.LinkLoadReport(node="a", interval_us=100_000, interval_end_us=NOW_US)
    load.links.add(link_id="a:to-b", sent_bytes=1)
    rate = link_rate_pb2.LinkRates(node="a", valid_until_us=NOW_US + 10 * SECOND_US)
    rate.links.add(link_id="a:to-b", available_bps=5)
    agent = node_state_pb2.NodeState(node="a", reported_at_us=NOW_US)
    measured = measurement_pb2.Measurement(
        source_node="a", destination_node="b", metric="loss_ratio", value=0.05, measured_at_us=NOW_US
    )
    for topic, key, value in (
        ("chart.link-load.v1", "a", load),
        ("chart.link-rate.v1", "a", rate),
        ("chart.node-state.v1", "a", agent),
        ("chart.measurement.v1", "a,b,loss_ratio", measured),
    ):
        state.apply(topic, key, value, NOW_US)
    now = state.link(LINK, 1, NOW_US + SECOND_US)
    assert now.load is not None
    assert now.rate is not None
    assert now.measured is not None
    assert now.measured.loss_ratio is not None
    assert now.measured.rtt_us is None
    assert not now.measured.loss_ratio.stale
    later = state.link(LINK, 1, NOW_US + 200 * SECOND_US)
    assert later.load is None
    assert later.rate is None
    assert later.measured is not None
    assert later.measured.loss_ratio is not None
    assert later.measured.loss_ratio.stale
    fresh, silent = (state.state_of("a", NOW_US + age * SECOND_US) for age in (1, 31))
    assert fresh is not None
    assert silent is not None
    assert (fresh.stale, silent.stale) == (False, True)


def test_failed_and_older_measurements_do_not_win() -> None:
    state = live()

    def measured(value: float, at_us: int, error: str = "") -> list[object]:
        message = measurement_pb2.Measurement(
            source_node="a", destination_node="b", metric="rtt_us", value=value, measured_at_us=at_us, error=error
        )
        return [*state.apply("chart.measurement.v1", "k", message, NOW_US)]

    assert len(measured(5.0, NOW_US)) == 1
    assert measured(7.0, NOW_US - 1) == []
    assert len(measured(0.0, NOW_US + 1, "unreachable")) == 1
    assert state.link(LINK, 1, NOW_US).measured is None


def test_a_change_of_the_default_policy_is_one_of_those_that_follow_it() -> None:
    state = live()
    enforce, observe = policy_pb2.ENFORCEMENT_MODE_ENFORCE, policy_pb2.ENFORCEMENT_MODE_OBSERVE
    own = policy_pb2.Policy(id="a", max_guaranteed_bps=5, quick_start_request_bps=0)
    state.apply("chart.policy.v1", "default", policy_pb2.Policy(id="default", enforcement=enforce), NOW_US)
    assert [one.data["in_force"]["enforcement"] for one in state.apply("chart.policy.v1", "a", own, NOW_US)] == [
        "enforce"
    ]
    default = policy_pb2.Policy(id="default", enforcement=observe)
    changes = {one.data["id"]: one.data for one in state.apply("chart.policy.v1", "default", default, NOW_US)}
    assert (changes["a"]["enforcement"], changes["a"]["in_force"]["enforcement"]) == (None, "observe")
    # Nothing to ask for is said, and stands beside a default of something.
    default.quick_start_request_bps = 80_000_000
    changes = {one.data["id"]: one.data for one in state.apply("chart.policy.v1", "default", default, NOW_US)}
    asked = {name: one["in_force"]["quick_start_request_bps"] for name, one in changes.items()}
    assert asked == {"a": 0, "default": 80_000_000}


def test_a_node_that_drops_a_link_drops_its_rate() -> None:
    state = live()
    rate = link_rate_pb2.LinkRates(node="a", valid_until_us=NOW_US + SECOND_US)
    rate.links.add(link_id="a:to-b", available_bps=5)
    state.apply("chart.link-rate.v1", "a", rate, NOW_US)
    state.apply("chart.link-rate.v1", "a", link_rate_pb2.LinkRates(node="a", valid_until_us=NOW_US), NOW_US)
    assert state.link(LINK, 1, NOW_US).rate is None


async def test_followers_read_what_was_there_without_events_and_skip_nonsense() -> None:
    import asyncio

    broker, clock = LocalBroker(), FakeClock()
    hub = EventHub(clock, ring=100, client_queue=50, clients=3, coalesce_s=0.2, ping_s=15.0)
    stream = hub.open(Filter(frozenset(NAMES), "me", True), None)
    state = live()
    await broker.publish("chart.policy.v1", "old", policy_pb2.Policy(id="old", revision=1))
    followers = Followers(broker, state, hub, clock)
    assert followers.missing
    tasks = [asyncio.create_task(loop) for loop in followers.loops()]
    try:
        await eventually(lambda: not followers.missing)
        assert set(state.policies) == {"old"}
        nonsense = rate_request_pb2.RateRequest(id="bad", created_at_us=2**62)
        await broker.publish("chart.rate-request.v1", "bad", nonsense)
        await broker.publish("chart.rate-request.v1", "good", rate_request_pb2.RateRequest(id="good", owner="o"))
        faulty = node_state_pb2.NodeState(node="n", faults=["the edge eth9 is not policed: no such interface"])
        await broker.publish("chart.node-state.v1", "n", faulty)
        await eventually(lambda: REGISTRY.get_sample_value("chart_gateway_node_faults", {"node": "n"}) == 1)
        await broker.publish("chart.node-state.v1", "n", None)
        await eventually(lambda: REGISTRY.get_sample_value("chart_gateway_node_faults", {"node": "n"}) is None)
        await broker.publish("chart.policy.v1", "old", None)
        await eventually(lambda: not state.policies and "good" in state.requests)
        text = written(stream._queue, together=False)
        assert '"good"' in text
        assert '"removed":true' in text
        assert '"revision":1' not in text
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await broker.close()


async def test_rest_shows_the_streams(place: World) -> None:
    headers = place.headers()
    body = {"map_position": {"x": 0.5, "y": 1}, "edges": [EDGE]}
    await place.client.put("/v1/nodes/alpha", json=body, headers=headers)
    stated = {"to_node": "delta", "capacity_bps": 1000, "scone": True, "quick_start": True}
    advice: dict[str, Any] = {"quick_start_threshold": 0.75, "quick_start_share": 0.5, "scone_police": True}
    advice |= {"advice_prefixes": ["10.4.0.0/16", "2001:db8::/32"]}
    stated |= advice
    await place.client.put("/v1/links/alpha:to-delta", json=stated, headers=headers)
    await place.broker.publish(
        "chart.node-state.v1",
        "alpha",
        node_state_pb2.NodeState(
            node="alpha", enforcement=policy_pb2.ENFORCEMENT_MODE_ENFORCE, reported_at_us=2**52, faults=["no HTB"]
        ),
    )
    await eventually(lambda: place.gateway.live.node_states)
    node = (await place.client.get("/v1/nodes/alpha", headers=headers)).json()
    assert node["state"]["enforcement"] == "enforce"
    assert node["state"]["faults"] == ["no HTB"]
    assert node["map_position"] == {"x": 0.5, "y": 1.0}
    assert node["edges"] == [EDGE | {"depth_ms": 100}]
    link = (await place.client.get("/v1/links", headers=headers)).json()["items"][0]
    assert (link["from_node"], link["interface"], link["admission_share"]) == ("alpha", "to-delta", 0.8)
    assert link["scone"] is True
    assert link["quick_start"] is True
    assert {name: link[name] for name in advice} == advice
    assert (link["load"], link["rate"], link["measured"]["rtt_us"]["value"]) == (None, None, 1234.5)
    measured = await place.client.get("/v1/measurements?source=alpha&metric=rtt_us", headers=headers)
    assert [item["value"] for item in measured.json()["items"]] == [1234.5]
    assert (await place.client.get("/v1/measurements?source=nobody", headers=headers)).json()["items"] == []


async def test_pages(place: World) -> None:
    headers = place.headers()
    for number in range(5):
        await place.client.put(f"/v1/nodes/n{number}", json={}, headers=headers)
    seen, cursor = [], None
    while True:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = (await place.client.get("/v1/nodes", params=query, headers=headers)).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [f"n{number}" for number in range(5)]
    answer = await place.client.get("/v1/nodes?cursor=5", headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (422, "cursor")


async def test_series(place: World) -> None:
    path = "/v1/series?kind=link&subject=alpha:to-delta&metric=sent_bps"
    query = "&from=2026-01-01T00:00:00Z&until=2026-01-01T00:10:00Z&step_ms=1000"
    answer = (await place.client.get(path + query, headers=place.headers())).json()
    assert answer["unit"] == "bps"
    assert answer["points"][0]["at"] == "2026-01-01T00:00:00.000000Z"
    assert answer["points"][1]["value"] is None
    for wrong, field in (
        ("&from=2026-01-01T00:10:00Z&until=2026-01-01T00:00:00Z", "from"),
        ("&from=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z&step_ms=1", "step_ms"),
        ("&from=yesterday", "from"),
        ("&from=1970-01-01T00:00:00Z", "from"),
    ):
        refused = await place.client.get(path + wrong, headers=place.headers())
        assert (refused.status_code, refused.json()["field"]) == (422, field), wrong
