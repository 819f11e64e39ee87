"""What the registry accepts and how it words a refusal."""

from __future__ import annotations

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart.common.rpc_errors import RefusalError
from chart.registry import service
from chart.v1 import policy_pb2, sensing_configuration_pb2, topology_pb2

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
        ({"capacity_bps": 0}, "capacity_bps"),
        ({"capacity_bps": 10**14}, "capacity_bps"),
        ({"delay_us": 61_000_000}, "delay_us"),
        ({"admission_share": 1.01}, "admission_share"),
        ({"admission_share": -0.1}, "admission_share"),
        ({"admission_share": float("nan")}, "admission_share"),
    ],
)
def test_a_wrong_link_is_refused_by_field(fields: dict[str, object], at_fault: str) -> None:
    assert refused(service.link, link(**fields)).refusal.field == at_fault


def test_a_policy_without_controller_gets_nec() -> None:
    stored = service.policy(policy_pb2.Policy(id="default", enforcement=OBSERVE, revision=9))
    assert stored.link_controller == "nec"
    assert stored.revision == 0


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


def test_the_default_policy_is_one_that_would_be_accepted() -> None:
    assert service.policy(service.default_policy()) == service.default_policy()
    assert service.default_policy("observe").enforcement == policy_pb2.EnforcementMode.ENFORCEMENT_MODE_OBSERVE


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
