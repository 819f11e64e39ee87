"""Session rules over REST: what operators state, and what nodes report of it."""

from __future__ import annotations

from typing import Any

import pytest

from chart.gateway import session_rule_mapping
from chart.v1 import flow_grant_pb2, node_state_pb2, session_rule_pb2
from support.gateway import NOW_US, World
from support.waiting import eventually

BODY: dict[str, Any] = {
    "name": "Calls",
    "session_class": "voice",
    "selectors": [{"protocol": "udp", "remote_ports": "16384-32767"}, {"protocol": "udp", "dscp": 46}],
    "service": "guaranteed",
    "guaranteed_bps": 82_000,
    "delay_class": 6,
    "nodes": ["alpha"],
    "node_tags": {"site": "lab"},
}


async def put(place: World, body: dict[str, Any], rule: str = "calls", **headers: str) -> Any:
    return await place.client.put(
        f"/v1/session-rules/{rule}", json=body, headers={**place.headers("operator"), **headers}
    )


async def test_a_rule_is_stated_changed_listed_and_removed(place: World) -> None:
    made = await put(place, BODY)
    assert made.status_code == 201
    assert made.headers["Location"] == "/v1/session-rules/calls"
    stored = made.json()
    assert stored["selectors"][0]["remote_ports"] == "16384-32767"
    assert stored["selectors"][1] == {
        "protocol": "udp",
        "local_ports": None,
        "remote_ports": None,
        "local_prefix": None,
        "remote_prefix": None,
        "dscp": 46,
    }
    assert (stored["expedited"], stored["enabled"], stored["authorised"], stored["built_in"]) == (
        *(True, True, True),
        False,
    )
    changed = await put(place, {**BODY, "enabled": False}, **{"If-Match": made.headers["ETag"]})
    assert (changed.status_code, changed.json()["enabled"]) == (200, False)
    late = await put(place, BODY, **{"If-Match": made.headers["ETag"]})
    assert late.status_code == 412
    headers = place.headers("viewer")
    listed = (await place.client.get("/v1/session-rules", headers=headers)).json()["items"]
    assert [one["id"] for one in listed] == ["calls"]
    refused = await place.client.delete("/v1/session-rules/calls", headers=headers)
    assert refused.status_code == 403
    gone = await place.client.delete("/v1/session-rules/calls", headers=place.headers("operator"))
    assert gone.status_code == 204
    assert (await place.client.get("/v1/session-rules/calls", headers=headers)).status_code == 404


async def test_a_built_in_rule_can_be_changed_and_not_deleted(place: World) -> None:
    made = await put(place, BODY, "telephony")
    assert made.json()["built_in"] is True
    refused = await place.client.delete("/v1/session-rules/telephony", headers=place.headers("operator"))
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:chart:problem:built-in-rule")


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"session_class": "game"}, "session_class"),
        ({"selectors": []}, "selectors"),
        ({"selectors": [{}]}, "selectors[0]"),
        ({"selectors": [{"remote_ports": "9-5"}]}, "selectors"),
        ({"selectors": [{"local_prefix": "ten"}]}, "selectors"),
        ({"selectors": [{"local_prefix": "10.0.0.0/8", "remote_prefix": "fd00::/8"}]}, "selectors[0].remote_prefix"),
        ({"available_bps": 5000}, "available_bps"),
        ({"guaranteed_bps": 0}, "guaranteed_bps"),
        ({"delay_class": 8}, "delay_class"),
        ({"nodes": ["alpha", "alpha"]}, "nodes"),
    ],
)
async def test_a_wrong_rule_is_refused_by_field(place: World, fields: dict[str, Any], at_fault: str) -> None:
    answer = await put(place, {**BODY, **fields})
    assert answer.status_code == 422
    assert str(answer.json()["field"]).startswith(at_fault)


async def test_nodes_report_their_sessions(place: World) -> None:
    revision = (await put(place, BODY)).json()["revision"]
    now_us = place.gateway.clock.now_us()
    for node, sessions, reported_at_us, of_revision in (
        ("alpha", 2, now_us, revision),
        ("bravo", 1, now_us, revision + 1),
        ("silent", 9, NOW_US - 10**9, revision),
    ):
        state = node_state_pb2.NodeState(node=node, reported_at_us=reported_at_us)
        state.session_rules.add(
            rule_id="calls",
            revision=of_revision,
            asks=True,
            sessions=sessions,
            expedited_sessions=1,
            guaranteed_bps=82_000 * sessions,
        )
        await place.broker.publish("chart.node-state.v1", node, state)
    await eventually(lambda: len(place.gateway.live.node_states) == 3)
    shown = (await place.client.get("/v1/session-rules/calls", headers=place.headers("viewer"))).json()
    assert (shown["sessions"], shown["expedited_sessions"]) == (3, 2)
    assert [(one["node"], one["current"], one["guaranteed_bps"]) for one in shown["reported_by"]] == [
        ("alpha", True, 164_000),
        ("bravo", False, 82_000),
    ]


@pytest.mark.parametrize(
    ("delay_class", "burst_tolerance", "guaranteed_bps", "expedited"),
    [(4, 3, 1000, True), (3, 0, 1000, False), (7, 4, 1000, False), (7, 0, 0, False)],
)
def test_which_rules_are_expedited(
    delay_class: int, burst_tolerance: int, guaranteed_bps: int, expedited: bool
) -> None:
    rule = session_rule_pb2.SessionRule(
        delay_class=delay_class,
        burst_tolerance=burst_tolerance,
        guaranteed_bps=guaranteed_bps,
        service=flow_grant_pb2.SERVICE_TYPE_GUARANTEED,
    )
    assert session_rule_mapping.is_expedited(rule) is expedited
