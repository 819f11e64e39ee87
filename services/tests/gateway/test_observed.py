"""Audit, flows and keys: the newest is kept in bounded memory, and shown to those who may see it."""

from __future__ import annotations

import pytest

from chart.common.record_check import RecordCheck
from chart.common.record_mac import RecordMacError
from chart.gateway.observed import Observed
from chart.v1 import audit_pb2, flow_record_pb2, node_state_pb2
from support.gateway import NOW_US, World
from support.waiting import eventually

SECOND_US = 1_000_000
BODY = {"source": "alpha", "destination": "delta", "guaranteed_bps": 1_000_000}


def audit(number: int, **more: str) -> audit_pb2.AuditRecord:
    fields = {"actor": "ann", "action": "node.put", "subject": "alpha", "detail_json": "{}", **more}
    return audit_pb2.AuditRecord(id=f"a{number}", at_us=NOW_US + number, **fields)


def flow(second: int, delivered: int, port: int = 5001, **more: object) -> flow_record_pb2.FlowRecord:
    return flow_record_pb2.FlowRecord(
        node="alpha",
        protocol=6,
        source_address="::ffff:10.0.0.1",
        source_port=40_000,
        destination_address="10.0.0.2",
        destination_port=port,
        started_at_us=NOW_US,
        ended_at_us=NOW_US + second * SECOND_US,
        sent_bytes=delivered,
        delivered_bytes=delivered,
        **more,  # type: ignore[arg-type]
    )


def test_audit_is_bounded_filtered_and_newest_first() -> None:
    held = Observed(audit_max=3)
    for number in (1, 2, 2, 3, 4):
        held.note_audit(audit(number, subject="alpha" if number % 2 else "bravo"))
    assert [one.id for one in held.audit()] == ["a4", "a3", "a2"]
    assert [one.id for one in held.audit(subject="bravo")] == ["a4", "a2"]
    assert [one.id for one in held.audit(action="node")] == ["a4", "a3", "a2"]
    assert not list(held.audit(action="nod"))
    assert not list(held.audit(actor="bob"))
    held.note_audit(audit(1))
    assert [one.id for one in held.audit()] == ["a4", "a3", "a1"]


def test_a_flow_has_the_rate_since_its_last_record() -> None:
    held = Observed(flows_max=2)
    held.note_flow(flow(60, 60_000_000))
    assert held.flows()[0].delivered_bps == 8_000_000
    held.note_flow(flow(120, 75_000_000))
    held.note_flow(flow(60, 60_000_000))  # late
    assert held.flows()[0].delivered_bps == 2_000_000
    held.note_flow(flow(60, 600_000_000, port=5002))
    assert [one.record.destination_port for one in held.flows()] == [5002, 5001]
    held.note_flow(flow(60, 1, port=5003, final=True))
    assert [one.record.destination_port for one in held.flows()] == [5002, 5003]
    assert [one.record.destination_port for one in held.flows(running=True)] == [5002]
    assert not held.flows(node="bravo")


async def test_they_come_from_the_streams(place: World) -> None:
    headers = place.headers()
    made = (await place.client.post("/v1/rate-requests", json=BODY, headers=headers)).json()
    await place.broker.publish(
        "chart.audit.v1", made["id"], audit(1, subject=made["id"], action="rate-request.create", detail_json='{"a": 1}')
    )
    await place.broker.publish("chart.audit.v1", "alpha", audit(2, detail_json="no json"))
    await place.broker.publish("chart.flow-record.v1", "alpha", flow(60, 60_000_000, request_id=made["id"]))
    await place.broker.publish("chart.flow-record.v1", "alpha", flow(60, 30_000_000, port=5002, dscp_plus_one=47))
    await eventually(
        lambda: len(place.gateway.observed.flows()) == 2 and len(list(place.gateway.observed.audit())) == 2
    )
    page = (await place.client.get("/v1/audit", headers=headers)).json()["items"]
    assert [(one["subject"], one["detail"]) for one in page] == [("alpha", {"text": "no json"}), (made["id"], {"a": 1})]
    history = (await place.client.get(f"/v1/rate-requests/{made['id']}/history", headers=headers)).json()["items"]
    assert [one["action"] for one in history] == ["rate-request.create"]
    flows = (await place.client.get("/v1/flows", headers=headers)).json()["items"]
    assert [(one["request_id"], one["granted_bps"]) for one in flows] == [(made["id"], 1_000_000), (None, None)]
    assert [one["dscp"] for one in flows] == [None, 46]
    assert flows[0]["source_address"] == "10.0.0.1"
    assert flows[0]["protocol"] == "tcp"
    assert flows[0]["delivered_bps"] == 8_000_000


async def test_an_application_sees_its_own(place: World) -> None:
    mine = place.headers("application", subject="mine")
    made = (await place.client.post("/v1/rate-requests", json=BODY, headers=mine)).json()
    for port, request in ((5001, made["id"]), (5002, "other"), (5003, "")):
        await place.broker.publish("chart.flow-record.v1", "alpha", flow(60, 1, port=port, request_id=request))
    await eventually(lambda: len(place.gateway.observed.flows()) == 3)
    flows = (await place.client.get("/v1/flows", headers=mine)).json()["items"]
    assert [one["destination_port"] for one in flows] == [5001]
    assert (await place.client.get("/v1/audit", headers=mine)).status_code == 403
    assert (await place.client.get("/v1/node-keys", headers=mine)).status_code == 403
    other = place.headers("application", subject="other")
    assert (await place.client.get(f"/v1/rate-requests/{made['id']}/history", headers=other)).status_code == 404


async def test_keys_of_nodes(place: World) -> None:
    state = node_state_pb2.NodeState(node="alpha", key_epoch=7, kernel_release="6.12", reported_at_us=NOW_US)
    await place.broker.publish("chart.node-state.v1", "alpha", state)
    await eventually(lambda: "alpha" in place.gateway.live.node_states)
    items = (await place.client.get("/v1/node-keys", headers=place.headers())).json()["items"]
    assert [(one["node"], one["key_epoch"], one["kernel_release"]) for one in items] == [("alpha", 7, "6.12")]


async def test_checks_of_records(place: World) -> None:
    mine = place.headers("application", subject="mine")
    assert (await place.client.get("/v1/record-checks", headers=mine)).status_code == 403
    nothing: dict[str, object] = {"authentication": "off", "since": None, "good": 0, "items": []}
    assert (await place.client.get("/v1/record-checks", headers=place.headers())).json() == nothing
    check = RecordCheck(NoKeys(), "require")
    place.broker.record_check = check
    for key in ("alpha", "bravo"):
        with pytest.raises(RecordMacError):
            await check.check("chart.link-load.v1", key, b"x", {})
    found = (await place.client.get("/v1/record-checks", headers=place.headers())).json()
    assert (found["authentication"], found["good"]) == ("require", 0)
    (one,) = found["items"]
    assert (one["topic"], one["reason"], one["count"], one["node"]) == ("chart.link-load.v1", "unsigned", 2, "bravo")
    assert one["detail"] == "the record carries no code of its node"


class NoKeys:
    """An authority that is not asked."""

    async def keys(self, node: str) -> dict[int, tuple[bytes, int]]:
        raise AssertionError(node)

    async def enrolled(self) -> frozenset[str]:
        return frozenset()

    async def close(self) -> None:
        pass


def in_band(role: str, **more: object) -> node_state_pb2.InBandFlow:
    fields = {"state": "kept", "carrier": "option", "agreed_bps": 10_000_000, **more}
    ends = {"source": "10.0.0.1:40000", "destination": "10.0.0.4:5001", "protocol": 6}
    return node_state_pb2.InBandFlow(role=role, **ends, **fields)  # type: ignore[arg-type]


async def test_an_in_band_flow_has_its_hops_in_the_order_of_the_path(place: World) -> None:
    hops = {
        "alpha": (1, in_band("origin", state="agreed", element=9, key_epoch=3, lease_ms=2_400)),
        # The order of names is not that of the path.
        "bravo": (4, in_band("transit", element=7, key_epoch=5, kept_bps=1_000)),
        "yankee": (9, in_band("transit", element=4, key_epoch=4)),
        "delta": (7, in_band("last", state="answered", element=4, key_epoch=6)),
    }
    for node, (element, flow_of_node) in hops.items():
        state = node_state_pb2.NodeState(
            node=node, element=element, in_band_flows=[flow_of_node], reported_at_us=NOW_US
        )
        await place.broker.publish("chart.node-state.v1", node, state)
    await eventually(lambda: len(place.gateway.live.node_states) == 4)
    path = "/v1/in-band-flows"
    (found,) = (await place.client.get(path, params={"flow": ":40000-10.0.0.4"}, headers=place.headers())).json()[
        "items"
    ]
    assert (found["source"], found["destination"], found["protocol"]) == ("10.0.0.1:40000", "10.0.0.4:5001", "tcp")
    assert [(hop["node"], hop["neighbour"], hop["key_epoch"]) for hop in found["hops"]] == [
        ("alpha", "yankee", 3),
        ("yankee", "bravo", 4),
        ("bravo", "delta", 5),
        ("delta", "bravo", 6),
    ]
    assert found["hops"][0]["lease_ms"] == 2_400
    assert (await place.client.get(path, params={"flow": "10.9."}, headers=place.headers())).json()["items"] == []
    mine = place.headers("application", subject="mine")
    assert (await place.client.get(path, headers=mine)).status_code == 403
