"""Requests follow the nodes' routes: the path, equal-cost paths, what is refused, and what moves when routes change."""

from __future__ import annotations

import dataclasses
import ipaddress

import pytest

from chart.reservations.decisions import engine, lifecycle, messages, paths, routing
from chart.reservations.decisions.admission import Ask, Granted, Refused, admit, candidate_link_ids
from chart.reservations.decisions.engine import Book
from chart.reservations.decisions.ledger import Ledger
from chart.reservations.decisions.network import Network, NetworkLink
from chart.reservations.decisions.next_hops import NextHops, next_hops_of
from chart.reservations.decisions.reservation import Timing
from chart.reservations.decisions.validation import check
from chart.reservations.decisions.windows import FOREVER_US, Commitment
from chart.v1 import grant_status_pb2, node_state_pb2, rate_request_pb2
from chart.v1.flow_grant_pb2 import ServiceType
from chart.v1.rate_request_pb2 import RateRequestSpecification, ServiceState
from chart.v1.reservations_pb2 import PathKind, PathSource

MEGA = 1_000_000
NOW_US = 1_700_000_000_000_000
EDGES = ("a-i", "i-n", "i-s", "n-e", "s-e", "e-b")
# Every node's own address.
ADDRESSES = {name: ipaddress.ip_network(f"10.0.0.{place}/32") for place, name in enumerate("ainseb", 1)}
TARGET = ADDRESSES["b"]
NORTH = ("a:i", "i:n", "n:e", "e:b")
SOUTH = ("a:i", "i:s", "s:e", "e:b")


def diamond(**hops: str) -> Network:
    """Two ways from a to b, over n and s; `hops`: where nodes send packets to b, several next nodes as several letters,
    "" for nowhere, "?" for an interface without a link.
    """
    links = {}
    for edge in EDGES:
        one, other = edge.split("-")
        for sender, receiver in ((one, other), (other, one)):
            identity = f"{sender}:{receiver}"
            links[identity] = NetworkLink(identity, sender, receiver, 100 * MEGA)
    routes = {
        node: {TARGET: NextHops(() if to == "?" else tuple(f"{node}:{one}" for one in to), ("tun0",) * (to == "?"))}
        for node, to in hops.items()
    }
    return Network({name: (address,) for name, address in ADDRESSES.items()}, links, routes)


def ask(bps: int = 10 * MEGA, **more: object) -> Ask:
    return dataclasses.replace(Ask("a", "b", bps, 0, NOW_US, FOREVER_US), **more)  # type: ignore[arg-type]


def granted(network: Network, asked: Ask | None = None) -> tuple[str, ...]:
    decision = admit(network, {}, asked or ask())
    assert isinstance(decision, Granted), decision
    return decision.link_ids


@pytest.mark.parametrize(("via", "path"), [("n", NORTH), ("s", SOUTH)])
def test_the_path_is_the_routed_one(via: str, path: tuple[str, ...]) -> None:
    network = diamond(a="i", i=via, n="e", s="e", e="b")
    assert granted(network) == path
    assert granted(network, ask(prefer=NORTH)) == path
    assert set(candidate_link_ids(network, ask())) == set(path)


def test_a_longer_route_is_followed_too() -> None:
    links = {
        one.id: one
        for one in (
            NetworkLink("a:b", "a", "b", 100 * MEGA),
            NetworkLink("a:i", "a", "i", 100 * MEGA),
            NetworkLink("i:b", "i", "b", 100 * MEGA),
        )
    }
    network = Network({name: (ADDRESSES[name],) for name in "aib"}, links, {"a": {TARGET: NextHops(("a:i",))}})
    assert granted(network) == ("a:i", "i:b")


def test_equal_cost_paths_are_charged_on_every_link() -> None:
    network = diamond(a="i", i="ns", n="e", s="e", e="b")
    assert granted(network) == ("a:i", "i:n", "i:s", "n:e", "s:e", "e:b")
    ledger = Ledger()
    refused = admit(network, {"s:e": [Commitment(80 * MEGA, 0, FOREVER_US)]}, ask())
    assert isinstance(refused, Refused)
    assert refused.bottleneck_link_id == "s:e"
    first = paths.alternatives(network, ledger, "a", "b", NOW_US, FOREVER_US)[0]
    assert first.branches
    assert first.nodes == ["a", "i", "n", "s", "e", "b"]
    assert first.delay_us == 0


def test_avoid_against_the_routing_is_refused_with_what_would_help() -> None:
    network = diamond(a="i", i="n", n="e", s="e", e="b")
    refused = admit(network, {}, ask(avoid=frozenset({"n"})))
    assert isinstance(refused, Refused)
    assert (refused.code, refused.field) == ("no-path", "avoid")
    assert "routed over n, to be avoided" in refused.detail
    assert refused.suggestions[1].startswith("change the routes of node i so")
    assert granted(network, ask(avoid=frozenset({"s"}))) == NORTH
    # Also when the node to be avoided says nothing itself.
    refused = admit(diamond(a="i", i="n"), {}, ask(avoid=frozenset({"n"})))
    assert isinstance(refused, Refused)
    assert refused.field == "avoid"


@pytest.mark.parametrize(
    ("hops", "words"),
    [
        ({"a": "i", "i": ""}, "node i has no route to b (10.0.0.6/32)"),
        ({"a": "i", "i": "n", "n": "i", "e": "b"}, "are sent round a, i, n and do not arrive"),
    ],
)
def test_packets_that_do_not_arrive_get_no_rate(hops: dict[str, str], words: str) -> None:
    refused = admit(diamond(**hops), {}, ask())
    assert isinstance(refused, Refused)
    assert refused.code == "no-path"
    assert words in refused.detail


def test_a_route_over_a_link_that_is_down_is_no_path() -> None:
    network = diamond(a="i", i="n", n="e", e="b")
    links = {**network.links, "n:e": dataclasses.replace(network.links["n:e"], capacity_bps=0)}
    refused = admit(Network(network.nodes, links, network.routes), {}, ask())
    assert isinstance(refused, Refused)
    assert "routed over n:e, which is down" in refused.detail


def test_nodes_that_say_nothing_are_crossed_and_named() -> None:
    network = diamond(i="s")
    assert granted(network) == SOUTH
    first = paths.alternatives(network, Ledger(), "a", "b", NOW_US, FOREVER_US)[0]
    assert first.kinds[0] == PathKind.PATH_KIND_ROUTED
    assert first.source == PathSource.PATH_SOURCE_PARTLY_ROUTED
    assert first.silent == ("a", "s", "e")
    assert set(candidate_link_ids(network, ask())) >= {*NORTH, *SOUTH}
    # An interface without a link says as little.
    assert granted(diamond(a="i", i="?"), ask(prefer=SOUTH)) == SOUTH


def test_without_reports_all_is_as_before() -> None:
    network = diamond()
    assert granted(network) == NORTH
    assert granted(network, ask(avoid=frozenset({"n"}))) == SOUTH
    found = paths.alternatives(network, Ledger(), "a", "b", NOW_US, FOREVER_US)
    assert {one.source for one in found} == {PathSource.PATH_SOURCE_COMPUTED}
    assert found[0].kinds[0] == PathKind.PATH_KIND_WIDEST_SHORTEST


def test_paths_begin_with_the_routed_one_and_name_the_others_computed() -> None:
    found = paths.alternatives(
        diamond(a="i", i="s", n="e", s="e", e="b"), Ledger(), "a", "b", NOW_US, FOREVER_US, frozenset({"s"})
    )
    assert found[0].kinds == (PathKind.PATH_KIND_ROUTED,)
    assert found[0].source == PathSource.PATH_SOURCE_ROUTED
    assert tuple(link.id for link in found[0].links) == SOUTH
    assert {one.source for one in found[1:]} == {PathSource.PATH_SOURCE_COMPUTED}


def test_an_address_that_nothing_reaches_does_not_spoil_the_others() -> None:
    network = diamond(a="i", i="s", n="e", s="e", e="b")
    other = ipaddress.ip_network("10.1.0.0/16")
    nodes = {**network.nodes, "b": (TARGET, other)}
    routes = {**network.routes, "i": {TARGET: NextHops(("i:s",)), other: NextHops()}}
    both = Network(nodes, network.links, routes)
    assert granted(both) == SOUTH
    refused = admit(both, {}, ask(towards=("10.1.2.0/24",)))
    assert isinstance(refused, Refused)
    assert "node i has no route to b (10.1.0.0/16)" in refused.detail


def test_addresses_of_other_routes_are_charged_where_their_packets_go() -> None:
    network = diamond(a="i", i="s", n="e", s="e", e="b")
    other = ipaddress.ip_network("10.1.0.0/16")
    nodes = {**network.nodes, "b": (TARGET, other)}
    own = {"a": "a:i", "n": "n:e", "s": "s:e", "e": "e:b"}
    routes = {
        node: {**network.routes[node], other: NextHops((own.get(node, "i:n"),))} for node in ("a", "i", "n", "s", "e")
    }
    both = Network(nodes, network.links, routes)
    assert set(granted(both)) == {*NORTH, *SOUTH}
    assert granted(both, ask(towards=("10.0.0.6/32",))) == SOUTH
    assert granted(both, ask(towards=("10.1.2.3/32",))) == NORTH


def _book(network: Network, *rates: int) -> Book:
    book = Book(network, Ledger())
    for place, bps in enumerate(rates):
        specification = RateRequestSpecification(
            source="a",
            destination="b",
            service=ServiceType.SERVICE_TYPE_GUARANTEED,
            guaranteed_bps=bps,
            preemption_priority=place,
        )
        checked = check(specification, network, NOW_US)
        made = engine.create(book, f"request-{place}", "owner", checked, NOW_US, "", Timing())
        assert made.refused is None
    return book


def test_a_route_change_moves_commitments() -> None:
    book = _book(diamond(a="i", i="n", n="e", s="e", e="b"), 30 * MEGA, 20 * MEGA)
    assert not any(engine.strays(book.network, one) for one in book.reservations.values())
    book.network = diamond(a="i", i="s", n="e", s="e", e="b")
    assert all(engine.strays(book.network, one) for one in book.reservations.values())
    decision = engine.reroute(book, tuple(book.reservations), NOW_US, Timing())
    assert len(decision.outcomes) == 2
    for one in book.reservations.values():
        assert one.link_ids == SOUTH
        assert one.confirming_nodes == ("a", "i", "s", "e")
        assert one.service_state == ServiceState.SERVICE_STATE_GRANTED
    assert book.ledger.peak_bps("i:n", NOW_US, FOREVER_US) == 0
    assert book.ledger.peak_bps("i:s", NOW_US, FOREVER_US) == 50 * MEGA
    assert not any(engine.strays(book.network, one) for one in book.reservations.values())
    assert engine.reroute(book, tuple(book.reservations), NOW_US, Timing()).outcomes == ()


def test_what_does_not_fit_on_the_new_route_is_degraded_the_lowest_rank_first() -> None:
    book = _book(diamond(a="i", i="n", n="e", s="e", e="b"), 40 * MEGA, 30 * MEGA)
    after = diamond(a="i", i="s", n="e", s="e", e="b")
    narrow = {**after.links, "s:e": dataclasses.replace(after.links["s:e"], capacity_bps=50 * MEGA)}
    book.network = Network(after.nodes, narrow, after.routes)
    engine.reroute(book, tuple(book.reservations), NOW_US, Timing())
    low, high = book.reservations["request-0"], book.reservations["request-1"]
    assert (high.granted_bps, high.link_ids) == (30 * MEGA, SOUTH)
    assert low.service_state == ServiceState.SERVICE_STATE_DEGRADED
    assert low.granted_bps == 0
    # It runs on at the available rate where its packets go, not where they went.
    assert low.link_ids == SOUTH
    assert low.confirming_nodes == ("a", "i", "s", "e")
    assert "link s:e has a free rate of" in low.service_reason
    assert book.ledger.peak_bps("s:e", NOW_US, FOREVER_US) == 30 * MEGA
    assert book.ledger.peak_bps("i:n", NOW_US, FOREVER_US) == 0


def test_a_request_whose_packets_go_nowhere_says_so_and_comes_back() -> None:
    whole = diamond(a="i", i="n", n="e", s="e", e="b")
    book = _book(whole, 30 * MEGA)
    book.network = diamond(a="i", i="", n="e", s="e", e="b")
    engine.reroute(book, ("request-0",), NOW_US, Timing())
    one = book.reservations["request-0"]
    assert one.service_state == ServiceState.SERVICE_STATE_DEGRADED
    assert "node i has no route to b" in one.service_reason
    book.network = whole
    assert one.lacking
    engine.readmit(book, "request-0", NOW_US, Timing())
    assert book.reservations["request-0"].granted_bps == 30 * MEGA


def test_what_agents_report_is_read() -> None:
    state = node_state_pb2.NodeState(node="a")
    state.routes.add(
        prefixes=["10.0.0.6/32", "nonsense", "10.1.1.1/30"],
        next_hops=[
            node_state_pb2.NextHop(interface="n0", link_id="a:n0"),
            node_state_pb2.NextHop(interface="tun0"),
        ],
    )
    hops = NextHops(("a:n0",), ("tun0",))
    assert next_hops_of(state) == {TARGET: hops, ipaddress.ip_network("10.1.1.1/32"): hops}


def test_a_link_that_the_registry_does_not_have_says_nothing() -> None:
    network = diamond(a="i", i="n", n="e", s="e", e="b")
    links = {identity: link for identity, link in network.links.items() if identity != "i:n"}
    found = routing.route(Network(network.nodes, links, network.routes), "a", "b", (), lambda _: [links["i:s"]])
    assert found is not None
    assert found.silent == ("i",)
    assert found.link_ids == SOUTH


def test_a_request_without_guarantee_follows_too_and_waits_where_there_is_no_way() -> None:
    whole = diamond(a="i", i="n", n="e", s="e", e="b")
    book = Book(whole, Ledger())
    asked = RateRequestSpecification(source="a", destination="b", service=ServiceType.SERVICE_TYPE_AVAILABLE)
    engine.create(book, "one", "owner", check(asked, whole, NOW_US), NOW_US, "", Timing())
    book.network = diamond(a="i", i="", n="e", s="e", e="b")
    assert engine.reroute(book, ("one",), NOW_US, Timing()).outcomes == ()
    book.network = diamond(a="i", i="s", n="e", s="e", e="b")
    assert len(engine.reroute(book, ("one",), NOW_US, Timing()).outcomes) == 1
    assert book.reservations["one"].link_ids == SOUTH
    assert book.reservations["one"].service_state == ServiceState.SERVICE_STATE_GRANTED


def _reported(book: Book, node: str, against: bool = True, **octets: int) -> None:
    """A node reports by which of its links packets of the first request leave."""
    one = book.reservations["request-0"]
    status = grant_status_pb2.GrantStatus(
        request_id=one.id,
        node=node,
        generation=one.generation,
        state=grant_status_pb2.GRANT_STATE_APPLIED,
        egress_against_routes=against,
        egress=[grant_status_pb2.EgressLink(link_id=f"{node}:{to}", recent_bytes=n) for to, n in octets.items()],
    )
    outcome = engine.apply(book, lifecycle.on_status(one, status, NOW_US + 1, Timing()), NOW_US + 1, Timing())
    assert outcome is not None
    assert outcome.announce


def _told(book: Book) -> rate_request_pb2.RateRequest:
    return messages.rate_request(book.reservations["request-0"])


def test_packets_that_leave_by_another_link_are_followed_there_and_back() -> None:
    book = _book(diamond(a="i", i="n", n="e", s="e", e="b"), 30 * MEGA)
    assert not _told(book).off_path
    _reported(book, "i", s=94_000, n=6_000)
    assert _told(book).off_path
    assert _told(book).warning == "committed over i:n, but 94 % of its bytes leave i by i:s"
    assert engine.strays(book.network, book.reservations["request-0"])
    # Both links carry packets of it: both are charged.
    engine.reroute(book, ("request-0",), NOW_US + 1, Timing())
    assert set(book.reservations["request-0"].link_ids) == {*NORTH, *SOUTH}
    _reported(book, "i", s=100_000)
    engine.reroute(book, ("request-0",), NOW_US + 1, Timing())
    one = book.reservations["request-0"]
    assert one.link_ids == SOUTH
    assert one.service_state == ServiceState.SERVICE_STATE_GRANTED
    assert book.ledger.peak_bps("i:n", NOW_US + 1, FOREVER_US) == 0
    assert not _told(book).off_path
    assert "they leave i by i:s, against the node's routes" in _told(book).warning
    assert not engine.strays(book.network, one)
    # The diversion is over.
    _reported(book, "i", against=False, n=100_000)
    engine.reroute(book, ("request-0",), NOW_US + 1, Timing())
    assert book.reservations["request-0"].link_ids == NORTH
    assert _told(book).warning == ""


def test_what_does_not_fit_where_packets_were_seen_is_told_why() -> None:
    whole = diamond(a="i", i="n", n="e", s="e", e="b")
    narrow = {**whole.links, "s:e": dataclasses.replace(whole.links["s:e"], capacity_bps=20 * MEGA)}
    book = _book(Network(whole.nodes, narrow, whole.routes), 30 * MEGA)
    _reported(book, "i", s=100_000)
    engine.reroute(book, ("request-0",), NOW_US + 1, Timing())
    one = book.reservations["request-0"]
    assert one.service_state == ServiceState.SERVICE_STATE_DEGRADED
    assert one.service_reason.startswith(
        "committed over i:n, but 100 % of its bytes leave i by i:s: link s:e has a free rate of"
    )
    assert one.lacking


def test_a_route_change_under_way_is_said_and_left_to_the_routes() -> None:
    book = _book(diamond(a="i", i="n", n="e", s="e", e="b"), 30 * MEGA)
    _reported(book, "i", against=False, s=100_000)
    assert _told(book).off_path
    assert not engine.strays(book.network, book.reservations["request-0"])


def test_a_node_tells_nothing_of_links_that_are_not_its_own() -> None:
    book = _book(diamond(a="i", i="n", n="e", s="e", e="b"), 30 * MEGA)
    one = book.reservations["request-0"]
    forged = grant_status_pb2.GrantStatus(
        request_id=one.id, node="i", generation=one.generation, egress_against_routes=True
    )
    forged.egress.add(link_id="s:e", recent_bytes=1)
    engine.apply(book, lifecycle.on_status(one, forged, NOW_US + 1, Timing()), NOW_US + 1, Timing())
    assert not _told(book).off_path
    assert book.reservations["request-0"].observed == ()


def test_a_request_without_its_rate_goes_where_its_packets_go() -> None:
    book = _book(diamond(a="i", i="n", n="e", s="e", e="b"), 30 * MEGA)
    narrow = {
        one: dataclasses.replace(link, capacity_bps=20 * MEGA) if one in ("n:e", "s:e") else link
        for one, link in book.network.links.items()
    }
    book.network = Network(book.network.nodes, narrow, book.network.routes)
    engine.relieve(book, ("n:e",), NOW_US, Timing())
    one = book.reservations["request-0"]
    assert (one.service_state, one.link_ids) == (ServiceState.SERVICE_STATE_DEGRADED, NORTH)
    assert engine.readmit(book, "request-0", NOW_US, Timing()).outcomes == (), "nothing changed"
    book.network = Network(book.network.nodes, narrow, diamond(a="i", i="s", n="e", s="e", e="b").routes)
    decision = engine.readmit(book, "request-0", NOW_US, Timing())
    one = book.reservations["request-0"]
    assert decision.granted is None
    assert decision.outcomes[0].grant == "put"
    assert (one.service_state, one.granted_bps, one.link_ids) == (ServiceState.SERVICE_STATE_DEGRADED, 0, SOUTH)
    assert one.service_reason.startswith("link s:e has a free rate of")
    assert one.content_generation == one.generation
    assert book.ledger.peak_bps("s:e", NOW_US, FOREVER_US) == 0
    assert engine.readmit(book, "request-0", NOW_US, Timing()).outcomes == ()


def test_what_was_seen_before_a_move_is_not_said_of_the_new_path() -> None:
    book = _book(diamond(a="i", i="n", n="e", s="e", e="b"), 30 * MEGA)
    _reported(book, "i", against=False, n=100_000)
    book.network = diamond(a="i", i="s", n="e", s="e", e="b")
    engine.reroute(book, ("request-0",), NOW_US + 1, Timing())
    assert book.reservations["request-0"].link_ids == SOUTH
    assert _told(book).warning == ""
    _reported(book, "i", against=False, n=100_000)
    assert _told(book).off_path, "seen now"


def test_a_node_that_comes_back_onto_the_path_is_not_held_to_what_it_saw_before() -> None:
    north, south = diamond(a="i", i="n", n="e", s="e", e="b"), diamond(a="i", i="s", n="e", s="e", e="b")
    book = _book(north, 30 * MEGA)
    # The link behind it was cut: it sent packets back.
    _reported(book, "n", i=100_000)
    book.network = south
    engine.reroute(book, ("request-0",), NOW_US + 1, Timing())
    book.network = north
    engine.reroute(book, ("request-0",), NOW_US + 1, Timing())
    one = book.reservations["request-0"]
    assert one.link_ids == NORTH
    assert one.observed == ()
    assert not engine.strays(north, one)
    assert _told(book).warning == ""


def overlaid(**more: object) -> Network:
    """The diamond, routed over n, whose node i can steer by n or by s."""
    steering = {"i": {TARGET: (("i:n", "n:e"), ("i:s", "s:e"))}}
    return dataclasses.replace(diamond(a="i", i="n", n="e", s="e", e="b"), steering=steering, **more)  # type: ignore[arg-type]


def taken(*path: str, bps: int) -> dict[str, list[Commitment]]:
    return {one: [Commitment(bps, NOW_US, FOREVER_US)] for one in path}


def test_what_is_avoided_is_steered_around() -> None:
    assert granted(overlaid()) == NORTH
    assert granted(overlaid(), ask(avoid=frozenset({"n"}))) == SOUTH
    assert set(candidate_link_ids(overlaid(), ask())) == {*NORTH, *SOUTH}
    refused = admit(overlaid(), {}, ask(avoid=frozenset({"n", "s"})))
    assert isinstance(refused, Refused)
    assert (refused.code, refused.field) == ("no-path", "avoid")


def test_a_rate_takes_the_path_on_which_it_fits() -> None:
    load = taken("i:n", bps=75 * MEGA)
    decision = admit(overlaid(), load, ask(10 * MEGA))
    assert isinstance(decision, Granted)
    assert decision.link_ids == SOUTH
    small = admit(overlaid(), load, ask(2 * MEGA))
    assert isinstance(small, Granted)
    assert small.link_ids == NORTH
    # On neither: the wider one says what there is.
    both = admit(overlaid(), {**load, **taken("i:s", bps=60 * MEGA)}, ask(30 * MEGA))
    assert isinstance(both, Refused)
    assert (both.bottleneck_link_id, both.ceiling_bps) == ("i:s", 20 * MEGA)


def test_a_request_stays_on_the_path_that_it_has() -> None:
    assert granted(overlaid(), ask(prefer=SOUTH)) == SOUTH
    assert routing.follows(overlaid(), "a", "b", (), SOUTH)
    assert routing.follows(overlaid(), "a", "b", (), NORTH)
    assert not routing.follows(diamond(a="i", i="n", n="e", s="e", e="b"), "a", "b", (), SOUTH)
    # Its path failed: what is left is the other one.
    links = {**overlaid().links, "s:e": NetworkLink("s:e", "s", "e", 0)}
    down = overlaid(links=links)
    assert not routing.follows(down, "a", "b", (), SOUTH)
    assert granted(down, ask(prefer=SOUTH)) == NORTH


def test_where_packets_were_seen_counts_before_what_can_be_steered() -> None:
    seen = ask(observed=(("i", ("i:s",)),))
    assert granted(overlaid(), seen) == SOUTH


def test_paths_say_that_they_are_steered() -> None:
    found = paths.alternatives(overlaid(), Ledger(), "a", "b", NOW_US, FOREVER_US)
    assert tuple(link.id for link in found[0].links) == NORTH
    assert PathKind.PATH_KIND_ROUTED in found[0].kinds
    assert found[0].source == PathSource.PATH_SOURCE_STEERED
    assert tuple(link.id for link in found[1].links) == SOUTH
    assert PathKind.PATH_KIND_STEERED in found[1].kinds
    assert found[1].source == PathSource.PATH_SOURCE_STEERED
    avoiding = paths.alternatives(overlaid(), Ledger(), "a", "b", NOW_US, FOREVER_US, ("n",))
    assert tuple(link.id for link in avoiding[0].links) == SOUTH


def test_what_goes_round_in_circles_by_itself_can_be_steered() -> None:
    """North's link has just failed: it sends packets back, and nobody has computed new next hops yet."""
    steering = {"i": {TARGET: (("i:n", "n:i"), ("i:s", "s:e"))}}
    network = dataclasses.replace(diamond(a="i", i="n", n="i", s="e", e="b"), steering=steering)
    assert granted(network) == SOUTH
    assert routing.follows(network, "a", "b", (), SOUTH)
    assert not routing.follows(network, "a", "b", (), NORTH)
