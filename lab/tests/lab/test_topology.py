"""Topology files, addresses, routes; no network is built."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart_lab import registration, topology
from chart_lab.errors import LabError
from chart_lab.topology import Impairment, Topology


@pytest.mark.parametrize("name", topology.available())
def test_every_topology_of_the_project_loads_and_reaches_every_node(name: str) -> None:
    loaded = topology.load(name)
    for node in loaded.nodes:
        assert set(topology.first_hops(loaded, node.name)) == {n.name for n in loaded.nodes} - {node.name}


def test_demo_is_the_line_that_the_demonstration_needs() -> None:
    demo = topology.load("demo")
    middle, direction = topology.find_link(demo, "charlie:to-bravo")
    assert direction == "reverse"
    assert middle.direction("reverse") == {"rate_bps": 100_000_000, "delay_us": 50_000, "loss": 0.05}
    assert str(topology.node_address(demo, "delta")) == "10.0.0.4"
    assert str(topology.management_address(demo, "alpha")) == "10.254.0.11/16"
    left, right = topology.link_ends(demo, middle)
    assert (str(left.address), left.link_id) == ("10.1.2.1/30", "bravo:to-charlie")
    assert (str(right.address), right.link_id) == ("10.1.2.2/30", "charlie:to-bravo")
    routes = {str(route.destination): str(route.gateway) for route in topology.routes(demo, "alpha")}
    assert routes == dict.fromkeys(
        ["10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32", "10.1.2.0/30", "10.1.3.0/30"], "10.1.1.2"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nodes: [{name: a}]", "name: Field required"),
        ("{name: t, nodes: [{name: Alpha}]}", "nodes.0.name"),
        ("{name: t, nodes: [{name: a}, {name: a}]}", "same name"),
        ("{name: t, nodes: [{name: a}], links: [{ends: [a, b]}]}", "there is no node b"),
        ("{name: t, nodes: [{name: a}, {name: b}], links: [{ends: [a, b]}, {ends: [b, a]}]}", "joined already"),
        ("{name: t, nodes: [{name: a}, {name: b}], links: [{ends: [a, b], loss: 5}]}", "links.0.loss"),
        ("{name: t, nodes: [{name: a}], speed: 3}", "speed: Extra inputs"),
        ("{name: [", "not YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_the_reason(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(LabError, match=r"t\.yaml") as refusal:
        topology.load(str(path))
    assert complaint in str(refusal.value)


def test_an_unknown_topology_is_answered_with_those_there_are() -> None:
    with pytest.raises(LabError, match="two-node"):
        topology.load("nowhere")


def test_impairments_become_the_parameters_of_the_emulator() -> None:
    impairment = Impairment.model_validate(
        {
            "rate_mbit": 2.5,
            "jitter_ms": 0.2,
            "loss": 0,
            "queue": {"red": {"minimum_packets": 5, "maximum_packets": 20}},
            "burst": "none",
        }
    )
    assert impairment.parameters() == {
        "rate_bps": 2_500_000,
        "jitter_us": 200,
        "loss": 0,
        "queue": {"red": {"minimum_packets": 5, "maximum_packets": 20, "maximum_probability": 0.02, "weight": 0.002}},
        "burst": None,
    }


def test_registration_states_both_directions_with_true_capacity_and_delay() -> None:
    demo = topology.load("demo")
    links = dict(registration.links(demo))
    assert len(links) == 6
    assert links["/v1/links/charlie:to-bravo"] == {
        "to_node": "bravo",
        "capacity_bps": 100_000_000,
        "delay_us": 50_000,
        "tags": {"lab": "demo"},
    }
    nodes = dict(registration.nodes(demo))
    assert nodes["/v1/nodes/bravo"]["addresses"] == ["10.0.0.2/32", "10.1.1.2/32", "10.1.2.1/32"]
    assert nodes["/v1/nodes/bravo"]["sensor_pod_target"] == "10.254.0.12:18110"
    sensing = dict(registration.sensing_configurations(demo))
    assert sensing["/v1/sensing-configurations/bravo-charlie-pathchirp"]["destination_address"] == "10.1.2.2"
    assert sensing["/v1/sensing-configurations/alpha-delta-ping"]["period_ms"] == 2000
    assert len(sensing) == 6 * 2 + 2


def test_the_flows_of_every_node_are_authorised_up_to_the_fastest_link() -> None:
    demo = topology.load("demo")
    path, policy = registration.authorisation_policy(demo)
    assert path == "/v1/authorisation-policies/chart-lab"
    assert policy["subjects"] == ["user/chart-lab"]
    assert policy["max_guaranteed_bps"] == 500_000_000
    assert policy["any_address"]
    bodies = list(registration.authorisations(demo))
    assert [body["client_address"] for body in bodies] == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]
    assert {body["service"] for body in bodies} == {"guaranteed"}


@st.composite
def connected(draw: st.DrawFn) -> Topology:
    """A random connected topology: a tree and some more links."""
    count = draw(st.integers(2, 8))
    pairs = {(draw(st.integers(0, number - 1)), number) for number in range(1, count)}
    extra = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    pairs |= {(min(a, b), max(a, b)) for a, b in draw(st.lists(extra, max_size=6)) if a != b}
    return Topology.model_validate(
        {
            "name": "random",
            "nodes": [{"name": f"n{number}"} for number in range(count)],
            "links": [{"ends": [f"n{a}", f"n{b}"], "delay_ms": 1} for a, b in sorted(pairs)],
        }
    )


@given(connected())
def test_following_the_routes_ends_at_every_node_without_a_loop(random: Topology) -> None:
    owner: dict[IPv4Address, str] = {end.address.ip: end.node for _, end in topology.all_ends(random)}
    tables = {
        node.name: {route.destination.network_address: route.gateway for route in topology.routes(random, node.name)}
        for node in random.nodes
    }
    for origin in tables:
        for destination in tables:
            here, visited = origin, set()
            while here != destination:
                assert here not in visited
                visited.add(here)
                here = owner[tables[here][topology.node_address(random, destination)]]
