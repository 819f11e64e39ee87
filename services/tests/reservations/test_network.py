"""Which node an address belongs to: quick look-ups say what a look at everything says."""

from __future__ import annotations

import ipaddress

from hypothesis import given, settings
from hypothesis import strategies as st

from chart.common.ownership import Prefix
from chart.reservations.decisions.network import Network, _contains

# Few different bits, so that prefixes lie in each other often.
prefixes = st.one_of(
    st.builds(
        lambda high, low, length: ipaddress.ip_network((high << 26 | low, length), strict=False),
        st.integers(0, 7),
        st.integers(0, 63),
        st.sampled_from((0, 4, 8, 26, 28, 30, 32)),
    ),
    st.builds(
        lambda high, low, length: ipaddress.ip_network((high << 124 | low << 8, length), strict=False),
        st.integers(1, 3),
        st.integers(0, 3),
        st.sampled_from((3, 5, 120, 128)),
    ),
)
networks = st.dictionaries(st.sampled_from("abcdef"), st.lists(prefixes, max_size=4).map(tuple), min_size=1)


def points(prefix: Prefix) -> set[tuple[int, int]]:
    """Some addresses of a prefix: its ends, and the ends of its halves, quarters and so on."""
    first, last = int(prefix.network_address), int(prefix.broadcast_address)
    inner = {first + ((last - first) >> shift) for shift in range(prefix.max_prefixlen)}
    return {(prefix.version, one) for one in (first, last, *inner)}


def prefix_at(version: int, address: int) -> Prefix:
    return ipaddress.IPv4Network(address) if version == 4 else ipaddress.IPv6Network(address)


def node_of(network: Network, prefix: Prefix) -> str | None:
    found = [
        (-own.prefixlen, node) for node, all_own in network.nodes.items() for own in all_own if _contains(own, prefix)
    ]
    return min(found)[1] if found else None


def prefix_of(network: Network, node: str) -> Prefix | None:
    own = network.nodes[node]
    if not own or len({one.version for one in own}) > 1:
        return None
    common = own[0]
    while not all(_contains(common, one) for one in own):
        common = common.supernet()
    others = [one for other, all_own in network.nodes.items() if other != node for one in all_own]
    return None if any(_contains(common, one) for one in others) else common


@given(networks, st.lists(prefixes, max_size=8))
@settings(max_examples=300, deadline=None)
def test_nodes_of_addresses(nodes: dict[str, tuple[Prefix, ...]], asked: list[Prefix]) -> None:
    network = Network(nodes, {})
    for node in nodes:
        assert network.prefix_of(node) == network.prefix_of(node) == prefix_of(network, node)
        every = network.prefixes_of(node)
        own = network.nodes[node]
        assert all(any(_contains(one, each) for one in every) for each in own)
        if network.prefix_of(node) is None:
            for version, address in {point for one in every for point in points(one)}:
                assert any(_contains(one, prefix_at(version, address)) for one in own), "no address that is not its own"
    for prefix in (*asked, *(own for all_own in nodes.values() for own in all_own)):
        assert network.node_of(prefix) == node_of(network, prefix)
