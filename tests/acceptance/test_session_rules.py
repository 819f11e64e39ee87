"""The built-in rule of telephony on a platform with enrolled nodes: enabled over REST, every call has its own rate in
band and goes before others on every link of its path, though no address is authorised (Brassil et al., The CHART
System, section 4: a rule asks for flows whose program does not).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from chart_lab import enrolment
from chart_lab.network import Lab
from chart_lab.programs import program
from support.calls import EXPEDITED, PACKETS_PER_S, Call
from support.waiting import until

pytestmark = pytest.mark.lab

ENROLLED_LIMIT_S = 20.0
RTP_PORT, MARKED_PORT = 5004, 17_000
CALL_BPS = 82_000
# A call is judged while it runs; long enough for a machine that is busy with other things.
CALL_S = 120.0
JUDGED_PACKETS = 6 * PACKETS_PER_S
# A close that the lossy link drops is made up for by the end of the commitment.
RELEASED_LIMIT_S = 40.0
PATH = {"alpha": "to-bravo", "bravo": "to-charlie", "charlie": "to-delta"}
REPORTED = ("id", "revision", "built_in", "expedited", "sessions", "expedited_sessions", "reported_by")
# Of the queue of a CHART link (dataplane/lib/htb/htb_classes.h).
EXPEDITED_CLASS, LEGACY_CLASS = "10", "30"


def put(rest: httpx.Client, **changes: Any) -> dict[str, Any]:
    """Change the rule, of the revision that it has."""
    before = rest.get("/v1/session-rules/telephony").raise_for_status()
    body = {name: value for name, value in before.json().items() if name not in REPORTED}
    headers = {"If-Match": before.headers["ETag"]}
    answer = rest.put("/v1/session-rules/telephony", json={**body, **changes}, headers=headers)
    stored: dict[str, Any] = answer.raise_for_status().json()
    return stored


def shown(rest: httpx.Client) -> dict[str, Any]:
    """The rule with what nodes report."""
    found: dict[str, Any] = rest.get("/v1/session-rules/telephony").raise_for_status().json()
    return found


def status(lab: Lab, node: str) -> dict[str, Any]:
    """What a node's agent says."""
    command = [str(program("dataplane/chart-agent")), "--state-dir", str(lab.node_directory(node))]
    told: dict[str, Any] = json.loads(lab.exec(node, [*command, "--status", "--json"]).stdout)
    return told


def held_bps(lab: Lab, node: str) -> int:
    """What the node's link on the path guarantees in band."""
    links = status(lab, node)["signalling"]["links"]
    return next(int(link["held_bps"]) for link in links if link["interface"] == PATH[node])


def holds(lab: Lab, node: str, calls: int) -> bool:
    """Whether the node's link on the path guarantees what so many calls ask."""
    return held_bps(lab, node) == pytest.approx(calls * CALL_BPS, rel=0.01)


def left(lab: Lab, node: str, minor: str) -> int:
    """Packets that left through the node's link on the path in a class of its queue."""
    text = lab.exec(node, ["tc", "-s", "class", "show", "dev", PATH[node]]).stdout
    found = re.search(rf"class htb c4a0:{minor} .*?Sent \d+ bytes (\d+) pkt", text, re.DOTALL)
    assert found is not None, text
    return int(found[1])


@contextlib.contextmanager
def two_calls(lab: Lab) -> Iterator[None]:
    """One by RTP's port, one by its code point; ended with the block."""
    with contextlib.ExitStack() as ends:
        for port, dscp in ((RTP_PORT, 0), (MARKED_PORT, EXPEDITED)):
            ends.callback(Call(lab, "alpha", "delta", port, dscp=dscp, seconds=CALL_S).close)
        yield


def others_while(lab: Lab, minor: str, other: str) -> dict[str, int]:
    """Packets that left in one class on each link of the path while the calls filled another."""
    counts = {}
    for node in PATH:
        before, begun = left(lab, node, other), left(lab, node, minor)
        until(partial(has_left, lab, node, minor, begun + JUDGED_PACKETS), f"calls in class {minor} on {node}", 20)
        counts[node] = left(lab, node, other) - before
    return counts


def has_left(lab: Lab, node: str, minor: str, packets: int) -> bool:
    """Whether so many packets left in a class since it is there."""
    return left(lab, node, minor) >= packets


def test_a_rule_expedites_every_call_by_itself(rest: httpx.Client, lab: Lab) -> None:
    enrolment.wait_enrolled(lab, ENROLLED_LIMIT_S)
    # Nobody's address may ask for anything: what calls get is by the rule alone.
    for found in rest.get("/v1/authorisations").raise_for_status().json()["items"]:
        rest.delete(f"/v1/authorisations/{found['id']}").raise_for_status()
    until(lambda: all(enrolment.of_node(lab, node).authorisations == 0 for node in (*PATH, "delta")), "no address")
    assert shown(rest)["enabled"] is False
    rule = put(rest, enabled=True)
    assert (rule["expedited"], rule["authorised"], rule["guaranteed_bps"]) == (True, True, CALL_BPS)
    until(
        lambda: (
            [one["node"] for one in shown(rest)["reported_by"] if one["asks"] and one["current"]]
            == ["alpha", "bravo", "charlie", "delta"]
        ),
        "every node asks by the rule",
        20,
    )
    assert all(not one["fault"] for one in shown(rest)["reported_by"])
    with two_calls(lab):
        for node in PATH:
            until(partial(holds, lab, node, 2), f"two grants on {node}", 20)
        until(lambda: shown(rest)["expedited_sessions"] == 2, "two expedited sessions are reported", 20)
        (own,) = [one for one in status(lab, "alpha")["session_rules"] if one["id"] == "telephony"]
        assert (own["sessions"], own["expedited_sessions"]) == (2, 2)
        assert own["guaranteed_bps"] == pytest.approx(2 * CALL_BPS, rel=0.01)
        # Three seconds' worth of both calls; within the limit signals would be a third of it.
        others_while(lab, EXPEDITED_CLASS, LEGACY_CLASS)
        put(rest, enabled=False)
        for node in PATH:
            until(partial(holds, lab, node, 0), f"nothing is held on {node}", RELEASED_LIMIT_S)
        until(lambda: shown(rest)["sessions"] == 0, "no session is reported", 20)
        expedited = others_while(lab, LEGACY_CLASS, EXPEDITED_CLASS)
        assert all(count <= 0.1 * JUDGED_PACKETS for count in expedited.values()), expedited


def test_nothing_is_asked_under_observe(rest: httpx.Client, lab: Lab) -> None:
    enrolment.wait_enrolled(lab, ENROLLED_LIMIT_S)
    rest.put("/v1/policies/default", json={"enforcement": "observe"}).raise_for_status()
    try:
        until(lambda: rest.get("/v1/nodes/alpha").json()["state"]["enforcement"] == "observe", "alpha observes")
        put(rest, enabled=True)
        until(lambda: any(one["asks"] for one in status(lab, "alpha")["session_rules"]), "the rule is known", 20)
        before = status(lab, "alpha")["signalling"]["counters"]
        with two_calls(lab):
            until(
                lambda: status(lab, "alpha")["signalling"]["counters"]["would_ask"] >= before["would_ask"] + 2,
                "both calls are noticed",
                20,
            )
            after = status(lab, "alpha")["signalling"]["counters"]
            assert (after["sent"], held_bps(lab, "alpha")) == (before["sent"], 0)
    finally:
        put(rest, enabled=False)
        rest.put("/v1/policies/default", json={"enforcement": "enforce"}).raise_for_status()
