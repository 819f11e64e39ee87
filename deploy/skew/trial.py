"""One half of `make version-skew`: a platform of one version with agents of another, under load.

Runs on whatever version of the sources stands first in PYTHONPATH, with the programs of CHART_BUILD_DIR. Writes one
JSON object a line for each check: ``check``, ``good``, ``detail``.

    trial.py --agent LINK --other FILE --own FILE

``LINK`` is the symbolic link by which the lab finds chart-agent; ``FILE`` are the agents of the other version and of
the platform's own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from chart_lab import demo_trust, topology
from chart_lab.errors import LabError
from chart_lab.experiments import installed
from chart_lab.experiments.traffic import Account, Transfer
from chart_lab.network import Lab
from chart_lab.platform.laboratory import LaboratoryError, client, fetch, request_rate
from chart_lab.platform.settings import PlatformSettings

RATE_MBIT, LOSS, DELAY_MS = 40, 0.01, 20
GUARANTEED_BPS = 20_000_000
PORT, IN_BAND_PORT = 5201, 5211
TRANSFER_S = 6.0
CHANGE_LIMIT_S = 40.0
# From the beginning of the long transfer on: upgrade and rollback of both nodes with their waits.
LONG_S = 60.0
CONTROL = "trinity"
SEED = 11


@dataclass
class Findings:
    """The checks, told as they are made."""

    failed: int = 0
    names: list[str] = field(default_factory=list)

    def tell(self, name: str, good: bool, detail: str) -> None:
        """One check."""
        self.names.append(name)
        self.failed += not good
        print(json.dumps({"check": name, "good": good, "detail": detail[:1500]}), flush=True)

    def check(self, name: str, made: Callable[[], str]) -> None:
        """A check that raises when it fails."""
        try:
            detail = made()
        except (LabError, LaboratoryError, httpx.HTTPError, AssertionError) as error:
            self.tell(name, False, str(error))
        else:
            self.tell(name, True, detail)


def demand(good: bool, told: str) -> str:
    """What was seen; raises AssertionError when it is not good."""
    if not good:
        raise AssertionError(told)
    return told


def carried(account: Account, low_bps: float, high_bps: float, duration_s: float = TRANSFER_S) -> str:
    """A transfer was at CHART's control to its end and carried what it was given."""
    mbit = account.goodput_bps(duration_s) / 1e6
    good = account.congestion == CONTROL and low_bps <= mbit * 1e6 <= high_bps
    return demand(good, f"{mbit:.2f} Mb/s under {account.congestion}")


def put_agent(link: Path, program: Path) -> None:
    """The agent that starts from now on."""
    fresh = link.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(program)
    fresh.replace(link)


@dataclass(frozen=True)
class Trial:
    """A platform and a network whose agents can be exchanged."""

    settings: PlatformSettings
    lab: Lab
    link: Path

    def change(self, node: str, program: Path) -> None:
        """Another agent on a node, as an upgrade of its package does it; returns when it takes part again.

        Raises LabError with the agent's account when it does not.
        """
        put_agent(self.link, program)
        configuration = str(self.lab.directory / "supervisord.conf")
        command = [sys.executable, "-m", "supervisor.supervisorctl", "-c", configuration, "restart", f"agent-{node}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if "started" not in done.stdout:
            raise LabError(f"agent-{node} was not restarted: {done.stdout.strip()} {done.stderr.strip()}")
        deadline = time.monotonic() + CHANGE_LIMIT_S
        while not installed.signals(status := installed.agent_status(self.lab, node)):
            if time.monotonic() > deadline:
                raise LabError(f"{node} does not take part after its change: {json.dumps(status)[:300]}")
            time.sleep(0.1)

    def flow(self, low_bps: float, port: int, *, in_band: bool = False) -> str:
        """A flow is at CHART's control to its end and carries so much at least.

        Once more when it is not: a machine that stops for longer than a lease of a rate costs a flow its control, and
        what is judged here is whether versions understand each other.
        """
        account = self.transfer(port, in_band=in_band)
        if account.congestion == CONTROL:
            return carried(account, low_bps, RATE_MBIT * 1e6)
        first = self.counters()
        account = self.transfer(port, in_band=in_band)
        if account.congestion != CONTROL:
            raise AssertionError(f"under {account.congestion}, twice; signals: {first}, then {self.counters()}")
        return f"{carried(account, low_bps, RATE_MBIT * 1e6)} the second time; signals at the first: {first}"

    def counters(self) -> str:
        """What the nodes counted of signals, where it is not nothing."""
        told = {}
        for node in ("alpha", "bravo"):
            signalling = installed.agent_status(self.lab, node).get("signalling", {})
            told[node] = {name: count for name, count in signalling.get("counters", {}).items() if count}
        return json.dumps(told)

    def transfer(self, port: int, *, in_band: bool) -> Account:
        """A flow from its beginning to its end."""
        return Transfer(self.lab, "alpha", "bravo", duration_s=TRANSFER_S, port=port, in_band=in_band).finish()

    def in_band(self) -> str:
        """A flow that asks inside its own packets gets a rate and carries it."""
        return self.flow(0.3 * (RATE_MBIT * 1e6 - GUARANTEED_BPS), IN_BAND_PORT, in_band=True)

    def granted(self) -> str:
        """A flow that has a grant carries it."""
        return self.flow(0.8 * GUARANTEED_BPS, PORT)

    def still_enforced(self, rest: httpx.Client, identity: str) -> str:
        """The request is there as before, and every node enforces it."""
        deadline = time.monotonic() + CHANGE_LIMIT_S
        while True:
            request: dict[str, Any] = fetch(rest, f"/v1/rate-requests/{identity}")
            if request["enforcement"] == "ENFORCED" and request["granted_bps"] == GUARANTEED_BPS:
                return f"{request['granted_bps']} bit/s, {request['enforcement']}"
            if time.monotonic() > deadline:
                raise AssertionError(f"{request['granted_bps']} bit/s, {request['enforcement']} {request['reason']}")
            time.sleep(0.1)


def change_all(trial: Trial, program: Path, between: Callable[[], None]) -> str:
    """Every node's agent is exchanged, one after the other; ``between``: when one is and the other is not."""
    trial.change("alpha", program)
    between()
    trial.change("bravo", program)
    return "both nodes take part"


def try_all(trial: Trial, findings: Findings, other: Path, own: Path) -> None:
    """The checks of one direction."""
    before = demo_trust.checks(trial.settings)
    with client(trial.settings) as rest:
        body = {
            "source": "alpha", "destination": "bravo", "protocol": "tcp", "destination_port": PORT,
            "service": "variable", "guaranteed_bps": GUARANTEED_BPS, "description": "version skew",
        }  # fmt: skip
        made: dict[str, Any] = {}

        def ask() -> str:
            request, enforced_ms = request_rate(rest, body)
            made.update(request)
            return f"enforced after {enforced_ms:.0f} ms"

        findings.check("grant_enforced", ask)
        if not made:
            return
        findings.check("granted_flow", trial.granted)
        findings.check("in_band", trial.in_band)
        long = Transfer(trial.lab, "alpha", "bravo", duration_s=LONG_S, port=PORT)
        try:
            for name, program in (("upgrade", own), ("rollback", other)):
                findings.check(
                    name,
                    lambda name=name, program=program: change_all(  # type: ignore[misc]
                        trial, program, lambda: findings.check(f"in_band_mixed_{name}", trial.in_band)
                    ),
                )
                findings.check(f"kept_by_{name}", lambda: trial.still_enforced(rest, made["id"]))
            findings.check(
                "flow_outlives_changes", lambda: carried(long.finish(), 0.6 * GUARANTEED_BPS, RATE_MBIT * 1e6, LONG_S)
            )
        finally:
            long.close()
        findings.check("records_accepted", lambda: records_accepted(before, demo_trust.checks(trial.settings)))
        rest.post(f"/v1/rate-requests/{made['id']}/release")


def records_accepted(before: dict[str, demo_trust.Checks], after: dict[str, demo_trust.Checks]) -> str:
    """Every reader took what the agents wrote, all of it."""
    good = min(after[name].good - before[name].good for name in after)
    refused = max(after[name].refused - before[name].refused for name in after)
    return demand(good > 0 and refused == 0, f"each reader took at least {good:.0f} records, refused {refused:.0f}")


def report(words: str, share: float) -> None:
    """Progress."""
    sys.stderr.write(f"skew: {words}\n")


@contextmanager
def world(link: Path) -> Iterator[Trial]:
    """A platform with a network of two nodes whose agents are those of the link."""
    base = topology.load("two-node")
    shaped = base.links[0].model_copy(
        update={"rate_mbit": RATE_MBIT, "delay_ms": DELAY_MS, "loss": LOSS, "queue": "default"}
    )
    with (
        installed.installation(report) as product,
        product.network(base.model_copy(update={"links": [shaped]}), SEED) as lab,
    ):
        yield Trial(product.settings, lab, link)


def main() -> int:
    """Exit status 0 when every check holds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("agent", "other", "own"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    findings = Findings()
    put_agent(options.agent, options.other)
    try:
        with world(options.agent) as trial:
            findings.tell("takes_part", True, "enrolled, enforcing, in band")
            try_all(trial, findings, options.other, options.own)
    except LabError as error:
        findings.tell("takes_part" if not findings.names else "end", False, str(error))
    return 1 if findings.failed else 0


if __name__ == "__main__":
    sys.exit(main())
