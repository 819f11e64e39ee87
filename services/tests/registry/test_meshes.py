"""How a mesh is laid out, and which sensor pods count as there."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chart.common.rpc_errors import RefusalError
from chart.registry import mesh_layout, meshes
from chart.registry.presence import SILENT_AFTER_US, Presence
from chart.v1.sensing_mesh_pb2 import MeshSensor, SensingMesh
from chart.v1.topology_pb2 import Link, Node

PING_RUN_BYTES = 1000


def nodes(count: int, **fields: object) -> list[Node]:
    return [
        Node(id=f"n{at:03}", addresses=[f"10.0.{at // 250}.{at % 250 + 1}/32"], **fields)  # type: ignore[arg-type]
        for at in range(count)
    ]


def star(members: Collection[Node], capacity_bps: int = 10**8) -> list[Link]:
    """Every node beside one hub."""
    return [
        Link(id=f"{a}:to-{b}", from_node=a, to_node=b, interface=f"to-{b}", capacity_bps=capacity_bps)
        for node in members
        for a, b in ((node.id, "hub"), ("hub", node.id))
    ]


def mesh(*sensors: MeshSensor, **fields: object) -> SensingMesh:
    stated = {"id": "all", "enabled": True, "sensors": list(sensors) or [ping()], **fields}
    return meshes.sensing_mesh(SensingMesh(**stated))  # type: ignore[arg-type]


def ping(period_ms: int = 10_000, **parameters: str) -> MeshSensor:
    return MeshSensor(sensor="ping", period_ms=period_ms, parameters=parameters)


def ids(known: Collection[Node]) -> set[str]:
    return {node.id for node in known}


def test_every_reporting_node_measures_every_other() -> None:
    known = nodes(5)
    made = mesh_layout.plan(mesh(), known, star(known), ids(known[:4]))
    measured = {(one.source_node, one.destination_node) for one in made.configurations.values()}
    assert measured == set(itertools.permutations(sorted(ids(known[:4])), 2))
    one = made.configurations["mesh:all:ping:n000:n001"]
    assert (one.destination_address, one.period_ms, one.mesh) == ("10.0.0.2", 10_000, "all")
    # Of all nodes: who has no pod is no member.
    assert {(member.node, member.state) for member in made.shown.members} == {
        (identity, "measuring") for identity in ids(known[:4])
    }


def test_members_by_name_and_by_tag_and_why_one_does_not_measure() -> None:
    known = [*nodes(2), Node(id="tagged", addresses=["10.9.0.1/32"], tags={"site": "x"}), Node(id="bare")]
    made = mesh_layout.plan(
        mesh(nodes=["n000", "n001", "bare", "nobody"], node_tags={"site": "x"}), known, [], {"n000", "tagged", "bare"}
    )
    assert {member.node: member.state for member in made.shown.members} == {
        "n000": "measuring",
        "n001": "silent",
        "bare": "without-address",
        "nobody": "unknown",
        "tagged": "measuring",
    }
    assert {one.source_node for one in made.configurations.values()} == {"n000", "tagged"}


def test_a_disabled_mesh_and_one_of_a_single_node_measure_nothing() -> None:
    known = nodes(3)
    assert not mesh_layout.plan(mesh(enabled=False), known, [], ids(known)).configurations
    assert not mesh_layout.plan(mesh(), known, [], {"n000"}).configurations


@given(count=st.integers(2, 12), capacity_mbit=st.sampled_from([1, 10, 100]), period_ms=st.sampled_from([1000, 10_000]))
def test_no_link_carries_more_than_the_budget_answers_included(count: int, capacity_mbit: int, period_ms: int) -> None:
    known = nodes(count)
    links = star(known, capacity_mbit * 10**6)
    wanted = mesh(ping(period_ms), budget_share=0.005)
    made = mesh_layout.plan(wanted, known, links, ids(known))
    assert len(made.configurations) == count * (count - 1)
    taken: dict[str, float] = defaultdict(float)
    for one in made.configurations.values():
        runs = 60_000 / one.period_ms
        for a, b in ((one.source_node, one.destination_node), (one.destination_node, one.source_node)):
            taken[f"{a}:to-hub"] += runs * PING_RUN_BYTES
            taken[f"hub:to-{b}"] += runs * PING_RUN_BYTES
    budget = 0.005 * capacity_mbit * 10**6 / 8 * 60
    assert max(taken.values()) <= budget * 1.001
    shown = {link.link_id: link.planned_bytes for link in made.shown.links}
    assert shown == {link: pytest.approx(size, abs=1) for link, size in taken.items()}
    asked = 2 * (count - 1) * PING_RUN_BYTES * 60_000 / period_ms
    # As often as was asked for where there is room.
    assert (made.shown.slowest == 1) == (asked <= budget)


def test_a_large_mesh_is_spread_evenly_and_changes_little_when_one_node_comes() -> None:
    known = nodes(300)
    before = mesh_layout.plan(mesh(), known, [], ids(known)).configurations
    assert len(before) <= mesh_layout.MAX_CONFIGURATIONS
    assert len(set(Counter(one.source_node for one in before.values()).values())) == 1
    assert len(set(Counter(one.destination_node for one in before.values()).values())) == 1
    more = [*known, Node(id="late", addresses=["10.7.0.1/32"])]
    after = mesh_layout.plan(mesh(), more, [], ids(more)).configurations
    kept = {(one.source_node, one.destination_node) for one in before.values()} & {
        (one.source_node, one.destination_node) for one in after.values()
    }
    assert len(kept) > 0.97 * len(before)


def test_a_run_that_no_budget_has_room_for_is_left_out_with_a_remark() -> None:
    known = nodes(2)
    chirp = MeshSensor(sensor="pathchirp", period_ms=60_000, parameters={"limit_bytes": "1000000"})
    wanted = mesh(ping(), chirp)
    made = mesh_layout.plan(wanted, known, star(known, 10**7), ids(known))
    assert {one.sensor for one in made.configurations.values()} == {"ping"}
    assert "a run of pathchirp takes 1000000 bytes of n001:to-hub" in made.shown.remarks[0]


@pytest.mark.parametrize("capacity_mbit", [1, 10, 100])
@pytest.mark.parametrize("sensor", ["pathchirp", "pathrate", "spruce"])
def test_trains_are_fitted_to_slow_links(capacity_mbit: int, sensor: str) -> None:
    known = nodes(4)
    wanted = mesh(MeshSensor(sensor=sensor, period_ms=60_000))
    made = mesh_layout.plan(wanted, known, star(known, capacity_mbit * 10**6), ids(known))
    assert len(made.configurations) == 12
    assert not made.shown.remarks
    assert all(link.planned_bytes <= link.limit_bytes for link in made.shown.links)


def test_spruce_is_told_the_capacity_of_its_path() -> None:
    known = nodes(2)
    spruce = MeshSensor(sensor="spruce", period_ms=600_000, parameters={"limit_bytes": "20000"})
    links = star(known, 10**8)
    links[0].capacity_bps = 2 * 10**7
    made = mesh_layout.plan(mesh(spruce), known, links, ids(known))
    assert made.configurations["mesh:all:spruce:n000:n001"].parameters["capacity_bps"] == "20000000"
    assert made.configurations["mesh:all:spruce:n001:n000"].parameters["capacity_bps"] == "100000000"
    assert "which is unknown" in mesh_layout.plan(mesh(spruce), known, [], ids(known)).shown.remarks[0]


def test_two_of_a_sensor_and_long_names_keep_ids_apart() -> None:
    long = [Node(id=("x" * 60 + f"-{at}"), addresses=[f"10.0.0.{at}/32"]) for at in range(1, 4)]
    made = mesh_layout.plan(mesh(ping(), ping(count="1")), long, [], ids(long))
    assert len(made.configurations) == 12
    assert all(len(identity) <= 128 for identity in made.configurations)


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"sensors": []}, "sensors", "must be 1 to 8"),
        ({"sensors": [MeshSensor(sensor="snmp", period_ms=1000)]}, "sensors[0].sensor", "not one of ping"),
        ({"sensors": [ping(50)]}, "sensors[0].period_ms", "between 100"),
        ({"sensors": [ping(count="many")]}, "sensors[0].parameters", "count must be a number"),
        ({"budget_share": 0.02}, "budget_share", "at most 0.01"),
        ({"id": "Not A Label"}, "id", "DNS label"),
        ({"nodes": ["a", "a"]}, "nodes", "named twice"),
    ],
)
def test_what_is_refused_names_its_field(fields: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(RefusalError) as caught:
        mesh(**fields) if "sensors" not in fields else meshes.sensing_mesh(
            SensingMesh(**{"id": "all", **fields})  # type: ignore[arg-type]
        )
    assert caught.value.refusal.field == field
    assert words in caught.value.refusal.detail


def test_the_mesh_of_all_nodes_exists_from_the_start_and_stays() -> None:
    known = nodes(3)
    made = mesh_layout.plan(meshes.built_in(enabled=True), known, [], ids(known))
    assert len(made.configurations) == 6
    assert not mesh_layout.plan(meshes.built_in(enabled=False), known, [], ids(known)).configurations
    with pytest.raises(RefusalError, match="is built in and cannot be deleted"):
        meshes.check_deletion("all")
    meshes.check_deletion("sites")


def test_only_what_differs_is_written() -> None:
    known = nodes(3)
    stored = mesh_layout.plan(mesh(), known, [], ids(known)).configurations
    wanted = mesh_layout.plan(mesh(), known, [], ids(known[:2])).configurations
    changed, removed = mesh_layout.differences(wanted, stored)
    assert not changed
    assert len(removed) == 4
    assert all("n002" in identity for identity in removed)


# Presence


def test_a_pod_is_gone_when_others_report_and_it_does_not() -> None:
    presence = Presence()
    presence.heard("a", 0)
    presence.heard("b", 0)
    presence.heard("a", SILENT_AFTER_US)
    assert presence.reporting() == {"a", "b"}
    presence.heard("a", SILENT_AFTER_US + 1)
    assert presence.reporting() == {"a"}
    presence.heard("b", SILENT_AFTER_US + 2)
    assert presence.reporting() == {"a", "b"}


def test_when_nobody_reports_all_stay() -> None:
    presence = Presence()
    presence.heard("a", 0)
    presence.heard("b", 1)
    assert presence.reporting() == {"a", "b"}


def test_reports_of_before_are_as_old_as_their_clocks_say() -> None:
    presence = Presence()
    presence.stored({"a": 10**15, "old": 10**15 - SILENT_AFTER_US - 1}, 5)
    assert presence.reporting() == {"a"}
    presence.gone("a")
    assert presence.reporting() == frozenset()


# Pairs that inference chose


def wishes(*pairs: tuple[str, str], metric: str = "rtt_us") -> tuple[mesh_layout.Wish, ...]:
    return tuple(mesh_layout.Wish(metric, *pair) for pair in pairs)


def test_where_all_pairs_have_room_inference_changes_nothing() -> None:
    known = nodes(4)
    plain = mesh_layout.plan(mesh(), known, star(known), ids(known))
    chosen = mesh_layout.plan(mesh(), known, star(known), ids(known), wishes(("n000", "n001")))
    assert chosen.configurations == plain.configurations
    assert not chosen.chosen


@settings(deadline=None, max_examples=30)
@given(count=st.integers(6, 10), capacity_mbit=st.sampled_from([2, 4, 6]), picks=st.integers(1, 40))
def test_chosen_pairs_go_ahead_within_the_budget(count: int, capacity_mbit: int, picks: int) -> None:
    known = nodes(count)
    links = star(known, capacity_mbit * 10**6)
    wanted = mesh(ping(2000), budget_share=0.005)
    pairs = list(itertools.permutations(sorted(ids(known)), 2))[-picks:]
    plain = mesh_layout.plan(wanted, known, links, ids(known))
    made = mesh_layout.plan(wanted, known, links, ids(known), wishes(*pairs))
    assert plain.shown.slowest > 1
    assert made.configurations.keys() == plain.configurations.keys()
    for link in made.shown.links:
        assert link.planned_bytes <= link.limit_bytes * 1.001
    takes = PING_RUN_BYTES * 60_000 / 2000
    has_room = takes <= mesh_layout.ACTIVE_SHARE * 0.005 * capacity_mbit * 10**6 / 8 * 60
    assert bool(made.chosen) == has_room
    assert made.shown.chosen == len(made.chosen)
    for identity in made.chosen:
        one = made.configurations[identity]
        assert (one.source_node, one.destination_node) in pairs
        assert one.period_ms == 2000
    # Which pairs are chosen does not change what the others get.
    others = mesh_layout.plan(wanted, known, links, ids(known), wishes(*pairs[:1])).configurations
    for identity in others.keys() - made.chosen:
        if has_room and made.chosen and identity != next(iter(made.chosen)):
            other = others[identity].period_ms
            assert other == made.configurations[identity].period_ms or other == 2000


def test_a_passive_mesh_and_other_metrics_have_no_chosen_pairs() -> None:
    known = nodes(8)
    links = star(known, 4 * 10**6)
    pairs = (("n000", "n001"), ("n002", "n003"))
    assert mesh_layout.plan(mesh(ping(4000)), known, links, ids(known), wishes(*pairs)).chosen
    passive = mesh(ping(4000), active=False)
    assert not mesh_layout.plan(passive, known, links, ids(known), wishes(*pairs)).chosen
    others = wishes(*pairs, metric="capacity_bps")
    assert not mesh_layout.plan(mesh(ping(4000)), known, links, ids(known), others).chosen
    strange = wishes(("n000", "nobody"), ("n000", "n000"))
    assert not mesh_layout.plan(mesh(ping(4000)), known, links, ids(known), strange).chosen


def test_a_large_mesh_measures_chosen_pairs_that_its_circle_leaves_out() -> None:
    known = nodes(300)
    plain = mesh_layout.plan(mesh(), known, [], ids(known)).configurations
    measured = {(one.source_node, one.destination_node) for one in plain.values()}
    left = [pair for pair in itertools.permutations(sorted(ids(known)), 2) if pair not in measured][:50]
    made = mesh_layout.plan(mesh(budget_share=0.01), known, star(known, 10**9), ids(known), wishes(*left))
    assert {(one.source_node, one.destination_node) for one in made.configurations.values()} >= set(left)
    assert len(made.chosen) == 50
    assert len(made.configurations) <= mesh_layout.MAX_CONFIGURATIONS
    assert len(plain) <= (1 - mesh_layout.ACTIVE_SHARE) * mesh_layout.MAX_CONFIGURATIONS
    passive = mesh_layout.plan(mesh(active=False), known, [], ids(known)).configurations
    assert len(passive) > len(plain)


def test_metrics_take_turns() -> None:
    rtt = wishes(("a", "b"), ("c", "d"), ("e", "f"))
    rate = wishes(("x", "y"), metric="capacity_bps")
    assert mesh_layout.in_turns({"rtt_us": rtt, "capacity_bps": rate}) == (rate[0], *rtt)
    assert mesh_layout.in_turns({}) == ()
