"""`tunnel-soak`: a tunnel whose number of connections changes every second while users send numbered packets.

Nothing may be lost, nothing reordered but what the resequencing bound gave up waiting for, and the ends may not grow:
memory and descriptors are read every second. Afterwards each end is ended without warning and comes back, and a lease
runs out and is renewed. The path loses packets, so that TCP has something to repair.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chart_lab import topology
from chart_lab.errors import LabError
from chart_lab.experiments import itm_tunnel
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, temporary_lab
from chart_lab.experiments.itm_tunnel import Tunnel
from chart_lab.network import Lab

DURATION_S = 3600.0
RATE_MBIT, DELAY_MS, LOSS = 50.0, 10.0, 0.001
CONNECTIONS_MAX = 16
AT_THE_ENDS = 4
# Users' packets, far below what one connection carries on this path.
PACKETS_PER_S, PACKET_BYTES = 300, 1000
PERIOD_MS = 500
LEASE_MS = 2000
# What an allocator may keep for itself between the first change of m and the last, m being the same.
GROWTH_LIMIT_KIB = 1024
FLOWS = {"ipv4": itm_tunnel.USER_ADDRESS, "ipv6": f"[{itm_tunnel.USER_ADDRESS_V6}]"}
USER_PORT = 6100


@dataclass
class Soak:
    """What was seen."""

    sent: int = 0
    received: int = 0
    reordered: int = 0
    given_up_waiting: int = 0
    changes: int = 0
    broken: int = 0
    dropped: int = 0
    memory_kib: dict[str, list[int]] = field(default_factory=lambda: {"origin": [], "destination": []})
    at_rest_kib: dict[str, tuple[int, int]] = field(default_factory=dict)
    descriptors: dict[str, tuple[int, int]] = field(default_factory=dict)
    recovery_s: dict[str, float] = field(default_factory=dict)

    def growth_kib(self) -> int:
        """Most that an end's memory grew while m changed."""
        return max(after - before for before, after in self.at_rest_kib.values())


def resident_kib(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4


def open_descriptors(pid: int) -> int:
    """How many descriptors a process has."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@contextlib.contextmanager
def users(lab: Lab, packets_per_s: int) -> Iterator[list[tuple[Any, Any]]]:
    """Sender and receiver of numbered packets, one pair per IP version."""
    pairs = []
    for address in FLOWS.values():
        receiver = itm_tunnel.traffic(lab, "bravo", "count", "--listen", f"{address}:{USER_PORT}")
        options = ["--bytes", str(PACKET_BYTES), "--rate-pps", str(packets_per_s)]
        sender = itm_tunnel.traffic(lab, "alpha", "flood", "--connect", f"{address}:{USER_PORT}", *options)
        pairs.append((sender, receiver))
    try:
        yield pairs
    finally:
        for sender, receiver in pairs:
            for process in (sender, receiver):
                process.kill()
                process.communicate()


def settle(lab: Lab, tunnel: Tunnel, pairs: Sequence[tuple[Any, Any]], seen: Soak) -> None:
    """Ends the senders, waits until the tunnel is empty, and adds up what came."""
    for sender, _ in pairs:
        seen.sent += int(json.loads(itm_tunnel.finish(sender))["sent"])
    itm_tunnel.await_state(lambda: tunnel.get()["gauges"]["queue_packets"] == 0, "an empty queue")
    before = -1

    def quiet() -> bool:
        nonlocal before
        now = int(tunnel.get("destination")["counters"]["delivered_packets"])
        still, before = now == before, now
        time.sleep(0.3)
        return still and int(tunnel.get("destination")["gauges"]["held_packets"]) == 0

    itm_tunnel.await_state(quiet, "the last packets")
    for _, receiver in pairs:
        told = json.loads(itm_tunnel.finish(receiver).splitlines()[-1])
        seen.received += told["received"]
        seen.reordered += told["reordered"]


def set_and_await(tunnel: Tunnel, connections: int) -> None:
    """Sets m and waits until it is there and nobody drains."""
    tunnel.set(connections=connections)

    def there() -> bool:
        found = tunnel.get()["connections"]
        return bool(found["established"] == connections and found["draining"] == 0)

    itm_tunnel.await_state(there, f"{connections} connections", 60)


def rest(tunnel: Tunnel) -> None:
    """The m at which both ends are compared; the destination has seen the last end of stream, too."""
    set_and_await(tunnel, AT_THE_ENDS)
    itm_tunnel.await_state(
        lambda: tunnel.get("destination")["gauges"]["connections_established"] == AT_THE_ENDS, "the destination's ends"
    )


def change_every_second(tunnel: Tunnel, seen: Soak, duration_s: float, seed: int, report: Report) -> None:
    """The main part: another m every second, memory with it."""
    chosen = random.Random(seed)  # noqa: S311
    pids = {role: process.pid for role, process in tunnel.processes.items()}
    # The most first: what the ends need for it they may keep.
    set_and_await(tunnel, CONNECTIONS_MAX)
    rest(tunnel)
    at_start = {role: (open_descriptors(pid), resident_kib(pid)) for role, pid in pids.items()}
    started_s = time.monotonic()
    ticks = 0
    while (elapsed_s := time.monotonic() - started_s) < duration_s:
        ticks += 1
        tunnel.set(connections=chosen.randint(1, CONNECTIONS_MAX))
        for role, pid in pids.items():
            seen.memory_kib[role].append(resident_kib(pid))
        if ticks % 10 == 0:
            report(f"m changed {ticks} times", elapsed_s / duration_s)
        time.sleep(max(0.0, started_s + ticks - time.monotonic()))
    rest(tunnel)
    seen.descriptors = {role: (at_start[role][0], open_descriptors(pid)) for role, pid in pids.items()}
    seen.at_rest_kib = {role: (at_start[role][1], resident_kib(pid)) for role, pid in pids.items()}


def kill_and_return(lab: Lab, tunnel: Tunnel, seen: Soak) -> None:
    """Each end dies and comes back; then a controller is lost and found again."""
    for role in ("destination", "origin"):
        set_and_await(tunnel, AT_THE_ENDS)
        tunnel.kill(role)
        if role == "destination":
            itm_tunnel.await_state(lambda: tunnel.get()["connections"]["established"] == 0, "the loss")
        started_s = time.monotonic()
        tunnel.start(role)
        if role == "origin":
            tunnel.set(connections=AT_THE_ENDS)
        itm_tunnel.await_state(
            lambda: tunnel.get()["connections"]["established"] == AT_THE_ENDS, f"recovery of the {role}", 30
        )
        seen.recovery_s[role] = time.monotonic() - started_s
        check = Soak()
        with users(lab, PACKETS_PER_S) as pairs:
            time.sleep(1.0)
            settle(lab, tunnel, pairs, check)
        if check.received < check.sent:
            raise LabError(f"{check.sent - check.received} packets were lost after the {role} had come back")
    tunnel.set(connections=8, lease_ms=LEASE_MS)
    started_s = time.monotonic()
    itm_tunnel.await_state(lambda: tunnel.get()["connections"]["established"] == 8, "eight connections")
    held = True
    while not tunnel.get()["connections"]["decaying"]:
        held &= tunnel.get()["connections"]["wanted"] == 8 or time.monotonic() - started_s >= LEASE_MS / 1000
        time.sleep(0.02)
    if not held:
        raise LabError("connections were given back before the lease ran out")
    itm_tunnel.await_state(lambda: tunnel.get()["connections"]["established"] == 1, "one connection")
    seen.recovery_s["lease_to_one"] = time.monotonic() - started_s - LEASE_MS / 1000
    set_and_await(tunnel, AT_THE_ENDS)


def soak(settings: Settings, report: Report) -> Soak:
    """One soak."""
    link = topology.load("two-node").links[0]
    changed = {
        "rate_mbit": (settings.rate_mbit or (RATE_MBIT,))[0],
        "delay_ms": (settings.delay_ms or (DELAY_MS,))[0],
        "loss": (settings.loss or (LOSS,))[0],
    }
    made = topology.load("two-node").model_copy(
        update={"links": [topology.Link.model_validate({**link.model_dump(), **changed})]}
    )
    congestion = (settings.congestion or ("cubic",))[0]
    options = ["--period-ms", str(PERIOD_MS), "--congestion", congestion, "--queue-bytes", "2000000"]
    seen = Soak()
    with temporary_lab(made, settings.seed) as lab, Tunnel(lab, "alpha", "bravo", origin_options=options) as tunnel:
        with users(lab, PACKETS_PER_S) as pairs:
            change_every_second(tunnel, seen, settings.duration_s or DURATION_S, settings.seed, report)
            settle(lab, tunnel, pairs, seen)
        state = tunnel.get()
        seen.changes = state["counters"]["connection_changes"]
        seen.broken = state["counters"]["connections_broken"]
        seen.dropped = state["counters"]["dropped_packets"]
        # Delivered after a later one, because it came after the bound on waiting.
        seen.given_up_waiting = tunnel.get("destination")["counters"]["late_packets"]
        report("the ends are killed", 1.0)
        kill_and_return(lab, tunnel, seen)
    return seen


def figures(seen: Soak) -> list[Figure]:
    """What the soak is judged by."""
    left = sum(after - before for before, after in seen.descriptors.values())
    return [
        Figure("lost_packets", seen.sent - seen.received, "packets", "<= 0"),
        Figure("reordered_beyond_bound", max(0, seen.reordered - seen.given_up_waiting), "packets", "<= 0"),
        Figure("given_up_waiting", seen.given_up_waiting, "packets"),
        Figure("memory_growth_kib", seen.growth_kib(), "KiB", f"<= {GROWTH_LIMIT_KIB}"),
        Figure("descriptors_left", left, "descriptors", "<= 0"),
        Figure("connections_broken", seen.broken, "connections", "<= 0"),
        Figure("connection_changes", seen.changes, "connections"),
        Figure("user_packets", seen.sent, "packets"),
        *(Figure(f"recovery_s/of={name}", value, "s") for name, value in seen.recovery_s.items()),
    ]


def table(seen: Soak) -> str:
    """Markdown."""
    lines = ["# Soak of the elastic tunnel", "", "| figure | value | goal |", "| --- | --- | --- |"]
    lines += [f"| {one.name} | {one.value:g} {one.unit} | {one.goal or ''} |" for one in figures(seen)]
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """The experiment."""
    seen = soak(settings, report)
    return Outcome(figures(seen), table(seen), asdict(seen))


EXPERIMENT = Experiment(
    "tunnel-soak", "Elastic tunnel: an hour with m changing every second; nothing lost, nothing left over.", run
)
