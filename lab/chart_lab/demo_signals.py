"""What the demonstration shows of rates agreed in band: forged signals that no element takes, an ask without an
authorisation that gets the free rate, a flow explained hop by hop, and what the security page then says.

Brassil et al., The CHART System, section 3, on the packets between elements.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx

from chart_lab import enrolment
from chart_lab.demo_in_band import TOOL
from chart_lab.errors import LabError
from chart_lab.experiments import signal_abuse
from chart_lab.experiments.framework import Figure
from chart_lab.experiments.installed import agent_status
from chart_lab.experiments.signal_capture import Capture
from chart_lab.network import Lab
from chart_lab.platform.laboratory import LaboratoryError, chart, fetch
from chart_lab.platform.settings import PlatformSettings
from chart_lab.programs import program
from chart_lab.topology import all_ends, first_hops

PORT = 5212
# Of an IPv4 packet: more than the plain header, so a signal.
WITH_OPTIONS = "ip[0] & 0xf > 5"
FORGED_OF_EACH_KIND = 200
SEED = 20
SETTLED_S, SETTLED_LIMIT_S = 0.3, 10.0
# A flow whose few tries are all lost on the emulated path ends without a rate, which shows nothing.
UNAUTHORISED_S, UNAUTHORISED_FLOWS = 1.0, 5
# Nodes report their part in a flow every two seconds; the flow ends when it is explained. That took two busy cores 40 s
# under mutual TLS: beside a flow at full rate services wait seconds for each other.
EXPLAINED_FLOW_S, EXPLAINED_LIMIT_S = 95.0, 90.0
SECURITY_LIMIT_S = 10.0


@contextmanager
def capturing(lab: Lab, sender: str, receiver: str) -> Iterator[Capture]:
    """The signals that leave a sender towards a receiver while the block runs."""
    interface = first_hops(lab.topology, sender)[receiver].interface
    expression = f"src host {lab.address(sender)} and {WITH_OPTIONS}"
    with Capture(lab, sender, interface, expression) as capture:
        yield capture


def _counters(lab: Lab) -> dict[str, dict[str, int]]:
    """What every node's agent counted of signals. Raises LaboratoryError when one does not signal."""
    found = {}
    for node in lab.topology.nodes:
        signalling = agent_status(lab, node.name).get("signalling", {})
        if not signalling.get("running"):
            msg = f"{node.name} does not signal in band: {signalling.get('error') or 'its agent does not answer'}"
            raise LaboratoryError(msg)
        found[node.name] = signalling["counters"]
    return found


def _settled(lab: Lab) -> dict[str, dict[str, int]]:
    """The counters once nothing is under way any more."""
    deadline = time.monotonic() + SETTLED_LIMIT_S
    before = _counters(lab)
    while time.monotonic() < deadline:
        time.sleep(SETTLED_S)
        after = _counters(lab)
        if after == before:
            return after
        before = after
    msg = f"signals are still exchanged {SETTLED_LIMIT_S:.0f} s after the flows have ended"
    raise LaboratoryError(msg)


def forge(lab: Lab, sender: str, receiver: str, genuine: Sequence[bytes]) -> list[Figure]:
    """Plays signals of a flow that has ended again, and altered in every way, at the first element behind its sender;
    what any element takes counts. The forger has no key.

    Raises LaboratoryError when the element did not see them, so that nothing would be proved.
    """
    if not genuine:
        msg = f"no signal of {sender} was captured to forge from"
        raise LaboratoryError(msg)
    chance = random.Random(SEED)  # noqa: S311 - which bit is flipped, nothing secret
    packets = [
        forged(chance, chance.choice(genuine))
        for forged in signal_abuse.FORGES.values()
        for _ in range(FORGED_OF_EACH_KIND)
    ]
    end = first_hops(lab.topology, sender)[receiver]
    before = _settled(lab)
    tried = signal_abuse.inject(lab, packets, sender, end.interface)
    after = _settled(lab)
    moved = {node: {name: count - before[node][name] for name, count in now.items()} for node, now in after.items()}
    accepted = sum(counts["accepted"] for counts in moved.values())
    seen = signal_abuse.refused(moved[end.peer]) + moved[end.peer]["accepted"]
    if seen < signal_abuse.LEAST_SEEN * tried:
        msg = f"{end.peer} saw {seen} of {tried} forged signals"
        raise LaboratoryError(msg)
    return [
        Figure("forged_signals_tried", tried, "signals"),
        Figure("forged_signals_accepted", accepted, "signals", "<= 0"),
    ]


def _blast(receiver: str, own: str, seconds: float) -> list[str]:
    tool = str(program(TOOL))
    return [
        *(tool, "send", "--connect", f"{receiver}:{PORT}", "--bind", own),
        *("--available", "all", "--duration", f"{seconds:g}", "--json"),
    ]


@contextmanager
def _receiving(lab: Lab, node: str) -> Iterator[None]:
    listening = lab.popen(node, [str(program(TOOL)), "receive", "--listen", str(PORT)], stderr=subprocess.PIPE)
    try:
        assert listening.stderr is not None
        if "listening" not in listening.stderr.readline():
            raise LabError(f"chart-blast does not listen on {node}")
        yield
    finally:
        listening.kill()
        listening.communicate()


def _link_address(lab: Lab, node: str) -> str:
    """An address of a node that no authorisation names: that of its first link."""
    return str(next(end.address.ip for _, end in all_ends(lab.topology) if end.node == node))


def free_rate_bps(lab: Lab) -> int:
    """What the authority lets those have who ask without an authorisation.

    Raises LabError when it cannot be asked.
    """
    with enrolment.operator_client(lab.authority) as client:
        try:
            told: dict[str, Any] = client.get("/v1/authorisations").raise_for_status().json()["unauthorised"]
        except httpx.HTTPError as error:
            raise LabError(f"the authority does not tell its free rate: {error}") from error
    return int(told["available_bps"]) if told["action"] == "free" else 0


def unauthorised(lab: Lab, sender: str, receiver: str) -> Figure:
    """The rate of the first flow that learns one when it asks for all there is, between addresses that no authorisation
    names.

    Raises LabError when none of `UNAUTHORISED_FLOWS` learns a rate: those who may ask for nothing are refused by a rate
    of 0 too, so a 0 would not tell that the free rate is given.
    """
    free_bps = free_rate_bps(lab)
    command = _blast(_link_address(lab, receiver), _link_address(lab, sender), UNAUTHORISED_S)
    for _ in range(UNAUTHORISED_FLOWS):
        # A receiver takes one flow.
        with _receiving(lab, receiver):
            rate_bps = _rate_of(lab, sender, command)
        if rate_bps > 0 or free_bps == 0:
            return Figure("unauthorised_rate_bps", rate_bps, "bit/s", f"<= {free_bps}")
    msg = f"none of {UNAUTHORISED_FLOWS} flows without an authorisation learned the free rate of {free_bps} bit/s"
    raise LabError(msg)


def _rate_of(lab: Lab, sender: str, command: Sequence[str]) -> float:
    done = lab.exec(sender, command, check=False)
    if done.returncode != 0:
        raise LabError(f"chart-blast ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return float(json.loads(done.stdout)["rate_bps"])


def explain(settings: PlatformSettings, lab: Lab, sender: str, receiver: str) -> str:
    """`chart explain` of a flow that runs at a rate of its own asking, once every node on its path has reported it.

    Raises LaboratoryError when one does not.
    """
    with _receiving(lab, receiver):
        command = _blast(lab.address(receiver), lab.address(sender), EXPLAINED_FLOW_S)
        sending = lab.popen(sender, command, stderr=subprocess.DEVNULL)
        try:
            nodes = {node.name for node in lab.topology.nodes}
            return _explained(settings, f"{lab.address(receiver)}:{PORT}", sender, nodes)
        finally:
            sending.kill()
            sending.communicate()


def _explained(settings: PlatformSettings, wanted: str, sender: str, nodes: set[str]) -> str:
    deadline = time.monotonic() + EXPLAINED_LIMIT_S
    told = "nothing"
    while time.monotonic() < deadline:
        time.sleep(SETTLED_S)
        try:
            told = chart(settings, "explain", wanted, "--json")
        except LaboratoryError as error:
            told = str(error)
            continue
        for flow in json.loads(told):
            agreed = any((hop["node"], hop["state"]) == (sender, "agreed") for hop in flow["hops"])
            if agreed and {hop["node"] for hop in flow["hops"]} == nodes:
                return chart(settings, "explain", f"{flow['source']}-{flow['destination']}").rstrip()
    msg = f"not every node explains its part in the flow to {wanted}: {told[-600:]}"
    raise LaboratoryError(msg)


def security_page(settings: PlatformSettings, rest: httpx.Client, refused: int) -> str:
    """Where the security page is, and what it says of nodes and keys once so many refused signals are reported."""
    deadline = time.monotonic() + SECURITY_LIMIT_S
    while True:
        keys = fetch(rest, "/v1/node-keys")["items"]
        counted = sum(one["count"] for node in keys for one in node["refused_signals"])
        if counted >= refused or time.monotonic() > deadline:
            break
        time.sleep(SETTLED_S)
    identities = fetch(rest, "/v1/identities")["items"]
    enrolled = {one["identity"] for one in identities if one["state"] == "enrolled"}
    nodes = [f"{one['node']} (key epoch {one['key_epoch']})" for one in keys if f"node/{one['node']}" in enrolled]
    return (
        f"security page {settings.gateway_url}/security: enrolled {', '.join(nodes) or 'nobody'}; "
        f"{counted:.0f} signals refused"
    )
