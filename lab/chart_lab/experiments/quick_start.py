"""`quick-start`: short transfers that begin with a rate that routers approved, on the platform as it is installed.

Four nodes in a line, 100 Mb/s, RTT 200 ms. Connections from the first node to the last carry 256 KB or 1 MB, in turns
under CUBIC and BBR without Quick-Start, under CUBIC with it, and at a rate asked in band; the time is from the
beginning of the connection until the last octet has arrived. The same where the listener sends, and after an idle time,
from its end. Then a hundred connections ask at once; a receiver reports higher rates than arrived; and at last what has
IP options does not pass a link any more (Floyd and others, Quick-Start for TCP and IP, RFC 4782). What a link that
answers requests costs other packets comes from the kernel's test run (dataplane/bpf/tests/advice_cost.c).
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

import httpx

from chart_lab import quick_start_endpoint, topology
from chart_lab.errors import LabError
from chart_lab.experiments import installed
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, interleaved
from chart_lab.experiments.installed import Installation
from chart_lab.network import Lab
from chart_lab.platform.laboratory import client
from chart_lab.programs import program
from chart_lab.topology import Impairment, Topology

SENDER, RECEIVER, LAST = "alpha", "delta", "charlie-delta"
LINKS = ("alpha:to-bravo", "bravo:to-charlie", "charlie:to-delta")
LINKS_BACK = ("delta:to-charlie", "charlie:to-bravo", "bravo:to-alpha")
RATE_MBIT, DELAY_MS = 100.0, 100.0 / 3
PORT = 5301
REQUEST_BPS = 100_000_000
SIZES = {"256k": 256_000, "1m": 1_000_000}
CONTROLS = ("cubic", "bbr", "quick-start")
# CHART's own: the program asks for what the path has to spare, for who opens a connection and sends.
IN_BAND = "in-band"
# Who sends and when, and what the figures of it are called.
WAYS = {"push": "", "pull": "/from=listener", "again": "/after=idle"}
# Longer than any retransmission timeout here.
IDLE_S = 1.5
LIAR_PORT = 5310
# A link with 90 Mb/s to spare approves 81.92: a request for this lies so many steps above it.
LIES = {1: 170_000_000, 2: 330_000_000, 3: 660_000_000}
LIARS = 100
REPEAT = 5
BURST = 100
# Routers count what they approved for two intervals of 150 ms, and know what is spare from twenty of 100 ms.
WINDOW_S = 0.3
CALM_S = 2.5
THRESHOLD = 0.9
LIMIT_S = 60.0
POLICY_S = 3.0
ENDPOINT = [sys.executable, "-m", "chart_lab.quick_start_endpoint"]
LIAR = [sys.executable, "-m", "chart_lab.quick_start_liar"]


def line(base: Topology) -> Topology:
    """The line without loss, with a third of the delay on each link."""
    update = {"loss": 0.0, "delay_ms": DELAY_MS, "rate_mbit": RATE_MBIT}
    return base.model_copy(update={"links": [link.model_copy(update=update) for link in base.links]})


def ask(rest: httpx.Client, bps: int) -> None:
    """What new connections of all nodes ask for."""
    policy = {"enforcement": "enforce", "quick_start_request_bps": bps}
    rest.put("/v1/policies/default", json=policy).raise_for_status()
    time.sleep(POLICY_S)


@dataclass
class Told:
    """Lines of both endpoints, in the order of their arrival."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    news: threading.Condition = field(default_factory=threading.Condition)

    def follow(self, stream: IO[str]) -> None:
        """Read until the process ends."""
        for text in stream:
            with self.news:
                self.lines.append(json.loads(text))
                self.news.notify_all()

    def wait(self, key: str, value: int | None = None, since: int = 0) -> dict[str, Any]:
        """The first line with this key (and value) from a place on. Raises LabError: none comes."""

        def found() -> dict[str, Any] | None:
            rows = (one for one in self.lines[since:] if key in one and value in (None, one[key]))
            return next(rows, None)

        with self.news:
            if not self.news.wait_for(lambda: found() is not None, LIMIT_S):
                raise LabError(f"no connection told {key} within {LIMIT_S:g} s")
            answer = found()
        assert answer is not None
        return answer


class Endpoints:
    """The two ends of all connections."""

    def __init__(self, told: Told, sender: subprocess.Popen[str]) -> None:
        self.told = told
        self._sender = sender

    def order(self, text: str) -> int:
        """Give an order; returns where its answers begin."""
        place = len(self.told.lines)
        assert self._sender.stdin is not None
        self._sender.stdin.write(text + "\n")
        self._sender.stdin.flush()
        return place

    def pull(self, octets: int, congestion: str) -> float:
        """Seconds until the last octet of a listener has arrived."""
        told = self.told.wait("pulled", since=self.order(f"pull {octets} {congestion}"))
        if told["octets"] != octets:
            raise LabError(f"{told['octets']} of {octets} octets arrived")
        return float(told["seconds"])

    def open_each(self, port: int, count: int) -> int:
        """Connections to another port, so far apart that each finds the spare rate of before: how many there were."""
        told = self.told.wait("opened", since=self.order(f"open {count} {port} {WINDOW_S + 0.05}"))
        return int(told["opened"])

    def again(self, octets: int, congestion: str) -> float:
        """Seconds until the last octet of what follows an idle time has arrived."""
        place = self.order(f"again {octets} {congestion} {IDLE_S}")
        began = self.told.wait("began", since=place)
        ended = self.told.wait("ended", began["began"], place)
        if ended["octets"] != 2 * octets:
            raise LabError(f"{ended['octets']} of {2 * octets} octets arrived")
        return float(ended["at_s"] - began["at_s"])

    def transfer(self, octets: int, congestion: str) -> tuple[float, float, int | None]:
        """Seconds until the last octet has arrived, seconds until connected, and the rate that the SYN arrived with."""
        place = self.order(f"push {octets} {congestion}")
        began = self.told.wait("began", since=place)
        ended = self.told.wait("ended", began["began"], place)
        if ended["octets"] != octets:
            raise LabError(f"{ended['octets']} of {octets} octets arrived")
        syn = self.told.wait("syn", began["began"], place)
        return ended["at_s"] - began["at_s"], began["connected_s"], syn["rate"]

    def burst(self, count: int) -> list[tuple[float, int]]:
        """Connections at once: when each SYN arrived, and the rate that it had then, bits per second."""
        place = self.order(f"burst {count}")
        self.told.wait("burst", since=place)
        syns = {one["syn"]: one for one in self.told.lines[place:] if "syn" in one}
        return [(one["at_s"], quick_start_endpoint.rate_bps(one["rate"] or 0)) for one in syns.values()]


@contextmanager
def endpoints(lab: Lab) -> Iterator[Endpoints]:
    """Receiver and sender. Raises LabError when one does not begin."""
    told, processes = Told(), []
    with ExitStack() as stack:
        for node, words in ((RECEIVER, ["receive"]), (SENDER, ["send", lab.address(RECEIVER)])):
            process = installed.begin(stack, lab, node, [*ENDPOINT, *words, str(PORT)])
            processes.append(process)
            assert process.stdout is not None
            threading.Thread(target=told.follow, args=(process.stdout,), daemon=True).start()
        yield Endpoints(told, processes[-1])


@contextmanager
def options_dropped(lab: Lab) -> Iterator[None]:
    """What has IP options does not pass the last link."""
    lab.impair(LAST, Impairment(drop_options=True))
    try:
        yield
    finally:
        lab.impair(LAST, Impairment(drop_options=False))


@dataclass
class Found:
    """What was measured."""

    # By size, control and who sends when, as in WAYS.
    seconds: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    rates: list[int | None] = field(default_factory=list)
    bursts: list[tuple[float, int]] = field(default_factory=list)
    connected_plain_s: float = 0.0
    connected_dropped_s: list[float] = field(default_factory=list)
    agents: dict[str, Any] = field(default_factory=dict)
    # By steps: how many lied, and how many of them were found out.
    lies: dict[int, tuple[int, int]] = field(default_factory=dict)
    cost: dict[str, dict[str, float]] = field(default_factory=dict)


def above_threshold(arrivals: Sequence[tuple[float, int]], threshold_bps: float) -> int:
    """Approvals with which those of the window before them are more than the threshold."""
    return sum(
        sum(bps for at_s, bps in arrivals if end_s - WINDOW_S < at_s <= end_s) > threshold_bps
        for end_s, own_bps in arrivals
        if own_bps
    )


def transfers(ends: Endpoints, rest: httpx.Client, repeat: int, report: Report, found: Found) -> None:
    """Every size under every control, sent by either end and after an idle time, in turns."""
    turns = list(interleaved((*CONTROLS, IN_BAND), repeat))
    for number, (_, control) in enumerate(turns):
        report(f"transfers under {control}", 0.1 + 0.5 * number / len(turns))
        ask(rest, REQUEST_BPS if control == "quick-start" else 0)
        own = control if control in ("bbr", IN_BAND) else "cubic"
        for size, octets in SIZES.items():
            for way in ("push",) if control == IN_BAND else WAYS:
                if way == "push":
                    seconds, _, rate = ends.transfer(octets, own)
                    if control == "quick-start":
                        found.rates.append(rate)
                else:
                    seconds = (ends.pull if way == "pull" else ends.again)(octets, own)
                found.seconds.setdefault((size, control, way), []).append(seconds)
                time.sleep(CALM_S)


def overstated(lab: Lab) -> int:
    """Responses that the sender's agent found to report more than arrived."""
    return int(installed.agent_status(lab, SENDER)["quick_start"]["overstated"])


def lies(lab: Lab, ends: Endpoints, rest: httpx.Client, steps: int) -> tuple[int, int]:
    """How many responses reported so many steps more than arrived, and how many of them were found out."""
    ask(rest, LIES[steps])
    with ExitStack() as stack:
        liar = installed.begin(stack, lab, RECEIVER, [*LIAR, str(LIAR_PORT), str(steps)])
        assert liar.stdout is not None
        told = Told()
        threading.Thread(target=told.follow, args=(liar.stdout,), daemon=True).start()
        before = overstated(lab)
        ends.open_each(LIAR_PORT, LIARS)
        lied = len({one["syn"] for one in told.lines if one["lied"]})
        return lied, overstated(lab) - before


def cost() -> dict[str, dict[str, float]]:
    """What packets without options cost, in the kernel's test run. Raises LabError when it cannot be run."""
    result = subprocess.run([str(program("dataplane/advice-cost"))], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LabError(f"advice-cost ended with {result.returncode}: {result.stderr.strip()[-300:]}")
    told: dict[str, dict[str, float]] = json.loads(result.stdout)
    return told


def measure(product: Installation, seed: int, repeat: int, report: Report, found: Found) -> None:
    """All transfers, the connections at once, those that lie, and the node that drops options."""
    with (
        product.network(line(topology.load("demo")), seed) as lab,
        client(product.settings) as rest,
        endpoints(lab) as ends,
    ):
        installed.change_links(rest, LINKS + LINKS_BACK, quick_start=True)
        transfers(ends, rest, repeat, report, found)
        report("a hundred connections at once", 0.6)
        ask(rest, REQUEST_BPS)
        found.bursts = ends.burst(BURST)
        found.agents = {link: installed.agent_status(lab, link.split(":")[0]).get("links") for link in LINKS}
        time.sleep(CALM_S)
        for number, steps in enumerate(LIES):
            report(f"{LIARS} receivers report {steps} steps more than arrived", 0.65 + 0.1 * number)
            found.lies[steps] = lies(lab, ends, rest, steps)
        report("a node drops what has options", 0.95)
        ask(rest, 0)
        found.connected_plain_s = ends.transfer(1000, "cubic")[1]
        ask(rest, REQUEST_BPS)
        with options_dropped(lab):
            found.connected_dropped_s = [ends.transfer(1000, "cubic")[1] for _ in range(3)]


def gains(found: Found, way: str) -> Iterator[Figure]:
    """By medians; the goal is for who opens a connection and sends."""
    for size in SIZES:
        medians = {control: statistics.median(found.seconds[size, control, way]) for control in CONTROLS}
        own, goal = medians["quick-start"], ">= 3" if way == "push" else None
        yield Figure(f"gain_{size}{WAYS[way]}", medians["cubic"] / own, "ratio", goal, medians["bbr"] / own)
        if way == "push":
            medians[IN_BAND] = statistics.median(found.seconds[size, IN_BAND, way])
        for control, median_s in medians.items():
            yield Figure(f"transfer_{size}_s{WAYS[way]}/cc={control}", median_s, "s")


def found_out(steps: int, lied: int, detected: int) -> Iterator[Figure]:
    """One lie in 4^n succeeds; of so many as were told, up to three deviations more may by chance."""
    missed = 1 / 4**steps
    least = 1 - missed - 3 * math.sqrt(missed * (1 - missed) / max(lied, 1))
    yield Figure(f"nonce_lies_detected/steps={steps}", detected / max(lied, 1), "share", f">= {least:.3f}")
    yield Figure(f"nonce_lies_detected_tried/steps={steps}", lied, "responses")


def evaluate(found: Found) -> list[Figure]:
    """What one retransmission timeout is the connection tells itself: a second (RFC 6298)."""
    threshold_bps = THRESHOLD * RATE_MBIT * 1e6
    extra_s = [one - found.connected_plain_s for one in found.connected_dropped_s]
    return [
        *(figure for way in WAYS for figure in gains(found, way)),
        Figure("approved_above_threshold", above_threshold(found.bursts, threshold_bps), "requests", "<= 0"),
        Figure("approved_above_threshold_tried", len(found.bursts), "requests"),
        Figure("approved_at_once_bps", float(sum(bps for _, bps in found.bursts)), "bit/s"),
        Figure("legacy_router_cost", found.cost["router"]["ratio"], "ratio", "<= 1.01"),
        Figure("host_packet_cost", found.cost["host"]["ratio"], "ratio"),
        *(figure for steps, told in found.lies.items() for figure in found_out(steps, *told)),
        Figure("dropper_extra_rto", extra_s[0], "RTO", "<= 1.1"),
        Figure("dropper_extra_rto_later", max(extra_s[1:]), "RTO", "<= 0.1"),
    ]


def table(found: Found) -> str:
    """Markdown: each transfer."""
    lines = ["# Transfers, seconds", "", "| size | control | sent | each turn |", "| --- | --- | --- | --- |"]
    for (size, control, way), seconds in found.seconds.items():
        lines.append(f"| {size} | {control} | {way} | {', '.join(f'{one:.3f}' for one in seconds)} |")
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """One network on the platform as it is installed. Raises LabError."""
    report("what other packets pay", 0.0)
    # Before there is a platform: its processes would be measured too.
    found = Found(cost=cost())
    with installed.installation(report) as product:
        try:
            measure(product, settings.seed, settings.repeat or REPEAT, report, found)
        except installed.FAILURES as error:
            raise LabError(str(error)) from error
    details = {
        "seconds": {" ".join(key): value for key, value in found.seconds.items()},
        "rates": found.rates,
        "bursts": found.bursts,
        "connected_plain_s": found.connected_plain_s,
        "connected_dropped_s": found.connected_dropped_s,
        "agents": found.agents,
        "lies": {str(steps): told for steps, told in found.lies.items()},
        "cost": found.cost,
    }
    return Outcome(evaluate(found), table(found), details)


EXPERIMENT = Experiment(
    "quick-start",
    "Short transfers that begin with a rate that routers approved (RFC 4782), on the platform as it is installed.",
    run,
    installed=True,
)
