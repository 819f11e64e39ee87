"""What is registered of a lab: nodes, both directions of every link, and sensing configurations.

The bodies are pure functions of the topology; `register` puts them to the gateway as an operator would over REST.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx

from chart_lab.errors import LabError
from chart_lab.topology import Topology, all_ends, management_address, node_address, node_networks

# Who the development issuer says that registers: owner of the lab's authorisations.
SUBJECT = "chart-lab"
POD_PORT = 18110
PING_PERIOD_MS = 2_000
PATHCHIRP_PERIOD_MS = 10_000
# A link without a stated rate is registered at what one core carries through the emulator.
UNLIMITED_BPS = 1_000_000_000
# The authority's own limit may be less; then that one holds.
AUTHORISED_S = 7 * 86_400
TIMEOUT_S = 10.0

Put = tuple[str, dict[str, Any]]


def gateway_url() -> str:
    """Where the gateway answers: CHART_GATEWAY_URL, or the local platform."""
    return os.environ.get("CHART_GATEWAY_URL", f"http://127.0.0.1:{os.environ.get('CHART_GATEWAY_PORT', '18080')}")


def nodes(topology: Topology) -> Iterator[Put]:
    """Path and body of every node."""
    for node in topology.nodes:
        yield (
            f"/v1/nodes/{node.name}",
            {
                "description": node.description or f"node of the lab {topology.name}",
                "addresses": [str(network) for network in node_networks(topology, node.name)],
                "sensor_pod_target": f"{management_address(topology, node.name).ip}:{POD_PORT}",
                "tags": {"lab": topology.name},
                "map_position": node.map_position.model_dump() if node.map_position else None,
            },
        )


def links(topology: Topology) -> Iterator[Put]:
    """Path and body of every directed link, with its true capacity and delay."""
    for link, end in all_ends(topology):
        parameters = link.direction("forward" if end.node == link.ends[0] else "reverse")
        yield (
            f"/v1/links/{end.link_id}",
            {
                "to_node": end.peer,
                "capacity_bps": parameters.get("rate_bps") or UNLIMITED_BPS,
                "delay_us": parameters.get("delay_us", 0),
                "tags": {"lab": topology.name},
            },
        )


def sensing_configurations(topology: Topology) -> Iterator[Put]:
    """Ping and pathchirp between the ends of every directed link, ping between the first and the last node."""

    def body(source: str, destination: str, address: str, sensor: str, period_ms: int) -> Put:
        return (
            f"/v1/sensing-configurations/{source}-{destination}-{sensor}",
            {
                "source_node": source,
                "destination_node": destination,
                "destination_address": address,
                "sensor": sensor,
                "period_ms": period_ms,
                "priority": 100,
            },
        )

    for _, end in all_ends(topology):
        yield body(end.node, end.peer, str(end.peer_address), "ping", PING_PERIOD_MS)
        yield body(end.node, end.peer, str(end.peer_address), "pathchirp", PATHCHIRP_PERIOD_MS)
    first, last = topology.nodes[0].name, topology.nodes[-1].name
    joined = {frozenset(link.ends) for link in topology.links}
    if first != last and frozenset((first, last)) not in joined:
        for source, destination in ((first, last), (last, first)):
            yield body(source, destination, str(node_address(topology, destination)), "ping", PING_PERIOD_MS)


def authorisation_policy(topology: Topology) -> Put:
    """Path and body of the policy under which the lab's nodes are authorised: anything that its fastest link carries.

    It is stated at the authority. Every lab states it again; authorisations of before keep what they were given.
    """
    return (
        f"/v1/authorisation-policies/{SUBJECT}",
        {
            "subjects": [f"user/{SUBJECT}"],
            "services": ["available", "guaranteed", "maximum", "variable"],
            "max_guaranteed_bps": max((body["capacity_bps"] for _, body in links(topology)), default=UNLIMITED_BPS),
            "max_priority": 255,
            "max_delay_class": 7,
            "max_duration_s": AUTHORISED_S,
            "any_address": True,
        },
    )


def authorisations(topology: Topology) -> Iterator[dict[str, Any]]:
    """Bodies of what authorises every node's own flows: guaranteed rates, and with them the available one."""
    for node in topology.nodes:
        yield {"client_address": str(node_address(topology, node.name)), "service": "guaranteed"}


def operator_client(url: str) -> httpx.Client:
    """A REST client with an operator's token from the development issuer.

    Raises LabError when the gateway cannot be reached.
    """
    try:
        answer = httpx.post(
            f"{url}/dev-issuer/token", json={"subject": SUBJECT, "roles": ["operator"]}, timeout=TIMEOUT_S
        )
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise LabError(f"the gateway at {url} gives no token ({error}): is the platform up? `make up`") from error
    headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    return httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S)


def _ask(client: httpx.Client, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
    try:
        return client.request(method, path, json=body)
    except httpx.HTTPError as error:
        raise LabError(f"{method} {path} at {client.base_url}: {error}") from error


def _demand(client: httpx.Client, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    answer = _ask(client, method, path, body)
    if answer.is_error:
        raise LabError(f"the gateway refused {path}: {answer.status_code} {answer.text[:500]}")
    return answer.json() if answer.content else None


def register(topology: Topology, url: str) -> None:
    """States the whole lab at the gateway; safe to repeat.

    Raises LabError with the gateway's own words when it refuses something.
    """
    with operator_client(url) as client:
        for path, body in [*nodes(topology), *links(topology), *sensing_configurations(topology)]:
            _demand(client, "PUT", path, body)


def authorise(topology: Topology, url: str) -> None:
    """Authorises the nodes' own flows, in place of what an earlier lab with these addresses left; safe to repeat.

    Raises LabError with the gateway's own words when it refuses something.
    """
    with operator_client(url) as client:
        _take_back_authorisations(client, topology)
        for body in authorisations(topology):
            _demand(client, "POST", "/v1/authorisations", body)


def _take_back_authorisations(client: httpx.Client, topology: Topology) -> None:
    addresses = {body["client_address"] for body in authorisations(topology)}
    for found in _demand(client, "GET", "/v1/authorisations")["items"]:
        if found["owner"] == SUBJECT and found["client_address"] in addresses:
            _ask(client, "DELETE", f"/v1/authorisations/{found['id']}")


def deregister(topology: Topology, url: str, *, authorised: bool = False) -> None:
    """Removes the lab's entries from the gateway, what hangs on others first; missing ones are no error.

    Raises LabError when the gateway cannot be reached.
    """
    with operator_client(url) as client:
        if authorised:
            _take_back_authorisations(client, topology)
        for path, _ in [*sensing_configurations(topology), *links(topology), *nodes(topology)]:
            _ask(client, "DELETE", path)
