"""Which node an address belongs to: quick look-ups say what a look at everything says."""

from __future__ import annotations

import ipaddress

from hypothesis import given, settings
from hypothesis import strategies as st

from chart.reservations.decisions.network import Network, Prefix, _contains

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
        one_by_one = network.prefixes_of(node)
        assert all(any(_contains(found, own) for found in one_by_one) for own in network.nodes[node])
        if network.prefix_of(node) is None:
            listed = sum(found.num_addresses for found in one_by_one)
            distinct = ipaddress.collapse_addresses
            own4 = distinct(own for own in network.nodes[node] if isinstance(own, ipaddress.IPv4Network))
            own6 = distinct(own for own in network.nodes[node] if isinstance(own, ipaddress.IPv6Network))
            assert listed == sum(own.num_addresses for own in (*own4, *own6)), "no address that is not its own"
    for prefix in (*asked, *(own for all_own in nodes.values() for own in all_own)):
        assert network.node_of(prefix) == node_of(network, prefix)
