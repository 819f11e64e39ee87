"""What the registry accepts and how it words a refusal."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart.common.rpc_errors import RefusalError
from chart.registry import service
from chart.v1 import policy_pb2, registry_pb2, sensing_configuration_pb2, topology_pb2

OFF, OBSERVE = policy_pb2.ENFORCEMENT_MODE_OFF, policy_pb2.ENFORCEMENT_MODE_OBSERVE


def node(**fields: object) -> topology_pb2.Node:
    return topology_pb2.Node(**{"id": "bravo", **fields})  # type: ignore[arg-type]


def link(**fields: object) -> topology_pb2.Link:
    values = {"id": "bravo:to-charlie", "to_node": "charlie", "capacity_bps": 100_000_000, **fields}
    return topology_pb2.Link(**values)  # type: ignore[arg-type]


def configuration(**fields: object) -> sensing_configuration_pb2.SensingConfiguration:
    values = {
        "id": "bravo-charlie-ping",
        "source_node": "bravo",
        "destination_node": "charlie",
        "destination_address": "10.1.0.3",
        "sensor": "ping",
        "period_ms": 10_000,
        **fields,
    }
    return sensing_configuration_pb2.SensingConfiguration(**values)  # type: ignore[arg-type]


def refused(call: object, *arguments: object) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        call(*arguments)  # type: ignore[operator]
    assert caught.value.status is grpc.StatusCode.INVALID_ARGUMENT
    return caught.value


def test_a_node_is_stored_with_its_addresses_normalised() -> None:
    stored = service.node(node(addresses=["10.1.0.1", "fd00:0::1/64"], sensor_pod_target="10.254.0.12:18110"))
    assert list(stored.addresses) == ["10.1.0.1/32", "fd00::1/64"]


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"id": ""}, "id"),
        ({"id": "Bravo"}, "id"),
        ({"id": "a" * 64}, "id"),
        ({"id": "-a"}, "id"),
        ({"addresses": ["10.1.0.1/32", "ten"]}, "addresses[1]"),
        ({"addresses": ["10.1.0.1", "10.1.0.1/32"]}, "addresses"),
        ({"sensor_pod_target": "nowhere"}, "sensor_pod_target"),
        ({"sensor_pod_target": "host:70000"}, "sensor_pod_target"),
        ({"map_position": topology_pb2.MapPosition(x=0.5, y=1.5)}, "map_position.y"),
        ({"map_position": topology_pb2.MapPosition(x=float("nan"), y=0.5)}, "map_position.x"),
        ({"description": "x" * 1001}, "description"),
        ({"tags": {"": "x"}}, "tags."),
        ({"tags": {str(number): "" for number in range(65)}}, "tags"),
    ],
)
def test_a_wrong_node_is_refused_by_field(fields: dict[str, object], at_fault: str) -> None:
    assert refused(service.node, node(**fields)).refusal.field == at_fault


def test_a_refused_id_comes_with_one_that_would_do() -> None:
    assert list(refused(service.node, node(id="My Node")).refusal.suggestions) == ["my-node"]


def test_a_link_takes_its_ends_from_its_id() -> None:
    stored = service.link(link())
    assert (stored.from_node, stored.interface) == ("bravo", "to-charlie")


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"id": "bravo"}, "id"),
        ({"id": "bravo:"}, "interface"),
        ({"id": "bravo:a-name-that-is-too-long"}, "interface"),
        ({"id": "Bravo:eth0"}, "from_node"),
        ({"from_node": "delta"}, "from_node"),
        ({"interface": "eth9"}, "interface"),
        ({"to_node": ""}, "to_node"),
        ({"to_node": "bravo"}, "to_node"),
        ({"capacity_bps": 10**14}, "capacity_bps"),
        ({"delay_us": 61_000_000}, "delay_us"),
        ({"admission_share": 1.01}, "admission_share"),
        ({"admission_share": -0.1}, "admission_share"),
        ({"admission_share": float("nan")}, "admission_share"),
        ({"quick_start_threshold": 1.01}, "quick_start_threshold"),
        ({"quick_start_threshold": float("nan")}, "quick_start_threshold"),
        ({"quick_start_share": -0.1}, "quick_start_share"),
        ({"scone_police": True}, "scone_police"),
        ({"advice_prefixes": ["10.4.0.0/33"]}, "advice_prefixes"),
        ({"advice_prefixes": ["10.4.0.0/16", "all"]}, "advice_prefixes"),
        ({"advice_prefixes": ["10.4.0.0/16"] * 33}, "advice_prefixes"),
    ],
)
def test_a_wrong_link_is_refused_by_field(fields: dict[str, object], at_fault: str) -> None:
    assert refused(service.link, link(**fields)).refusal.field == at_fault


def test_a_link_without_a_capacity_has_what_its_node_says() -> None:
    stored = service.link(link(capacity_bps=0))
    assert (stored.capacity_bps, stored.capacity_from_interface) == (0, True)
    filled = service.with_reported_capacity(stored, 10**9)
    assert (filled.capacity_bps, filled.capacity_from_interface) == (10**9, True)
    # Stating the same once more forgets nothing; stating a capacity ends it.
    assert service.keep_reported_capacity(stored, filled) == filled
    stated = service.link(link())
    assert service.with_reported_capacity(stated, 10**9) == stated
    assert service.keep_reported_capacity(stated, filled) == stated


# 200 characters and more.
LONG = ".".join(["a" * 61 + "b", "c" * 63, "d" * 63, "lab.example"])


@pytest.mark.parametrize("name", ["bravo.lab.example.net", LONG, "a.b", "1", "1.a"])
def test_a_node_may_be_called_by_its_host_name(name: str) -> None:
    assert service.node(node(id=name)).id == name
    stored = service.link(link(id=f"{name}:eth0", to_node=LONG if name != LONG else "alpha"))
    assert (stored.from_node, stored.interface) == (name, "eth0")
    assert service.policy(policy_pb2.Policy(id=name, enforcement=OBSERVE)).id == name


@pytest.mark.parametrize(
    "name", ["a..b", ".a", "a.", "A.example", "a_b.example", "x" * 64 + ".a", ".".join(["a"] * 128)]
)
def test_what_is_no_host_name_is_refused(name: str) -> None:
    assert refused(service.node, node(id=name)).refusal.field == "id"


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"default_congestion": "trinity"}, "default_congestion"),
        ({"default_congestion": "BBR"}, "default_congestion"),
        ({"ipfix_collector": "collector:4739"}, "ipfix_collector"),
        ({"ipfix_collector": "192.0.2.9"}, "ipfix_collector"),
        ({"ipfix_collector": "2001:db8::1:4739"}, "ipfix_collector"),
        ({"ipfix_collector": "192.0.2.9:70000"}, "ipfix_collector"),
        ({"quick_start_request_bps": 1_310_720_001}, "quick_start_request_bps"),
    ],
)
def test_what_a_policy_says_to_agents_is_checked(fields: dict[str, Any], at_fault: str) -> None:
    wrong = policy_pb2.Policy(id="default", enforcement=OBSERVE, **fields)
    assert refused(service.policy, wrong).refusal.field == at_fault


def edge(**fields: Any) -> topology_pb2.NodeEdge:
    return topology_pb2.NodeEdge(**{"interface": "eth1", **fields})


def test_an_edge_has_its_defaults() -> None:
    stated = node(edges=[edge(), edge(interface="eth2", exceed=topology_pb2.EDGE_EXCEED_DROP, depth_ms=20)])
    first, second = service.node(stated).edges
    assert (first.aggregate_bps, first.exceed, first.depth_ms) == (0, topology_pb2.EDGE_EXCEED_REMARK, 100)
    assert (second.exceed, second.depth_ms) == (topology_pb2.EDGE_EXCEED_DROP, 20)


@pytest.mark.parametrize(
    ("edges", "at_fault"),
    [
        ([edge(interface="")], "edges[0].interface"),
        ([edge(interface="a/b")], "edges[0].interface"),
        ([edge(), edge()], "edges[1].interface"),
        ([edge(aggregate_bps=10**14)], "edges[0].aggregate_bps"),
        ([edge(depth_ms=65_536)], "edges[0].depth_ms"),
        ([edge(exceed=9)], "edges[0].exceed"),
        ([edge(interface=f"eth{number}") for number in range(65)], "edges"),
    ],
)
def test_a_wrong_edge_is_refused_by_field(edges: list[topology_pb2.NodeEdge], at_fault: str) -> None:
    assert refused(service.node, node(edges=edges)).refusal.field == at_fault


def test_what_a_policy_leaves_out_stays() -> None:
    before = service.policy(
        policy_pb2.Policy(
            id="default", enforcement=OBSERVE, default_congestion="bbr", ipfix_collector="[2001:db8::1]:4739"
        )
    )
    fresh = policy_pb2.Policy(id="default", enforcement=OFF, ipfix_collector="192.0.2.9:4739")
    request = registry_pb2.PutPolicyRequest(policy=fresh, keep_default_congestion=True)
    kept = service.keep_unsaid(fresh, before, request)
    assert (kept.default_congestion, kept.ipfix_collector) == ("bbr", "192.0.2.9:4739")


def test_a_policy_without_controller_gets_nec() -> None:
    stored = service.policy(policy_pb2.Policy(id="default", enforcement=OBSERVE, revision=9))
    assert stored.link_controller == "nec"
    assert stored.revision == 0


def test_what_a_nodes_policy_leaves_out_stays_out() -> None:
    stored = service.policy(policy_pb2.Policy(id="alpha"))
    assert (stored.enforcement, stored.link_controller) == (0, "")
    assert not stored.HasField("max_guaranteed_bps")
    unlimited = policy_pb2.Policy(id="alpha", max_guaranteed_bps=0)
    assert service.policy(unlimited).HasField("max_guaranteed_bps"), "no bound is said, not left out"
    silent = policy_pb2.Policy(id="alpha", quick_start_request_bps=0)
    assert service.policy(silent).HasField("quick_start_request_bps"), "nothing to ask for is said, not left out"
    assert not stored.HasField("quick_start_request_bps")


def test_the_default_policy_is_not_deleted() -> None:
    assert refused(service.check_policy_deletion, "default").refusal.field == "id"
    service.check_policy_deletion("alpha")


@pytest.mark.parametrize(
    ("policy", "at_fault"),
    [
        (policy_pb2.Policy(id="default"), "enforcement"),
        (policy_pb2.Policy(id="default", enforcement=7), "enforcement"),  # type: ignore[arg-type]
        (policy_pb2.Policy(id="default", enforcement=OFF, link_controller="red"), "link_controller"),
        (policy_pb2.Policy(id="a b", enforcement=OFF), "id"),
        (
            policy_pb2.Policy(id="default", enforcement=OFF, max_guaranteed_bps=10**14),
            "max_guaranteed_bps",
        ),
        (
            policy_pb2.Policy(id="default", enforcement=OFF, customer_weights={"gold": 10_001}),
            "customer_weights.gold",
        ),
        (
            policy_pb2.Policy(id="default", enforcement=OFF, customer_weights={"x" * 64: 1}),
            "customer_weights",
        ),
    ],
)
def test_a_wrong_policy_is_refused_by_field(policy: policy_pb2.Policy, at_fault: str) -> None:
    assert refused(service.policy, policy).refusal.field == at_fault


@pytest.mark.parametrize("mode", ["off", "observe", "enforce"])
def test_the_default_policy_is_one_that_would_be_accepted(mode: str) -> None:
    assert service.policy(service.default_policy(mode)) == service.default_policy(mode)


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"id": ""}, "id"),
        ({"source_node": "B"}, "source_node"),
        ({"destination_node": "bravo"}, "destination_node"),
        ({"destination_address": "charlie"}, "destination_address"),
        ({"sensor": ""}, "sensor"),
        ({"period_ms": 99}, "period_ms"),
        ({"period_ms": 2**63}, "period_ms"),
        ({"tolerance_ms": 2**63}, "tolerance_ms"),
        ({"priority": 256}, "priority"),
        ({"valid_until_us": -1}, "valid_until_us"),
        ({"parameters": {"x" * 101: "1"}}, "parameters." + "x" * 100),
    ],
)
def test_a_wrong_sensing_configuration_is_refused_by_field(fields: dict[str, object], at_fault: str) -> None:
    assert refused(service.sensing_configuration, configuration(**fields)).refusal.field == at_fault


def test_a_right_sensing_configuration_is_stored_without_revision() -> None:
    assert service.sensing_configuration(configuration(revision=3)) == configuration()


@pytest.mark.parametrize(("expected", "stored", "fits"), [(0, None, True), (0, 4, True), (4, 4, True), (3, 4, False)])
def test_revisions(expected: int, stored: int | None, fits: bool) -> None:
    if fits:
        service.check_revision("node", "bravo", expected, stored)
        return
    with pytest.raises(RefusalError) as caught:
        service.check_revision("node", "bravo", expected, stored)
    assert caught.value.status is grpc.StatusCode.ABORTED
    assert "revision 4" in caught.value.refusal.detail


def test_a_node_in_use_names_its_users_and_how_to_go_on() -> None:
    refusal = service.node_in_use("bravo", ["bravo:a", "bravo:b"], ["c1", "c2", "c3", "c4"])
    assert refusal is not None
    assert "and 1 more" in refusal.refusal.detail
    assert refusal.refusal.suggestions[0] == "delete link bravo:a first"
    assert service.node_in_use("bravo", [], []) is None


@given(st.text(max_size=80))
def test_any_text_as_id_is_accepted_or_refused_never_an_error(text: str) -> None:
    try:
        stored = service.node(node(id=text))
    except RefusalError as error:
        refusal = error.refusal
    else:
        assert stored.id == text
        return
    assert refusal.field == "id"
    for suggestion in refusal.suggestions:
        service.node(node(id=suggestion))
