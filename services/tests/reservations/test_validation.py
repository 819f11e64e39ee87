"""What is refused before admission, with the name of the field; what nodes, addresses and prefixes stand for."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from chart.common.rpc_errors import RefusalError
from chart.reservations.decisions.network import Network, network_of, own_prefix
from chart.reservations.decisions.validation import (
    CheckedRequest,
    ContradictionError,
    body_hash,
    check,
    check_policy,
    node_of,
    selector_of,
)
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1 import topology_pb2
from chart.v1.flow_grant_pb2 import (
    SERVICE_TYPE_AVAILABLE,
    SERVICE_TYPE_GUARANTEED,
    SERVICE_TYPE_MAXIMUM,
    FlowSelector,
)
from chart.v1.rate_request_pb2 import TRAFFIC_CLASS_BACKGROUND, RateRequestSpecification

NOW_US = 1_750_000_000_000_000
MEGA = 1_000_000


def entity(node: str, *addresses: str) -> tuple[str, topology_pb2.TopologyEntity]:
    return node, topology_pb2.TopologyEntity(node=topology_pb2.Node(id=node, addresses=addresses))


def link(origin: str, target: str, **more: Any) -> tuple[str, topology_pb2.TopologyEntity]:
    identity = f"{origin}:to-{target}"
    fields = {"capacity_bps": 100 * MEGA, **more}
    one = topology_pb2.Link(id=identity, from_node=origin, to_node=target, **fields)
    return identity, topology_pb2.TopologyEntity(link=one)


NETWORK: Network = network_of(
    [
        entity("alpha", "10.1.0.1/32"),
        entity("bravo", "10.1.0.2/32", "10.2.0.2/30"),
        entity("site", "10.9.0.0/16", "10.1.0.9/32"),
        entity("six", "2001:db8::/48"),
        entity("bare"),
        link("alpha", "bravo"),
        link("bravo", "alpha", admission_share=0.5),
    ]
)


def checked(maximum: int = 0, selector: dict[str, int | str] | None = None, **fields: Any) -> CheckedRequest:
    asked = RateRequestSpecification(
        **{"source": "alpha", "destination": "bravo", "guaranteed_bps": MEGA, **fields},
        selector=FlowSelector(**(selector or {})),  # type: ignore[arg-type]
    )
    found = check(asked, NETWORK, NOW_US)
    check_policy(found.specification, maximum)
    return found


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("source", {"source": ""}),
        ("source", {"source": "nobody"}),
        ("source", {"source": "10.200.0.1"}),
        ("destination", {"destination": "nobody"}),
        ("destination", {"destination": "alpha"}),
        ("destination", {"destination": "10.1.0.1"}),
        ("guaranteed_bps", {"guaranteed_bps": 10}),
        ("guaranteed_bps", {"guaranteed_bps": 5_000_000_000_000}),
        ("guaranteed_bps", {"guaranteed_bps": 1 << 63}),
        ("guaranteed_bps", {"guaranteed_bps": 0, "service": SERVICE_TYPE_GUARANTEED}),
        ("guaranteed_bps", {"service": SERVICE_TYPE_AVAILABLE}),
        ("guaranteed_bps", {"maximum": 500_000}),
        ("service", {"service": 77}),
        ("maximum_bps", {"service": 3}),
        ("maximum_bps", {"maximum_bps": 1000}),
        ("minimum_bps", {"minimum_bps": 2 * MEGA}),
        ("preemption_priority", {"preemption_priority": 256}),
        ("delay_priority", {"delay_priority": 256}),
        ("burst_tolerance", {"burst_tolerance": 16}),
        ("start_us", {"start_us": NOW_US - 3600 * MEGA}),
        ("start_us", {"start_us": -5}),
        ("start_us", {"start_us": NOW_US * 3}),
        ("end_us", {"end_us": NOW_US - 1}),
        ("end_us", {"end_us": -1}),
        ("end_us", {"start_us": NOW_US + 20, "end_us": NOW_US + 10}),
        ("end_us", {"end_us": NOW_US * 3}),
        ("duration_us", {"duration_us": 1 << 63}),
        ("selector.protocol", {"selector": {"destination_port": 80}}),
        ("selector.protocol", {"selector": {"protocol": 1, "destination_port": 80}}),
        ("selector.protocol", {"selector": {"protocol": 256}}),
        ("selector.source_port", {"selector": {"protocol": 6, "source_port": 65536}}),
        ("selector.dscp_plus_one", {"selector": {"dscp_plus_one": 65}}),
        ("selector.cgroup_id", {"selector": {"cgroup_id": 1 << 63}}),
        ("selector.source_prefix", {"selector": {"source_prefix": "10.0.0.0/99"}}),
        ("description", {"description": "x" * 2000}),
        ("tags", {"tags": {str(number): "" for number in range(40)}}),
    ],
)
def test_refused_with_the_field(field: str, asked: dict[str, Any]) -> None:
    with pytest.raises(RefusalError) as caught:
        checked(**asked)
    assert caught.value.refusal.field == field
    assert caught.value.refusal.detail


@pytest.mark.parametrize(
    ("field", "bounds", "asked"),
    [
        ("guaranteed_bps", {"floor_bps": 1}, {"guaranteed_bps": 0, "service": SERVICE_TYPE_GUARANTEED}),
        ("guaranteed_bps", {"ceiling_bps": 0}, {"service": SERVICE_TYPE_AVAILABLE}),
        ("maximum_bps", {"floor_bps": 1}, {"guaranteed_bps": 0, "service": SERVICE_TYPE_MAXIMUM}),
        ("minimum_bps", {"ceiling_bps": MEGA}, {"minimum_bps": 2 * MEGA}),
        ("maximum_bps", {"floor_bps": MEGA}, {"maximum_bps": 1000}),
        ("traffic_class", {}, {"guaranteed_bps": 0, "traffic_class": TRAFFIC_CLASS_BACKGROUND}),
        (
            "preemption_priority",
            {"ceiling_bps": 0},
            {"traffic_class": TRAFFIC_CLASS_BACKGROUND, "preemption_priority": 2},
        ),
        ("end_us", {}, {"start_us": NOW_US + 20, "end_us": NOW_US + 10}),
    ],
)
def test_contradictions_say_what_would_be_accepted(field: str, bounds: dict[str, int], asked: dict[str, Any]) -> None:
    with pytest.raises(ContradictionError) as caught:
        checked(**asked)
    refusal = caught.value.refusal
    stated = {one.name: getattr(refusal, one.name) for one, _ in refusal.ListFields() if one.name.endswith("_bps")}
    assert (refusal.field, stated) == (field, bounds)


def test_policy_maximum_says_the_ceiling() -> None:
    with pytest.raises(RefusalError) as caught:
        checked(maximum=500_000)
    assert caught.value.refusal.code == "above-policy-maximum"
    assert caught.value.refusal.ceiling_bps == 500_000


def test_unknown_node_offers_close_names() -> None:
    with pytest.raises(RefusalError) as caught:
        checked(destination="brvo")
    assert list(caught.value.refusal.suggestions) == ["bravo"]
    assert caught.value.refusal.code == "unknown-node"


def test_nodes_become_prefixes_and_now_becomes_the_interval() -> None:
    one = checked()
    assert one.selector.source_prefix == "10.1.0.1/32"
    assert (one.ask.source_node, one.ask.destination_node) == ("alpha", "bravo")
    assert (one.ask.start_us, one.ask.end_us) == (NOW_US, FOREVER_US)
    assert one.specification.service == SERVICE_TYPE_GUARANTEED
    assert checked(guaranteed_bps=0).specification.service == SERVICE_TYPE_AVAILABLE


def test_a_node_is_all_its_addresses_and_prefixes() -> None:
    to_bravo = checked().selector
    assert list(to_bravo.destination_prefixes) == ["10.1.0.2/32", "10.2.0.2/32"]
    assert to_bravo.destination_prefix == "10.1.0.2/32", "what agents read that know of one prefix only"
    from_bravo = checked(source="bravo", destination="alpha").selector
    assert list(from_bravo.source_prefixes) == ["10.1.0.2/32", "10.2.0.2/32"]
    assert from_bravo.source_prefix == "", "any: agents that know of one prefix match where the flow starts"
    assert not from_bravo.destination_prefixes, "one prefix needs no list"
    assert not checked(destination="10.2.0.2").selector.destination_prefixes, "an address is that address"


def many(count: int) -> Network:
    # Every second address: no two of them are one prefix.
    addresses = [f"10.5.{number}.1/32" for number in range(0, 2 * count, 2)]
    six = [f"fd00:{number}::/64" for number in range(0, 2 * count, 2)]
    return network_of(
        [
            entity("alpha", "10.1.0.1/32"),
            entity("hub", *addresses),
            entity("both", "10.9.0.1/32", "10.9.0.0/24", "fd00::1/128"),
            entity("between", *(f"10.5.{number}.1/32" for number in range(1, 2 * count, 2)), *six),
            link("alpha", "hub"),
        ]
    )


def test_an_end_of_many_addresses_has_a_bound() -> None:
    asked = RateRequestSpecification(source="alpha", destination="hub", guaranteed_bps=MEGA)
    assert len(check(asked, many(16), NOW_US).selector.destination_prefixes) == 16
    with pytest.raises(RefusalError, match="17 separate addresses") as refused:
        check(asked, many(17), NOW_US)
    assert refused.value.refusal.field == "destination"
    assert refused.value.refusal.suggestions
    assert node_of("hub", "destination", many(17)) == "hub", "a path can be looked for all the same"


def test_both_families_and_what_lies_in_each_other() -> None:
    asked = RateRequestSpecification(source="both", destination="alpha")
    assert list(selector_of(asked, many(1)).source_prefixes) == ["10.9.0.0/24", "fd00::1/128"]


def test_addresses_and_prefixes_find_their_node_by_the_longest_prefix() -> None:
    one = checked(source="10.9.3.4", destination="10.2.0.2")
    assert (one.ask.source_node, one.selector.source_prefix) == ("site", "10.9.3.4/32")
    assert one.ask.destination_node == "bravo"
    assert checked(source="10.9.3.0/24").selector.source_prefix == "10.9.3.0/24"
    assert checked(source="2001:db8::7").ask.source_node == "six"


def test_prefixes_of_the_selector_win() -> None:
    assert checked(selector={"destination_prefix": "10.2.0.2"}).selector.destination_prefix == "10.2.0.2/32"


def test_start_a_little_ago_is_now() -> None:
    assert checked(start_us=NOW_US - 1 * MEGA).ask.start_us == NOW_US


def test_duration_counts_from_the_start_unless_there_is_an_end() -> None:
    one = checked(duration_us=5 * MEGA)
    assert one.ask.end_us == one.specification.end_us == NOW_US + 5 * MEGA
    assert checked(start_us=NOW_US + MEGA, duration_us=5 * MEGA).ask.end_us == NOW_US + 6 * MEGA
    assert checked(end_us=NOW_US + MEGA, duration_us=5 * MEGA).ask.end_us == NOW_US + MEGA


def test_stated_addresses() -> None:
    assert own_prefix("10.1.1.1/30") == ipaddress.ip_network("10.1.1.1/32")
    assert own_prefix("10.9.0.0/16") == ipaddress.ip_network("10.9.0.0/16")
    assert own_prefix("10.1.1.1") == ipaddress.ip_network("10.1.1.1/32")
    assert own_prefix("nonsense") is None


def test_links_to_unknown_nodes_do_not_count_and_measured_capacity_lowers() -> None:
    entities = [entity("a"), entity("b"), link("a", "b"), link("a", "gone")]
    assert set(network_of(entities).links) == {"a:to-b"}
    assert network_of(entities, {("a", "b"): 40e6}).links["a:to-b"].capacity_bps == 40 * MEGA
    assert network_of(entities, {("a", "b"): 900e6}).links["a:to-b"].capacity_bps == 100 * MEGA
    assert NETWORK.links["bravo:to-alpha"].admissible_bps == 50 * MEGA


def test_same_body_same_hash() -> None:
    one = RateRequestSpecification(source="a", tags={"x": "1", "y": "2"})
    other = RateRequestSpecification(source="a", tags={"y": "2", "x": "1"})
    assert body_hash(one) == body_hash(other)
    assert body_hash(one) != body_hash(RateRequestSpecification(source="b"))
