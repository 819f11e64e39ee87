"""`itm-api`: controllers of one's own in a running tunnel, replaced under load and taken out when they fail.

A user's numbered packets pass a tunnel whose application is replaced again and again: how many are lost. Then
applications that crash, end, are slow or answer nonsense: how long no packet arrives, beside the longest pause of the
same tunnel without any application in the same minutes.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from chart_lab.errors import LabError
from chart_lab.experiments import itm_tunnel
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings
from chart_lab.experiments.itm_tunnel import Tunnel
from chart_lab.experiments.tunnel_throughput import veth_lab
from chart_lab.network import Lab
from chart_lab.programs import program

RATE_MBIT = 100.0
CONNECTIONS = 4
PACKETS_PER_S = 2000
PACKET_BYTES = 1000
PORT = 6001
REPLACEMENTS = 20
REPEAT = 3
# Faults that dataplane/tunnel/tests/applications/faulty.c knows; the packets make up 0.25 s.
FAULTS = ("crash=500", "end=500", "slow=1000", "nonsense")
# Long enough for the pause after a fault to be over, and for a pause without one to be comparable.
AFTER_S = 0.5
LIMIT_S = 30.0
OUTAGE_GOAL_MS = 50
NAME = "tried"


@dataclass
class Run:
    """What one tunnel went through; pauses are the longest between two arrivals, in milliseconds."""

    replacements: int = 0
    replaced_lost: int = 0
    fault_lost: int = 0
    pause_without_ms: float = 0.0
    pauses_ms: dict[str, float] = field(default_factory=dict)
    exchange_longest_us: int = 0


def apply(tunnel: Tunnel, action: str, **members: object) -> None:
    """One command about the application; raises LabError when the tunnel refuses it."""
    tunnel.command("origin", command="application", action=action, name=NAME, **members)


def application(tunnel: Tunnel) -> dict[str, Any]:
    """Its state."""
    states: list[dict[str, Any]] = tunnel.get()["applications"]
    return next(state for state in states if state["name"] == NAME)


def faulty(argument: str) -> dict[str, str]:
    """File and argument of the application of the tests."""
    return {"file": str(program("dataplane/itm-faulty.so")), "argument": argument}


class Load:
    """A user's packets, from entry to stop()."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        address = f"{itm_tunnel.USER_ADDRESS}:{PORT}"
        self.counter = itm_tunnel.traffic(lab, "bravo", "count", "--listen", address)
        stack.callback(end, self.counter)
        options = ["--connect", address, "--bytes", str(PACKET_BYTES), "--rate-pps", str(PACKETS_PER_S)]
        self.sender = itm_tunnel.traffic(lab, "alpha", "flood", *options)
        stack.callback(end, self.sender)
        itm_tunnel.await_state(lambda: self.seen()["received"] > PACKETS_PER_S // 4, "packets")

    def seen(self) -> dict[str, Any]:
        """Counts so far; the longest pause is counted anew from here."""
        assert self.counter.stdin is not None
        assert self.counter.stdout is not None
        self.counter.stdin.write("\n")
        self.counter.stdin.flush()
        counts: dict[str, Any] = json.loads(self.counter.stdout.readline())
        return counts

    def stop(self) -> int:
        """Ends the sender and returns how many packets did not arrive."""
        sent: int = json.loads(itm_tunnel.finish(self.sender))["sent"]
        last_s = time.monotonic()
        received = -1
        # Until all are there, or none has come for a second.
        while received < sent and time.monotonic() - last_s < 1.0:
            now: int = self.seen()["received"]
            if now != received:
                received, last_s = now, time.monotonic()
            time.sleep(0.05)
        return sent - received


def end(process: subprocess.Popen[str]) -> None:
    """Ends a traffic program that may have ended."""
    if process.poll() is None:
        itm_tunnel.finish(process)


def replace_under_load(lab: Lab, tunnel: Tunnel, run: Run) -> None:
    """Replaces the application while packets go on."""
    with ExitStack() as stack:
        load = Load(lab, stack)
        apply(tunnel, "load", **faulty("pass"))
        itm_tunnel.await_state(lambda: application(tunnel)["state"] == "on", "the application", LIMIT_S)
        for number in range(REPLACEMENTS):
            apply(tunnel, "replace", **faulty("mark=0" if number % 2 else "pass"))
            itm_tunnel.await_state(
                lambda number=number: application(tunnel)["replacements"] == number + 1, "the new one", LIMIT_S
            )
        state = application(tunnel)
        if state["state"] != "on" or state["packets"] == 0:
            raise LabError(f"the application was not asked throughout: {state['state']} {state['fault']}")
        run.replacements = state["replacements"]
        run.exchange_longest_us = state["longest_us"]
        run.replaced_lost = load.stop()
    apply(tunnel, "unload")


def fail_under_load(lab: Lab, tunnel: Tunnel, run: Run) -> None:
    """Loads applications that fail, one after the other, and measures the pauses."""
    with ExitStack() as stack:
        load = Load(lab, stack)
        load.seen()
        time.sleep(AFTER_S + 0.25)
        run.pause_without_ms = load.seen()["longest_pause_ms"]
        for fault in FAULTS:
            load.seen()
            apply(tunnel, "load", **faulty(fault))
            itm_tunnel.await_state(lambda: application(tunnel)["state"] == "failed", f"the end of {fault}", LIMIT_S)
            time.sleep(AFTER_S)
            run.pauses_ms[fault] = load.seen()["longest_pause_ms"]
            apply(tunnel, "unload")
        run.fault_lost = load.stop()


def figures(runs: Sequence[Run]) -> list[Figure]:
    """Worst of all runs."""
    without_ms = max(run.pause_without_ms for run in runs)
    worst = {fault: max(run.pauses_ms[fault] for run in runs) for fault in FAULTS}
    outage = Figure("crashed_application_outage_ms", max(worst.values()), "ms", f"<= {OUTAGE_GOAL_MS}", peer=without_ms)
    return [
        Figure("replaced_under_load_lost", sum(run.replaced_lost for run in runs), "packets", "<= 0"),
        outage,
        *(Figure(f"outage_ms/fault={fault.partition('=')[0]}", value, "ms") for fault, value in worst.items()),
        Figure("replacements", sum(run.replacements for run in runs), "replacements"),
        Figure("failed_under_load_lost", sum(run.fault_lost for run in runs), "packets"),
        Figure("exchange_longest_us", max(run.exchange_longest_us for run in runs), "us"),
    ]


def table(runs: Sequence[Run]) -> str:
    """Markdown: one line per run."""
    heads = ["replacements", "lost", "pause without (ms)", *(f"{fault} (ms)" for fault in FAULTS)]
    lines = ["# Applications under load", "", f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for run in runs:
        pauses = " | ".join(f"{run.pauses_ms[fault]:.1f}" for fault in FAULTS)
        lines.append(f"| {run.replacements} | {run.replaced_lost} | {run.pause_without_ms:.1f} | {pauses} |")
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """Runs both parts as often as asked."""
    runs: list[Run] = []
    repeat = settings.repeat or REPEAT
    options = ["--connections", str(CONNECTIONS), "--period-ms", "200"]
    with veth_lab((settings.rate_mbit or (RATE_MBIT,))[0], settings.seed) as lab:
        for number in range(repeat):
            report(f"run {number + 1} of {repeat}", number / repeat)
            one = Run()
            with Tunnel(lab, "alpha", "bravo", origin_options=options) as tunnel:
                established = f"{CONNECTIONS} connections"
                itm_tunnel.await_state(
                    lambda tunnel=tunnel: tunnel.get()["connections"]["established"] == CONNECTIONS, established
                )
                replace_under_load(lab, tunnel, one)
                fail_under_load(lab, tunnel, one)
            runs.append(one)
    return Outcome(figures(runs), table(runs), [asdict(one) for one in runs])


EXPERIMENT = Experiment(
    "itm-api", "Traffic controllers from files: replaced under load, and taken out when they fail.", run
)
