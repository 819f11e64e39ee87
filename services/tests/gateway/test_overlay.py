"""Where packets of the overlay go: traces as the kernel's program decides, from tables and what nodes report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chart.gateway import overlay, overlay_mapping
from chart.gateway.overlay import PathId, View, live_view, owner_of, past_view, trace
from chart.v1 import archive_pb2, node_state_pb2
from chart.v1.node_state_pb2 import OverlayClass, OverlayEventKind
from chart.v1.path_table_pb2 import OverlayLink, OverlayOwner, OverlayPath, PathTable
from support.gateway import NOW_US, World, alpha_table

# A diamond, and the way back: alpha - north, south - delta.
LINKS = [("alpha", "north"), ("alpha", "south"), ("north", "delta"), ("south", "delta"), ("north", "south")]
PREFIXES = {"alpha": "10.1.0.1/32", "north": "10.1.0.2/32", "south": "10.1.0.3/32", "delta": "10.20.0.0/16"}


def links_of(node: str) -> list[OverlayLink]:
    found = []
    for number, pair in enumerate(LINKS):
        if node in pair:
            near, far = (1, 2) if pair[0] == node else (2, 1)
            other = pair[far - 1]
            found.append(
                OverlayLink(
                    link_id=f"{node}:to-{other}",
                    neighbour=other,
                    local_address=f"10.0.{number}.{near}",
                    remote_address=f"10.0.{number}.{far}",
                )
            )
    return found


def table(node: str, *paths: tuple[int, str]) -> PathTable:
    """Paths to delta: colour, and next nodes in their order."""
    made = [
        OverlayPath(
            colour=colour,
            next_hops=[f"{node}:to-{one}" for one in hops.split()],
            choice=node == "alpha",
            link_ids=[f"{node}:to-{hops.split()[0]}"],
        )
        for colour, hops in paths
    ]
    owners = [OverlayOwner(node=one, prefixes=[prefix]) for one, prefix in PREFIXES.items() if one != "delta"]
    owners.append(OverlayOwner(node="delta", prefixes=[PREFIXES["delta"], "10.20.9.0/24"], paths=made))
    return PathTable(node=node, generation=4, links=links_of(node), owners=owners)


TABLES = {
    one.node: one
    for one in (
        table("alpha", (0, "north south"), (1, "south north")),
        table("north", (0, "delta south"), (1, "delta south")),
        table("south", (0, "delta north"), (1, "delta north")),
        table("delta"),
    )
}


def view(*failed: str, **changes: Any) -> View:
    """Both ends of each of these links have failed: "alpha-north"."""
    pairs = [tuple(one.split("-")) for one in failed]
    ends = {(a, f"{a}:to-{b}") for a, b in [*pairs, *((b, a) for a, b in pairs)]}
    return View(NOW_US, changes.pop("tables", TABLES), frozenset(ends), **changes)


def ways(found: Sequence[overlay.Traced]) -> list[str]:
    return [" ".join([one.hops[0].node, *(hop.next_node for hop in one.hops)]) + f": {one.outcome}" for one in found]


def test_packets_take_the_first_next_hop_of_each_colour() -> None:
    found = trace(view(), "alpha", "delta")
    assert ways(found) == ["alpha north delta: arrives", "alpha south delta: arrives"]
    assert not any(one.detours for one in found)


def test_a_failed_link_is_passed_over_where_it_is() -> None:
    found = trace(view("alpha-north"), "alpha", "delta")
    assert ways(found) == ["alpha south delta: arrives", "alpha south delta: arrives"]
    assert found[0].hops[0].skipped == (("alpha:to-north", "failed"),)
    assert found[0].detours
    assert not found[1].detours


def test_packets_turn_round_only_where_nothing_else_is_left() -> None:
    # north's link to delta failed: south is taken, and alpha would be the last.
    assert ways(trace(view("north-delta"), "alpha", "delta"))[0] == "alpha north south delta: arrives"
    tables = {**TABLES, "north": table("north", (0, "delta alpha")), "south": table("south", (0, "delta alpha"))}
    found = trace(view("north-delta", tables=tables), "alpha", "delta")[0]
    # Back at alpha its link to north is where they came from.
    assert ways([found]) == ["alpha north alpha south delta: arrives"]
    assert found.hops[2].skipped == (("alpha:to-north", "back"),)


def test_packets_that_circle_are_told_of() -> None:
    tables = {**TABLES, "south": table("south", (0, "north delta")), "north": table("north", (0, "alpha delta"))}
    tables["alpha"] = table("alpha", (0, "south"))
    found = trace(view("north-delta", "south-delta", tables=tables), "alpha", "delta")[0]
    assert found.outcome == "circles"
    assert "circle" in overlay_mapping.traced(view(), found).why[-1]


def test_where_all_have_failed_the_first_is_taken() -> None:
    found = trace(view("alpha-north", "alpha-south"), "alpha", "delta")[0]
    assert found.hops[0].link_id == "alpha:to-north"
    assert found.hops[0].all_failed
    assert found.hops[0].skipped == (("alpha:to-south", "failed"),)
    assert "no next hop answers probes" in " ".join(overlay_mapping.traced(view(), found).why)


def test_a_node_without_table_ends_the_overlay_s_part() -> None:
    tables = {node: one for node, one in TABLES.items() if node != "north"}
    found = trace(view(tables=tables), "alpha", "delta")[0]
    assert found.outcome == "no-table"
    assert overlay_mapping.traced(view(tables=tables), found).why[-1] == (
        "north has no path table: packets take the kernel's routes from there."
    )
    tables = {**TABLES, "north": table("north")}
    assert trace(view(tables=tables), "alpha", "delta")[0].outcome == "no-path"


def test_a_colour_that_a_node_has_no_path_of_is_that_of_the_first() -> None:
    tables = {**TABLES, "south": table("south", (0, "north delta"))}
    assert ways(trace(view(tables=tables), "alpha", "delta"))[1] == "alpha south north delta: arrives"


@pytest.mark.parametrize(
    ("destination", "owner"),
    [
        ("delta", ("delta", "")),
        ("10.20.9.1", ("delta", "10.20.9.0/24")),
        ("10.20.1.1", ("delta", "10.20.0.0/16")),
        ("10.1.0.2", ("north", "10.1.0.2/32")),
        ("192.0.2.1", None),
        ("fd00::1", None),
        ("echo", None),
    ],
)
def test_the_longest_prefix_says_whose_an_address_is(destination: str, owner: tuple[str, str] | None) -> None:
    found = owner_of(TABLES["alpha"], destination)
    assert (found and (found[0].node, found[1])) == owner


def reported(node: str, **paths: Any) -> node_state_pb2.NodeState:
    state = node_state_pb2.NodeState(node=node, reported_at_us=NOW_US)
    state.overlay.links.add(link_id=f"{node}:to-north", alive=False)
    state.overlay.paths.add(
        owner="delta", colour=1, alive=True, rtt_us=2500, taken_by=[OverlayClass.OVERLAY_CLASS_VOICE], **paths
    )
    return state


def test_what_nodes_report_now_is_taken_and_who_is_silent_named() -> None:
    states = {"alpha": reported("alpha"), "south": reported("south")}
    found = live_view(TABLES, states, ["alpha"], NOW_US)
    assert found.failed == {("alpha", "alpha:to-north")}
    assert found.silent == {"north", "south", "delta"}
    facts = found.facts(PathId("alpha", "delta", 1))
    assert (facts.taken_by, facts.rtt_ms, facts.measured) == (("voice",), 2.5, True)
    traced = overlay_mapping.traced(found, trace(found, "alpha", "delta")[1])
    assert traced.why == ["New flows of voice take it."]
    assert [hop.reported for hop in traced.hops] == [True, False]


def event(kind: OverlayEventKind.ValueType, **fields: Any) -> archive_pb2.NodeOverlayEvent:
    return archive_pb2.NodeOverlayEvent(node="alpha", event=node_state_pb2.OverlayEvent(kind=kind, **fields))


def test_the_past_is_what_had_happened_last() -> None:
    answer = archive_pb2.GetOverlayAtResponse(
        tables=TABLES.values(),
        events=[
            event(OverlayEventKind.OVERLAY_EVENT_KIND_LINK_FAILED, link_id="alpha:to-north"),
            event(OverlayEventKind.OVERLAY_EVENT_KIND_LINK_RETURNED, link_id="alpha:to-south"),
            event(OverlayEventKind.OVERLAY_EVENT_KIND_PATH_FAILED, owner="delta"),
            event(
                OverlayEventKind.OVERLAY_EVENT_KIND_PATH_LEFT,
                owner="delta",
                colour=1,
                flow_classes=[OverlayClass.OVERLAY_CLASS_VIDEO],
            ),
            event(
                OverlayEventKind.OVERLAY_EVENT_KIND_PATH_GOOD_AGAIN,
                owner="delta",
                colour=1,
                flow_classes=[OverlayClass.OVERLAY_CLASS_DATA],
            ),
        ],
    )
    found = past_view(answer, NOW_US)
    assert found.failed == {("alpha", "alpha:to-north")}
    assert not found.facts(PathId("alpha", "delta", 0)).alive
    assert found.facts(PathId("alpha", "delta", 1)).left_by == ("video",)
    first, second = (overlay_mapping.traced(found, one) for one in trace(found, "alpha", "delta"))
    assert first.why == [
        "Its probes are not answered: its flows take another path.",
        "At alpha alpha:to-north failed: packets go by alpha:to-south.",
    ]
    assert second.why == ["Flows of video leave it: it is worse than another one."]


def test_since_a_start_what_has_not_answered_fails() -> None:
    answer = archive_pb2.GetOverlayAtResponse(
        tables=TABLES.values(),
        events=[
            event(OverlayEventKind.OVERLAY_EVENT_KIND_STARTED),
            event(OverlayEventKind.OVERLAY_EVENT_KIND_LINK_RETURNED, link_id="alpha:to-north"),
            event(OverlayEventKind.OVERLAY_EVENT_KIND_PATH_RETURNED, owner="delta", colour=1),
        ],
    )
    found = past_view(answer, NOW_US)
    assert found.failed == {("alpha", "alpha:to-south")}
    assert not found.facts(PathId("alpha", "delta", 0)).alive
    assert found.facts(PathId("alpha", "delta", 1)).alive


def test_colours_of_packets_that_enter_elsewhere_are_left_out() -> None:
    tables = {**TABLES, "alpha": table("alpha", (0, "north"), (1, "south"), (2, "north"))}
    for path in tables["alpha"].owners[-1].paths:
        path.choice = path.colour == 1
    found = trace(view(tables=tables), "alpha", "delta")
    assert [one.colour for one in found] == [0, 1]
    assert "agree on rates in band" in overlay_mapping.traced(view(), found[0]).why[0]
    assert overlay_mapping.traced(view(), found[0], chosen=False).why == []


async def test_routes_and_traces_are_of_the_tables_on_the_stream(place: World) -> None:
    headers = place.headers("viewer")
    missing = await place.client.get("/v1/overlay/routes/alpha", headers=headers)
    assert missing.status_code == 404
    assert "no part in the overlay" in missing.json()["detail"]
    place.gateway.live.apply("chart.path-table.v1", "alpha", alpha_table(), NOW_US)
    routes = (await place.client.get("/v1/overlay/routes/alpha", headers=headers)).json()
    assert [one["node"] for one in routes["destinations"]] == ["delta"]
    assert routes["destinations"][0]["routes"][0]["next_hops"] == [
        {"link_id": "alpha:to-delta", "next_node": "delta", "alive": True}
    ]
    assert not routes["reported"]
    traced = (await place.client.get("/v1/overlay/trace/alpha/10.20.0.5", headers=headers)).json()
    assert (traced["owner"], traced["prefix"], traced["past"]) == ("delta", "10.20.0.0/16", False)
    assert traced["paths"][0]["outcome"] == "arrives"
    elsewhere = (await place.client.get("/v1/overlay/trace/alpha/192.0.2.1", headers=headers)).json()
    assert elsewhere["owner"] is None
    assert elsewhere["why"] == ["No overlay node has a prefix for it: packets take the kernel's routes."]
    itself = (await place.client.get("/v1/overlay/trace/alpha/alpha", headers=headers)).json()
    assert "behind alpha itself" in itself["why"][0]
    unknown = (await place.client.get("/v1/overlay/trace/echo/alpha", headers=headers)).json()
    assert unknown["why"] == ["echo has no path table: packets from there take the kernel's routes."]


async def test_the_past_comes_from_the_archive(place: World) -> None:
    headers = place.headers("viewer")
    query = {"at": "2020-01-01T00:00:00Z"}
    traced = (await place.client.get("/v1/overlay/trace/alpha/delta", headers=headers, params=query)).json()
    assert traced["past"]
    assert traced["at"] == "2020-01-01T00:00:00.000000Z"
    assert traced["paths"][0]["hops"][0]["all_failed"]
    events = (await place.client.get("/v1/overlay/events", headers=headers, params={"node": "alpha"})).json()
    assert [(one["kind"], one["link_id"], one["owner"]) for one in events["items"]] == [
        ("link-failed", "alpha:to-delta", None)
    ]
    future = await place.client.get(
        "/v1/overlay/trace/alpha/delta", headers=headers, params={"at": "2199-01-01T00:00:00Z"}
    )
    assert future.status_code == 422
    assert "must be a time of the past" in future.json()["detail"]
