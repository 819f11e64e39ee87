"""The overlay of a lab: each overlay node's file for `chart-agent --overlay-file`, from the topology."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chart.common import overlay_routes
from chart_lab.errors import LabError
from chart_lab.experiments import agents
from chart_lab.network import Lab
from chart_lab.topology import End, Link, Topology, all_ends

# The cost of a link without delay: hops count then.
LEAST_COST_MS = 0.1
ALIVE_TIMEOUT_S = 20.0
LOOK_S = 0.1


def tables(
    lab: Lab, owned: Mapping[str, Sequence[str]], topology: Topology | None = None, choices: int = 0
) -> dict[str, dict[str, Any]]:
    """The overlay file of each node.

    ``owned``: of each overlay node, the nodes whose addresses are behind it (its own always is). ``topology``: the
    links, where somebody else than the lab made them. ``choices``: how many paths flows may choose between at most; 0:
    they all take the same.
    """
    ends: list[tuple[Link, End]] = [
        (link, end) for link, end in all_ends(topology or lab.topology) if {end.node, end.peer} <= set(owned)
    ]
    costs = overlay_routes.graph(
        overlay_routes.OverlayLink(end.node, end.peer, max(link.delay_ms or 0, LEAST_COST_MS)) for link, end in ends
    )
    chosen = {owner: overlay_routes.coloured_paths(costs, owned, owner, choices) for owner in owned}
    capacity = {(end.node, end.peer): round((link.rate_mbit or 0) * 1e6) for link, end in ends}
    files: dict[str, dict[str, Any]] = {}
    for node in owned:
        hops = overlay_routes.next_hops(costs, node)
        owners: list[dict[str, Any]] = []
        for owner, behind in owned.items():
            entry: dict[str, Any] = {"node": owner, "prefixes": [f"{lab.address(one)}/32" for one in (owner, *behind)]}
            if owner in hops:
                entry["paths"] = [
                    {"colour": 0, "next_hops": list(hops[owner])},
                    *_coloured(node, chosen[owner], hops[owner], capacity),
                ]
            owners.append(entry)
        links = [
            {
                "name": end.peer,
                "local": str(end.address.ip),
                "remote": str(end.peer_address),
                "interface": end.interface,
                "mtu": link.mtu,
                "capacity_bps": capacity[end.node, end.peer],
            }
            for link, end in ends
            if end.node == node
        ]
        files[node] = {"links": links, "owners": owners}
    return files


def _coloured(
    node: str,
    chosen: Mapping[str, Sequence[overlay_routes.ChosenPath]],
    order: Sequence[str],
    capacity: Mapping[tuple[str, str], int],
) -> list[dict[str, Any]]:
    own = {path.colour: path for path in chosen.get(node, ())}
    own = own if len(own) > 1 else {}
    found = []
    for colour, hop in sorted(overlay_routes.hops_at(node, chosen).items()):
        path: dict[str, Any] = {"colour": colour, "next_hops": [hop, *(one for one in order if one != hop)]}
        if colour in own:
            path |= {"choice": True, "capacity_bps": min(capacity[step] for step in own[colour].hops)}
        found.append(path)
    return found


def write(
    lab: Lab, owned: Mapping[str, Sequence[str]], topology: Topology | None = None, choices: int = 0
) -> dict[str, Path]:
    """Writes the overlay files; where each node's is."""
    paths = {}
    for node, table in tables(lab, owned, topology, choices).items():
        paths[node] = lab.node_directory(node) / "overlay.json"
        paths[node].write_text(json.dumps(table, indent=1))
    return paths


def told(lab: Lab, node: str) -> dict[str, Any]:
    """What a node's agent reports of the overlay; nothing while none runs."""
    status = json.loads(lab.exec(node, [*agents.command(lab, node), "--status", "--json"]).stdout)
    found: dict[str, Any] = status.get("overlay", {})
    return found


def await_alive(lab: Lab, owned: Mapping[str, Sequence[str]]) -> None:
    """Returns when every overlay link of every node answers probes. Raises LabError."""
    deadline = time.monotonic() + ALIVE_TIMEOUT_S
    for node in owned:
        while True:
            found = told(lab, node)
            silent = [link["name"] for link in found["links"] if not link["alive"]]
            if found["running"] and not silent:
                break
            if time.monotonic() > deadline:
                raise LabError(f"overlay links of {node} do not answer: {', '.join(silent) or found['error']}")
            time.sleep(LOOK_S)
