"""A lab on the platform enrols its own nodes: certificates, keys with neighbours, next hops, authorisations, authentic
records; and its end takes these identities along.
"""

from __future__ import annotations

import ssl
from typing import Any

import httpx
import pytest

from chart_lab import demo_trust as trust
from chart_lab import enrolment, topology
from chart_lab.network import Lab
from chart_lab.platform.laboratory import chart, fetch, wait_ready
from chart_lab.platform.stack import Platform
from support.waiting import until

pytestmark = pytest.mark.lab

ENROLLED_LIMIT_S = 20.0


def ask(platform: Platform, identity: str, path: str) -> Any:
    """The authority's answer to the holder of a certificate (path without its ending)."""
    settings = platform.settings
    context = ssl.create_default_context(cafile=str(settings.authority_ca))
    context.load_cert_chain(f"{identity}.pem", f"{identity}.key")
    answer = httpx.get(f"{settings.authority_url}{path}", verify=context, timeout=10, trust_env=False)
    answer.raise_for_status()
    return answer.json()


def elements(platform: Platform) -> set[str]:
    """Names of enrolled nodes."""
    operator = platform.settings.state_dir / "authority" / "identities" / "user-operator"
    return set(ask(platform, str(operator), "/v1/elements"))


def test_every_node_is_enrolled_and_has_what_it_needs_to_signal(
    platform: Platform, rest: httpx.Client, lab: Lab
) -> None:
    found = enrolment.wait_enrolled(lab, ENROLLED_LIMIT_S)
    neighbours = {node.name: len(lab.links_of(node.name)) for node in lab.topology.nodes}
    until(lambda: all(enrolment.of_node(lab, name).keys >= 2 * n for name, n in neighbours.items()), "keys both ways")
    assert elements(platform) == set(found)
    assert len({one.element for one in found.values()}) == 4
    assert all(one.authorisations >= 4 for one in found.values())
    hops = ask(platform, str(lab.node_directory("alpha") / "node"), "/v1/next-hops")["next_hops"]
    addresses = {str(topology.node_address(lab.topology, name)): name for name in found}
    ways = {hop["prefix"]: (hop["next_element"], addresses[hop["shim_address"]]) for hop in hops}
    assert ways["10.0.0.4/32"] == ("bravo", "bravo")
    held = {one["client_address"] for one in fetch(rest, "/v1/authorisations")["items"] if one["owner"] == "chart-lab"}
    assert held == addresses.keys()


def test_services_take_what_nodes_write_and_no_forgery(platform: Platform, rest: httpx.Client, lab: Lab) -> None:
    enrolment.wait_enrolled(lab, ENROLLED_LIMIT_S)
    before = trust.checks(platform.settings)
    until(
        lambda: all(now.good > before[name].good for name, now in trust.checks(platform.settings).items()),
        "every reader checks records",
    )
    assert trust.authenticated_share(before, trust.checks(platform.settings)) == 1.0
    tried, accepted = trust.forge(platform.settings, lab)
    assert tried > 0
    assert accepted == 0
    wait_ready(rest)


def test_a_lab_that_is_built_again_enrols_again(platform: Platform, rest: httpx.Client, lab: Lab) -> None:
    settings = platform.settings
    ids = {name: one.element for name, one in enrolment.wait_enrolled(lab, ENROLLED_LIMIT_S).items()}
    chart(settings, "lab", "down", "--lab", lab.id)
    assert elements(platform) == set()
    assert not lab.directory.exists()
    chart(settings, "lab", "up", "demo", "--platform")
    again = enrolment.wait_enrolled(lab, ENROLLED_LIMIT_S)
    assert {name: one.element for name, one in again.items()} == ids
    wait_ready(rest)
