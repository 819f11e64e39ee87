"""Tunnel ends and proxied traffic of a node over REST."""

from __future__ import annotations

from typing import Any

from support.gateway import World

ORIGIN: dict[str, Any] = {
    "tunnel": "west-east",
    "role": "origin",
    "address": "10.0.0.6",
    "peer_node": "east",
    "classes": [{"name": "gold", "weight": 3, "selector": "dscp=46"}],
    "prefixes": ["192.0.2.0/24"],
}
PROXIED: dict[str, Any] = {"interfaces": ["eth1"], "prefixes": ["10.1.0.0/16"], "mode": "new-ports"}


async def put(place: World, **fields: Any) -> Any:
    return await place.client.put("/v1/nodes/west", json=fields, headers=place.headers("operator"))


async def test_ends_are_stated_kept_and_removed(place: World) -> None:
    made = (await put(place, tunnel_ends=[ORIGIN], proxied_traffic=PROXIED)).json()
    wanted = {**ORIGIN, "interface": "chart-itm0", "port": 7400, "period_ms": 1000, "congestion": "cubic"}
    wanted["applications"] = []
    assert (made["tunnel_ends"], made["proxied_traffic"]) == ([wanted], PROXIED)
    # Whoever knows nothing of ends takes none away.
    described = (await put(place, description="a router")).json()
    assert (described["tunnel_ends"], described["proxied_traffic"]) == ([wanted], PROXIED)
    # What is shown can be stated again.
    assert (await put(place, tunnel_ends=made["tunnel_ends"])).json()["tunnel_ends"] == [wanted]
    bare = (await put(place, tunnel_ends=[], proxied_traffic={"interfaces": []})).json()
    assert bare["tunnel_ends"] == []
    assert bare["proxied_traffic"] == {"interfaces": [], "prefixes": [], "mode": "same-ports"}


async def test_what_is_wrong_is_named(place: World) -> None:
    unknown = await put(place, tunnel_ends=[{**ORIGIN, "colour": "red"}])
    assert unknown.status_code == 422
    assert "colour" in unknown.text
    refused = await put(place, tunnel_ends=[{**ORIGIN, "role": "destination"}])
    assert (refused.status_code, refused.json()["field"]) == (422, "tunnel_ends[0].classes")


async def test_a_part_in_the_overlay_is_kept_and_ended(place: World) -> None:
    made = (await put(place, overlay={"prefixes": ["10.20.0.0/16"]})).json()
    assert made["overlay"] == {"member": True, "prefixes": ["10.20.0.0/16"]}
    assert (await put(place, description="a router")).json()["overlay"] == made["overlay"]
    assert (await put(place, overlay=made["overlay"])).json()["overlay"] == made["overlay"]
    ended = (await put(place, overlay={"member": False, "prefixes": ["10.20.0.0/16"]})).json()
    assert ended["overlay"] == {"member": False, "prefixes": []}
    refused = await put(place, overlay={"prefixes": ["10.20.0.1/16"]})
    assert (refused.status_code, refused.json()["field"]) == (422, "overlay.prefixes[0]")
