"""The overlay of the platform as it is installed: nodes join over REST, a link that fails silently is passed in the
kernel, and the request that was committed on it follows. Marked slow: a platform of its own for a minute
(`make overlay-test`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from chart_lab import topology
from chart_lab.experiments import flow_moves, installed
from chart_lab.experiments.failover import OWNED, ways
from chart_lab.experiments.overlay_nodes import told
from chart_lab.network import Lab
from chart_lab.platform.laboratory import client, fetch, request_rate
from support.waiting import poll

pytestmark = [pytest.mark.lab, pytest.mark.slow]

# From a membership to links that answer, and from a failure to a request that is enforced on the other path.
JOINED_S, FOLLOWED_S, BACK_S = 20.0, 10.0, 20.0
NORTH, SOUTH = ["ingress:to-north", "north:to-egress"], ["ingress:to-south", "south:to-egress"]
PORT = 6001
KEPT = ("description", "addresses", "sensor_pod_target", "tags", "map_position")


@pytest.fixture(scope="module")
def joined() -> Iterator[tuple[Lab, httpx.Client]]:
    """A network on a platform of its own, its four routers in the overlay."""
    with (
        installed.installation(lambda _what, _share: None) as product,
        product.network(ways(topology.load("two-path"), 0.0), 1) as lab,
        client(product.settings) as rest,
    ):
        for node, hosts in OWNED.items():
            behind = [address for one in hosts for address in fetch(rest, f"/v1/nodes/{one}")["addresses"]]
            state(rest, node, {"prefixes": [f"{address.partition('/')[0]}/32" for address in behind]})
        poll(lambda: all(is_whole(lab, node) for node in OWNED), limit_s=JOINED_S)
        yield lab, rest


def state(rest: httpx.Client, node: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """A node's part in the overlay; the rest of it stays."""
    known = fetch(rest, f"/v1/nodes/{node}")
    answer = rest.put(f"/v1/nodes/{node}", json={**{name: known[name] for name in KEPT}, "overlay": part})
    assert answer.status_code == 200, answer.text
    stored: dict[str, Any] = answer.json()
    return stored


def is_whole(lab: Lab, node: str) -> bool:
    """Whether both links of a node answer, and it knows all owners."""
    found = told(lab, node)
    links = found.get("links", [])
    return len(links) == 2 and found["owners"] == len(OWNED) and all(one["alive"] for one in links)


def between(rest: httpx.Client, request: str) -> tuple[str, list[str]]:
    """Enforcement and the middle of the path of a request."""
    found = fetch(rest, f"/v1/rate-requests/{request}")
    return found["state"], found["path"][1:3]


def losses(lab: Lab) -> int:
    """Echoes out of twenty without an answer."""
    words = ["ping", "-c", "20", "-i", "0.02", "-W", "1", "-q", lab.address("destination")]
    answer = lab.exec("source", words, check=False).stdout
    return 20 - int(next(line for line in answer.splitlines() if "received" in line).split()[3])


def chooses(lab: Lab) -> bool:
    """Whether both paths from one end to the other are alive, and known as a choice."""
    found = [path for path in told(lab, "ingress").get("paths", []) if path["owner"] == "egress"]
    return len(found) == 2 and all(path["alive"] and not path["left_by"] for path in found)


def answers(lab: Lab) -> bool:
    """Whether every path that flows of any node may choose is answered from end to end."""
    found = [path for node in OWNED for path in told(lab, node).get("paths", [])]
    return len(found) >= 2 * len(OWNED) and all(path["alive"] and path["rtt_ms"] > 0 for path in found)


def traced(rest: httpx.Client, destination: str, **query: str) -> dict[int, dict[str, Any]]:
    """Paths from ingress by colour."""
    found = fetch(rest, f"/v1/overlay/trace/ingress/{destination}", **query)
    assert found["owner"] == "egress", found
    return {path["colour"]: path for path in found["paths"]}


def middle(path: Mapping[str, Any]) -> list[str]:
    """Links that a traced path takes."""
    return [hop["link_id"] for hop in path["hops"]]


def happened(rest: httpx.Client, link: str) -> list[str]:
    """Kinds of what happened to a link, the newest first."""
    return [one["kind"] for one in fetch(rest, "/v1/overlay/events", link=link)["items"]]


def guaranteed(lab: Lab, **more: object) -> dict[str, Any]:
    """A request for 5 Mb/s from host to host."""
    return {
        "source": lab.address("source"),
        "destination": lab.address("destination"),
        "protocol": "udp",
        "destination_port": PORT,
        "service": "guaranteed",
        "guaranteed_bps": 5_000_000,
        **more,
    }


def share_by_south(lab: Lab) -> float:
    """Of 400 datagrams for that port, the share that takes the southern path."""
    send = (
        "import socket, time\n"
        "flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for _ in range(400):\n"
        f"    flow.sendto(bytes(1000), ({lab.address('destination')!r}, {PORT}))\n"
        "    time.sleep(0.002)\n"
    )
    before = [path["forwarded_bytes"] for path in flow_moves.paths_to(lab, "ingress", "egress")]
    lab.exec("source", ["/usr/bin/python3", "-c", send])
    after = [path["forwarded_bytes"] for path in flow_moves.paths_to(lab, "ingress", "egress")]
    north, south = (b - a for a, b in zip(before, after, strict=True))
    assert north + south > 400 * 1000
    return float(south / (north + south))


def test_every_path_to_choose_is_answered_and_seen(joined: tuple[Lab, httpx.Client]) -> None:
    """Also one whose colour has no path the other way."""
    lab, rest = joined
    poll(lambda: answers(lab), limit_s=JOINED_S)
    routes = fetch(rest, "/v1/overlay/routes/ingress")
    assert routes["reported"]
    assert {one["node"] for one in routes["destinations"]} == set(OWNED) - {"ingress"}
    paths = traced(rest, lab.address("destination"))
    assert [path["outcome"] for path in paths.values()] == ["arrives"] * 3
    chosen = [path for path in paths.values() if path["choice"]]
    assert [middle(path) for path in chosen] == [NORTH, SOUTH]
    assert all(path["quality"]["rtt_ms"] > 0 for path in chosen)
    assert "voice" in chosen[0]["quality"]["taken_by"]


def test_a_request_takes_the_path_that_it_is_steered_by(joined: tuple[Lab, httpx.Client]) -> None:
    """What `avoid` names is committed by none of its packets: admission and the kernel agree."""
    lab, rest = joined
    poll(lambda: chooses(lab), limit_s=JOINED_S)
    paths = fetch(rest, "/v1/paths/source/destination")["items"]
    assert [(path["source"], path["links"][1:3]) for path in paths[:2]] == [("steered", NORTH), ("steered", SOUTH)]
    request, _ = request_rate(rest, guaranteed(lab, avoid=["north"]))
    assert request["path"][1:3] == SOUTH
    poll(lambda: between(rest, request["id"]) == ("ENFORCED", SOUTH), limit_s=FOLLOWED_S)
    # The agent has heard of the grant; its flows are looked at anew.
    poll(lambda: share_by_south(lab) > 0.95, limit_s=FOLLOWED_S)
    rest.post(f"/v1/rate-requests/{request['id']}/release")
    usual, _ = request_rate(rest, guaranteed(lab))
    assert usual["path"][1:3] == NORTH
    poll(lambda: share_by_south(lab) < 0.05, limit_s=FOLLOWED_S)
    rest.post(f"/v1/rate-requests/{usual['id']}/release")


def test_packets_and_requests_pass_a_link_that_fails(joined: tuple[Lab, httpx.Client]) -> None:
    lab, rest = joined
    poll(lambda: chooses(lab), limit_s=JOINED_S)
    request, _ = request_rate(rest, guaranteed(lab))
    assert request["path"][1:3] == NORTH
    before = told(lab, "ingress")["entered_packets"]
    assert losses(lab) == 0
    assert told(lab, "ingress")["entered_packets"] >= before + 20
    lab.outage("north-egress", FOLLOWED_S + 5)
    # The kernel passes it within a tenth of a second; a stray answer may still be on its way.
    time.sleep(0.3)
    assert losses(lab) == 0
    poll(lambda: between(rest, request["id"]) == ("ENFORCED", SOUTH), limit_s=FOLLOWED_S)
    poll(lambda: happened(rest, "north:to-egress")[0] == "link-failed", limit_s=FOLLOWED_S)
    failed_at = fetch(rest, "/v1/overlay/events", link="north:to-egress")["items"][0]["at"]
    paths = [path for path in traced(rest, lab.address("destination")).values() if path["quality"]["taken_by"]]
    assert [middle(path) for path in paths] == [SOUTH]
    links = fetch(rest, "/v1/nodes/north")["state"]["overlay"]["links"]
    assert {one["link_id"]: one["alive"] for one in links} == {"north:to-ingress": True, "north:to-egress": False}
    poll(lambda: happened(rest, "north:to-egress")[0] == "link-returned", limit_s=FOLLOWED_S)
    # What it was like when it failed is still known.
    past = traced(rest, lab.address("destination"), at=failed_at)
    skipped = [skip for path in past.values() for hop in path["hops"] for skip in hop["skipped"]]
    assert {"link_id": "north:to-egress", "reason": "failed"} in skipped
    # It stays where it is when the link answers again, and its packets do; whoever comes then may take either.
    poll(lambda: chooses(lab), limit_s=FOLLOWED_S + BACK_S)
    time.sleep(2.0)
    assert between(rest, request["id"]) == ("ENFORCED", SOUTH)
    assert share_by_south(lab) > 0.99
    assert losses(lab) == 0
    rest.post(f"/v1/rate-requests/{request['id']}/release")


def test_a_node_that_leaves_is_passed_and_its_device_goes(joined: tuple[Lab, httpx.Client]) -> None:
    lab, rest = joined
    known = fetch(rest, "/v1/nodes/north")["overlay"]
    assert state(rest, "north", {"member": False})["overlay"] == {"member": False, "prefixes": []}
    poll(lambda: not told(lab, "north").get("running"), limit_s=JOINED_S)
    assert lab.exec("north", ["ip", "link", "show", "chart-overlay"], check=False).returncode != 0
    poll(lambda: [one["name"] for one in told(lab, "ingress")["links"]] == ["ingress:to-south"], limit_s=JOINED_S)
    assert losses(lab) == 0
    state(rest, "north", known)
    poll(lambda: all(is_whole(lab, node) for node in OWNED), limit_s=JOINED_S)
