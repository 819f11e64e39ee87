"""Path tables of overlay members: which links, who owns what, and by which neighbours."""

from __future__ import annotations

import pytest

from chart.common.ownership import own_prefix
from chart.reservations.decisions.next_hops import NextHops
from chart.reservations.decisions.path_tables import path_tables, steered, steering
from chart.v1.node_state_pb2 import NodeState, OverlayLinkState, OverlayState
from chart.v1.path_table_pb2 import OverlayOwner, OverlayPath, PathTable
from support.overlay_network import links, nodes, states


def hops(table: PathTable) -> dict[str, list[str]]:
    return {owner.node: list(owner.paths[0].next_hops) for owner in table.owners if owner.paths}


def test_links_lead_from_the_own_address_to_the_neighbours() -> None:
    table = path_tables(nodes(), links(), states(mtu=1400), 7)["ingress"]
    assert (table.node, table.generation) == ("ingress", 7)
    by_id = {one.link_id: one for one in table.links}
    assert set(by_id) == {"ingress:to-north", "ingress:to-south"}
    north = by_id["ingress:to-north"]
    assert (north.neighbour, north.local_address, north.remote_address) == ("north", "10.1.1.1", "10.1.1.2")
    assert (north.interface, north.mtu, north.capacity_bps) == ("to-north", 1400, 10**8)


@pytest.mark.parametrize(("mtu", "carried"), [(0, 0), (1350, 1350), (65_536, 65_535)])
def test_a_link_carries_what_its_ends_do(mtu: int, carried: int) -> None:
    assert {one.mtu for one in path_tables(nodes(), links(), states(mtu=mtu), 1)["north"].links} == {carried}


def test_a_link_that_is_too_narrow_for_ipv6_is_no_overlay_link() -> None:
    heard = states()
    heard["north"].interfaces[1].mtu = 1349
    tables = path_tables(nodes(), links(), heard, 1)
    assert [one.link_id for one in tables["north"].links] == ["north:to-ingress"]
    assert [one.link_id for one in tables["egress"].links] == ["egress:to-south"]


def test_owners_have_their_addresses_and_what_is_behind_them() -> None:
    owners = {one.node: list(one.prefixes) for one in path_tables(nodes(), links(), states(), 1)["north"].owners}
    assert owners["egress"] == ["10.0.0.1/32", "10.9.0.0/16"]
    assert owners["ingress"] == ["10.0.0.2/32"]
    assert "host" not in owners


def test_the_shorter_way_is_first_and_every_table_has_the_other() -> None:
    tables = path_tables(nodes(), links(), states(), 1)
    assert hops(tables["ingress"])["egress"] == ["ingress:to-north", "ingress:to-south"]
    assert hops(tables["egress"])["ingress"] == ["egress:to-north", "egress:to-south"]
    # North turns packets back when its own link fails: ingress then takes south.
    assert hops(tables["north"])["egress"] == ["north:to-egress", "north:to-ingress"]
    assert "ingress" not in hops(tables["ingress"])


@pytest.mark.parametrize(
    "reported",
    [
        {"down": ["north:to-egress"]},
        {"dead": ["north:to-egress"]},
        # The other end's word counts as much.
        {"dead": ["egress:to-north"]},
    ],
)
def test_a_link_that_fails_comes_last_everywhere(reported: dict[str, list[str]]) -> None:
    heard = states(down=reported.get("down", []), dead=reported.get("dead", []))
    tables = path_tables(nodes(), links(), heard, 1)
    assert hops(tables["ingress"])["egress"] == ["ingress:to-south", "ingress:to-north"]
    assert hops(tables["north"])["egress"] == ["north:to-ingress", "north:to-egress"]
    # It stays a link: its probes tell when it is back.
    assert "north:to-egress" in {one.link_id for one in tables["north"].links}


def test_outer_addresses_are_nobodys_prefix() -> None:
    stated = nodes()
    stated["north"].addresses.append("10.1.1.2/30")
    owners = {one.node: list(one.prefixes) for one in path_tables(stated, links(), states(), 1)["ingress"].owners}
    assert owners["north"] == ["10.0.0.3/32"]


def test_a_prefix_of_two_is_the_first_ones() -> None:
    stated = nodes()
    stated["north"].overlay.prefixes.append("10.9.0.0/16")
    owners = {one.node: list(one.prefixes) for one in path_tables(stated, links(), states(), 1)["ingress"].owners}
    assert "10.9.0.0/16" in owners["egress"]
    assert "10.9.0.0/16" not in owners["north"]


def test_only_members_have_tables() -> None:
    stated = nodes()
    stated["south"].ClearField("overlay")
    tables = path_tables(stated, links(), states(), 1)
    assert set(tables) == {"egress", "ingress", "north"}
    assert hops(tables["ingress"])["egress"] == ["ingress:to-north"]
    assert path_tables({"host": stated["host"]}, links(), states(), 1) == {}


def test_links_whose_ends_share_no_network_are_none() -> None:
    heard = states()
    for interface in heard["north"].interfaces:
        del interface.addresses[:]
        interface.addresses.append("192.0.2.1/30")
    tables = path_tables(nodes(), links(), heard, 1)
    assert [one.link_id for one in tables["ingress"].links] == ["ingress:to-south"]
    assert hops(tables["north"]) == {}


def test_virtual_links_cross_routers() -> None:
    heard = states()
    heard["north"].interfaces[0].addresses[0] = "192.0.2.1/30"
    tables = path_tables(nodes(), links(virtual="true"), heard, 1)
    north = next(one for one in tables["ingress"].links if one.neighbour == "north")
    assert (north.remote_address, north.interface) == ("192.0.2.1", "")


def test_what_cannot_be_read_is_no_end() -> None:
    heard = states()
    heard["north"].interfaces[0].addresses[0] = "somewhere"
    assert "ingress:to-north" not in {one.link_id for one in path_tables(nodes(), links(), heard, 1)["ingress"].links}


TABLE = PathTable(
    node="ingress",
    owners=[
        OverlayOwner(node="egress", prefixes=["10.9.0.0/16"], paths=[OverlayPath(next_hops=["a:north", "a:south"])]),
        OverlayOwner(node="ingress", prefixes=["10.2.0.0/16"]),
    ],
)
DEAD_NORTH = OverlayLinkState(link_id="a:north", alive=False)
BEHIND, OWN = own_prefix("10.9.0.0/16"), own_prefix("10.2.0.0/16")


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        (None, NextHops(("a:kernel",))),
        (NodeState(node="ingress"), NextHops(("a:kernel",))),
        (NodeState(node="ingress", overlay=OverlayState()), NextHops(("a:north",))),
        (
            NodeState(overlay=OverlayState(links=[DEAD_NORTH])),
            NextHops(("a:south",)),
        ),
        (
            NodeState(overlay=OverlayState(links=[DEAD_NORTH, OverlayLinkState(link_id="a:south", alive=False)])),
            NextHops(("a:north",)),
        ),
    ],
)
def test_admission_follows_the_overlay_where_it_runs(state: NodeState | None, wanted: NextHops) -> None:
    assert BEHIND is not None
    assert OWN is not None
    routes = {BEHIND: NextHops(("a:kernel",)), OWN: NextHops((), ("eth0",))}
    found = steered(TABLE, routes, state)
    assert found[BEHIND] == wanted
    assert found[OWN] == NextHops((), ("eth0",))


def choices(table: PathTable, owner: str) -> dict[int, tuple[list[str], int]]:
    """By colour, the links and the capacity of what flows may choose."""
    found = next(one for one in table.owners if one.node == owner)
    return {path.colour: (list(path.link_ids), path.capacity_bps) for path in found.paths if path.choice}


def test_flows_may_choose_between_diverse_paths() -> None:
    stated = links()
    next(one for one in stated if one.id == "south:to-egress").capacity_bps = 6 * 10**7
    tables = path_tables(nodes(), stated, states(), 1)
    assert choices(tables["ingress"], "egress") == {
        1: (["ingress:to-north", "north:to-egress"], 10**8),
        2: (["ingress:to-south", "south:to-egress"], 6 * 10**7),
    }
    # The nodes between know both colours, and go round a failure as they always do.
    north = next(one for one in tables["north"].owners if one.node == "egress")
    assert [list(path.next_hops) for path in north.paths if path.colour == 1] == [
        ["north:to-egress", "north:to-ingress"]
    ]
    assert 0 not in choices(tables["ingress"], "egress")


def test_a_failed_path_is_no_choice_and_colours_stay() -> None:
    tables = path_tables(nodes(), links(), states(dead=["egress:to-north"]), 1)
    assert set(choices(tables["ingress"], "egress")) == {2}
    usual = path_tables(nodes(), links(), states(), 1)["ingress"]

    def first(table: PathTable) -> dict[int, str]:
        owner = next(one for one in table.owners if one.node == "egress")
        return {path.colour: path.next_hops[0] for path in owner.paths if path.colour}

    assert first(tables["ingress"]) == first(usual)


def test_what_can_be_steered_is_what_runs_and_is_alive() -> None:
    table = path_tables(nodes(), links(), states(), 1)["ingress"]
    running = NodeState(node="ingress", overlay=OverlayState())
    host = own_prefix("10.9.0.0/16")
    assert host is not None
    assert steering(table, running)[host] == (
        ("ingress:to-north", "north:to-egress"),
        ("ingress:to-south", "south:to-egress"),
    )
    assert steering(table, None) == {}
    assert steering(table, NodeState(node="ingress")) == {}
    # With one path there is nothing to choose; north itself has another way still.
    assert host not in steering(table, running, {"north:to-egress"})


def test_hosts_inside_an_owners_prefix_are_reached_as_it_is() -> None:
    table = path_tables(nodes(), links(), states(), 1)["ingress"]
    running = NodeState(node="ingress", overlay=OverlayState())
    inside, elsewhere = own_prefix("10.9.0.1/32"), own_prefix("10.8.0.1/32")
    assert inside is not None
    assert elsewhere is not None
    kernel = {inside: NextHops(("ingress:eth0",)), elsewhere: NextHops(("ingress:eth0",))}
    found = steered(table, kernel, running, kernel)
    assert found[inside] == NextHops(("ingress:to-north",))
    assert found[elsewhere] == kernel[elsewhere]
    assert len(steering(table, running, (), kernel)[inside]) == 2
    assert elsewhere not in steering(table, running, (), kernel)


def test_the_longest_prefix_says_whose_an_address_is() -> None:
    registered = nodes()
    registered["ingress"].overlay.prefixes.append("10.9.1.0/24")
    table = path_tables(registered, links(), states(), 1)["ingress"]
    inside = own_prefix("10.9.1.7/32")
    assert inside is not None
    beside = own_prefix("10.9.2.7/32")
    assert beside is not None
    found = steered(table, {}, NodeState(node="ingress", overlay=OverlayState()), [inside, beside])
    # Its own.
    assert inside not in found
    assert found[beside] == NextHops(("ingress:to-north",))
