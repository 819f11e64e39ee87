"""What the registry accepts as tunnel ends and proxied traffic of a node."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from chart.common.rpc_errors import RefusalError
from chart.registry import node_ends
from chart.v1 import registry_pb2
from chart.v1.topology_pb2 import (
    PROXY_MODE_NEW_PORTS,
    PROXY_MODE_SAME_PORTS,
    TUNNEL_ROLE_DESTINATION,
    TUNNEL_ROLE_ORIGIN,
    Node,
    OverlayMembership,
    ProxiedTraffic,
    TunnelEnd,
    TunnelEndApplication,
    TunnelEndClass,
)


def end(**fields: Any) -> TunnelEnd:
    values = {
        "tunnel": "west-east",
        "role": TUNNEL_ROLE_ORIGIN,
        "interface": "itm0",
        "address": "10.0.0.6",
        "port": 7400,
        "peer_node": "east",
        **fields,
    }
    return TunnelEnd(**values)


def node(*ends: TunnelEnd, proxied: ProxiedTraffic | None = None) -> Node:
    return Node(id="west", tunnel_ends=ends, proxied_traffic=proxied)


def test_ends_are_stored_with_defaults_and_networks_without_host_bits() -> None:
    destination = end(tunnel="east-west", role=TUNNEL_ROLE_DESTINATION, interface="itm1", address="FD00::1")
    stated = node(end(prefixes=["192.0.2.7/24"]), destination, proxied=ProxiedTraffic(interfaces=["eth1"]))
    node_ends.store(stated)
    first, second = stated.tunnel_ends
    assert (first.period_ms, first.congestion, list(first.prefixes)) == (1000, "cubic", ["192.0.2.0/24"])
    assert (second.period_ms, second.congestion, second.address) == (0, "", "fd00::1")
    assert stated.proxied_traffic.mode == PROXY_MODE_SAME_PORTS
    nothing = node(proxied=ProxiedTraffic(prefixes=["10.0.0.0/8"]))
    node_ends.store(nothing)
    assert not nothing.HasField("proxied_traffic")


def test_applications_are_of_either_end_with_a_limit() -> None:
    pacing = TunnelEndApplication(name="pacing", file="itm-aimd.so", argument="5000000,100000,500000")
    at_destination = end(tunnel="b", role=TUNNEL_ROLE_DESTINATION, interface="itm1", applications=[pacing])
    stated = node(end(applications=[pacing]), at_destination)
    node_ends.store(stated)
    assert [one.applications[0].limit_ms for one in stated.tunnel_ends] == [20, 20]


PACING = TunnelEndApplication(name="pacing", file="aimd.so")
GOLD = TunnelEndClass(name="gold", weight=3, selector="from=10.1.0.0/16,dscp=46")


@pytest.mark.parametrize("selector", ["any", "to=fd00::/8", "protocol=udp,dport=5004", "protocol=17,sport=1"])
def test_selectors_are_those_of_the_tunnel(selector: str) -> None:
    node_ends.store(node(end(classes=[TunnelEndClass(name="a", weight=1, selector=selector)])))


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"tunnel": "West"}, "tunnel"),
        ({"role": 0}, "role"),
        ({"interface": "a b"}, "interface"),
        ({"address": "east"}, "address"),
        ({"port": 0}, "port"),
        ({"port": 70_000}, "port"),
        ({"peer_node": "west"}, "peer_node"),
        ({"peer_node": "East!"}, "peer_node"),
        ({"period_ms": 5}, "period_ms"),
        ({"congestion": "bbr"}, "congestion"),
        ({"classes": [GOLD, GOLD]}, "classes[1].name"),
        ({"classes": [TunnelEndClass(name="a=b", weight=1, selector="any")]}, "classes[0].name"),
        ({"classes": [TunnelEndClass(name="a", selector="any")]}, "classes[0].weight"),
        ({"classes": [TunnelEndClass(name="a", weight=1, selector="color=red")]}, "classes[0].selector"),
        ({"classes": [TunnelEndClass(name="a", weight=1, selector="dscp=64")]}, "classes[0].selector"),
        ({"applications": [PACING, PACING]}, "applications[1].name"),
        ({"applications": [TunnelEndApplication(name="a b", file="a.so")]}, "applications[0].name"),
        ({"applications": [TunnelEndApplication(name="a", file="../a.so")]}, "applications[0].file"),
        ({"applications": [TunnelEndApplication(name="a", file="/tmp/a.so")]}, "applications[0].file"),
        ({"applications": [TunnelEndApplication(name="a", file="a.so", limit_ms=41)]}, "applications[0].limit_ms"),
        (
            {"applications": [TunnelEndApplication(name="a", file="a.so", argument="x" * 1024)]},
            "applications[0].argument",
        ),
        ({"prefixes": ["ten"]}, "prefixes[0]"),
        ({"prefixes": ["10.0.0.0/8"]}, "prefixes[0]"),
        ({"role": TUNNEL_ROLE_DESTINATION, "prefixes": ["192.0.2.0/24"]}, "prefixes"),
        ({"role": TUNNEL_ROLE_DESTINATION, "period_ms": 100}, "period_ms"),
    ],
)
def test_a_wrong_end_is_refused_by_field(fields: dict[str, Any], at_fault: str) -> None:
    with pytest.raises(RefusalError) as caught:
        node_ends.store(node(end(**fields)))
    assert caught.value.status is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.refusal.field == f"tunnel_ends[0].{at_fault}"


@pytest.mark.parametrize(
    ("second", "at_fault"),
    [
        ({"interface": "itm1"}, "tunnel"),
        ({"tunnel": "other"}, "interface"),
        ({"tunnel": "other", "interface": "itm1", "prefixes": ["192.0.2.0/24"]}, "prefixes"),
    ],
)
def test_ends_of_a_node_share_nothing(second: dict[str, Any], at_fault: str) -> None:
    with pytest.raises(RefusalError) as caught:
        node_ends.store(node(end(prefixes=["192.0.2.0/24"]), end(**second)))
    assert caught.value.refusal.field == f"tunnel_ends[1].{at_fault}"


def test_destinations_do_not_listen_at_one_port() -> None:
    listening = [end(tunnel=name, interface=name, role=TUNNEL_ROLE_DESTINATION) for name in ("a", "b")]
    with pytest.raises(RefusalError) as caught:
        node_ends.store(node(*listening))
    assert caught.value.refusal.field == "tunnel_ends[1].port"


@pytest.mark.parametrize(
    ("proxied", "at_fault"),
    [
        (ProxiedTraffic(interfaces=["eth0", "eth0"]), "interfaces[1]"),
        (ProxiedTraffic(interfaces=["a/b"]), "interfaces[0]"),
        (ProxiedTraffic(interfaces=["eth0"], prefixes=["x"]), "prefixes[0]"),
        (ProxiedTraffic(interfaces=["eth0"], mode=9), "mode"),  # type: ignore[arg-type]
    ],
)
def test_wrong_proxied_traffic_is_refused_by_field(proxied: ProxiedTraffic, at_fault: str) -> None:
    with pytest.raises(RefusalError) as caught:
        node_ends.store(node(proxied=proxied))
    assert caught.value.refusal.field == f"proxied_traffic.{at_fault}"


def test_what_a_request_does_not_say_stays() -> None:
    before = node(end(), proxied=ProxiedTraffic(interfaces=["eth1"], mode=PROXY_MODE_NEW_PORTS))
    bare = Node(id="west", description="new")
    kept = node_ends.keep_unsaid(
        bare, before, registry_pb2.PutNodeRequest(keep_tunnel_ends=True, keep_proxied_traffic=True)
    )
    assert (kept.description, kept.tunnel_ends, kept.proxied_traffic) == (
        *("new", before.tunnel_ends),
        before.proxied_traffic,
    )
    assert node_ends.keep_unsaid(bare, before, registry_pb2.PutNodeRequest()) == bare


def overlay_node(*prefixes: str) -> Node:
    return Node(id="west", overlay=OverlayMembership(prefixes=prefixes))


def test_prefixes_behind_an_overlay_node_are_stored_normalised() -> None:
    stated = overlay_node("10.20.0.0/16", "2001:DB8::/32")
    node_ends.store(stated)
    assert list(stated.overlay.prefixes) == ["10.20.0.0/16", "2001:db8::/32"]


@pytest.mark.parametrize(
    ("prefixes", "at_fault"),
    [
        (["ten"], "prefixes[0]"),
        (["10.20.0.0/16", "10.20.0.1/16"], "prefixes[1]"),
        (["10.20.0.0/16", "10.20.0.0/16"], "prefixes"),
        ([f"10.{number // 256}.{number % 256}.0/24" for number in range(257)], "prefixes"),
    ],
)
def test_wrong_prefixes_of_an_overlay_node_are_refused_by_field(prefixes: list[str], at_fault: str) -> None:
    with pytest.raises(RefusalError) as caught:
        node_ends.store(overlay_node(*prefixes))
    assert caught.value.refusal.field == f"overlay.{at_fault}"


def test_a_part_in_the_overlay_stays_when_a_request_does_not_say_it() -> None:
    bare = Node(id="west")
    request = registry_pb2.PutNodeRequest(keep_overlay=True)
    assert node_ends.keep_unsaid(bare, overlay_node("10.20.0.0/16"), request) == overlay_node("10.20.0.0/16")
    assert not node_ends.keep_unsaid(bare, Node(id="west"), request).HasField("overlay")
    assert not node_ends.keep_unsaid(bare, overlay_node(), registry_pb2.PutNodeRequest()).HasField("overlay")
