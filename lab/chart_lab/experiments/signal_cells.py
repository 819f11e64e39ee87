"""`signal-cells`: a byte-exact transfer through every bad link that a signalled flow may meet.

Each cell is a row of nodes with a flow of chart-blast from the first to the last; what was sent and what came must have
the same size and SHA-256. Where a cell lets signals through, a rate must have been agreed on; behind a NAT between two
elements, whose tags cannot hold, the flow must have stayed ordinary TCP.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from threading import Timer
from typing import Any

from chart_lab.errors import LabError
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, temporary_lab
from chart_lab.experiments.signal_lab import Element, Signals, elements, line_topology
from chart_lab.network import Lab
from chart_lab.programs import program

TOOL = "clients/chart-blast"
OCTETS = 1_000_000_000
RATE_MBIT = 400.0
DELAY_MS = 5.0
PORT = 5210
# A transfer may take this many times what its rate would take, and this much more.
PATIENCE = 8.0
PATIENCE_S = 30.0
RESTART_AFTER_S = 1.0
# Longer than a rate lives without renewals: it ends and comes back within the transfer.
RESTART_PAUSE_S = 3.5


@dataclass(frozen=True)
class Cell:
    """One bad link, between the second and the third node."""

    name: str
    link: Mapping[str, Any] = field(default_factory=dict)
    nat: bool = False
    restart: bool = False
    agreed: bool = True


CELLS = (
    Cell("plain"),
    Cell("nat", nat=True, agreed=False),
    Cell("drop-options", {"drop_options": True}),
    Cell("reordering", {"reorder": 0.02, "reorder_extra_ms": 2}),
    Cell("duplication", {"duplicate": 0.02}),
    Cell("mtu-1280", {"mtu": 1280}),
    Cell("loss", {"loss": 0.1}),
    Cell("restart", restart=True),
)


@dataclass(frozen=True)
class Result:
    """What came of one cell."""

    cell: str
    octets: int
    seconds: float
    exact: bool
    rate_bps: float
    rate_as_expected: bool
    carrier_shim: int


def hide_behind_nat(lab: Lab) -> None:
    """Makes mid a NAT for alpha: what leaves has mid's address, and nothing comes in that alpha did not begin."""
    iptables = ["iptables", "-w"]
    lab.exec("mid", [*iptables, "-t", "nat", "-A", "POSTROUTING", "-o", "to-bravo", "-j", "MASQUERADE"])
    fresh = ["-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]
    lab.exec("mid", [*iptables, "-A", "FORWARD", "-i", "to-bravo", *fresh])


def blast(lab: Lab, octets: int, rate_mbit: float) -> dict[str, Any]:
    """One flow of chart-blast from alpha to bravo. Raises LabError when it fails or takes much too long."""
    patience_s = PATIENCE_S + PATIENCE * octets * 8 / (rate_mbit * 1e6)
    address = f"{lab.address('bravo')}:{PORT}"
    tool = str(program(TOOL))
    receiver = lab.popen("bravo", [tool, "receive", "--listen", address], stderr=subprocess.PIPE)
    try:
        assert receiver.stderr is not None
        if "listening" not in receiver.stderr.readline():
            raise LabError("chart-blast does not listen")
        command = [tool, "send", "--connect", address, "--bind", lab.address("alpha"), "--available", "all"]
        # Octets that differ make it fail too, after it told what came: that is a result.
        sent = lab.exec("alpha", [*command, "--bytes", str(octets), "--json"], timeout_s=patience_s, check=False)
        told: dict[str, Any] = json.loads(sent.stdout or "{}")
        if "receiver" not in told:
            raise LabError(f"chart-blast ended with {sent.returncode}: {sent.stderr.strip()[-300:]}")
        return told
    finally:
        receiver.kill()
        receiver.communicate()


def restart(element: Element) -> None:
    """An element dies and comes back."""
    element.kill()
    time.sleep(RESTART_PAUSE_S)
    element.start()


def run_cell(cell: Cell, octets: int, rate_mbit: float, delay_ms: float, seed: int) -> Result:
    """One transfer in a lab of its own."""
    names = ("alpha", "mid", "bravo")
    topology = line_topology(names, rate_mbit=rate_mbit, delay_ms=delay_ms)
    bad = topology.links[1].model_copy(update=dict(cell.link))
    topology = topology.model_copy(update={"links": [topology.links[0], bad]})
    # A NAT is no element: the tag is then of alpha for bravo and breaks on the way.
    signals = Signals(topology, elements=("alpha", "bravo") if cell.nat else names)
    with temporary_lab(topology, seed) as lab:
        if cell.nat:
            hide_behind_nat(lab)
        with elements(lab, signals) as running:
            timer = Timer(RESTART_AFTER_S, restart, [running["mid"]]) if cell.restart else None
            if timer:
                timer.start()
            told = blast(lab, octets, rate_mbit)
            if timer:
                timer.join()
            shim = running["alpha"].counters()["shim_sent"]
    return Result(
        cell=cell.name,
        octets=int(told["receiver"]["bytes"]),
        seconds=told["seconds"],
        exact=told["receiver"]["bytes"] == octets and told["receiver"]["sha256"] == told["sha256"],
        rate_bps=told["rate_bps"],
        rate_as_expected=(told["rate_bps"] > 0) == cell.agreed,
        carrier_shim=shim,
    )


def evaluate(results: Sequence[Result], wanted: int = len(CELLS)) -> list[Figure]:
    """The figures of the experiment."""
    figures = [
        Figure("cells", len(results), "cells", f">= {wanted}"),
        Figure("least_bytes", min(result.octets for result in results), "byte"),
        Figure("cells_not_exact", sum(not result.exact for result in results), "cells", "<= 0"),
        Figure("cells_with_an_unexpected_rate", sum(not r.rate_as_expected for r in results), "cells", "<= 0"),
    ]
    figures += [Figure(f"goodput_bps/cell={r.cell}", 8 * r.octets / r.seconds, "bit/s") for r in results]
    return figures


def table(results: Sequence[Result]) -> str:
    """Markdown: one line per cell."""
    lines = ["# Transfers through bad links", "", "| cell | MB | exact | rate Mb/s | seconds | shim signals |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for r in results:
        lines.append(
            f"| {r.cell} | {r.octets / 1e6:.1f} | {'yes' if r.exact else 'NO'} | {r.rate_bps / 1e6:.2f} "
            f"| {r.seconds:.1f} | {r.carrier_shim} |"
        )
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """Cell by cell."""
    rate_mbit = (settings.rate_mbit or (RATE_MBIT,))[0]
    delay_ms = (settings.delay_ms or (DELAY_MS,))[0]
    wanted = [cell for cell in CELLS if cell.name in (settings.cells or [cell.name])]
    results: list[Result] = []
    for number, cell in enumerate(wanted):
        report(cell.name, number / len(wanted))
        results.append(
            run_cell(cell, settings.octets or OCTETS, rate_mbit, delay_ms, settings.seed * 1000 + CELLS.index(cell))
        )
    return Outcome(evaluate(results, len(wanted)), table(results), [asdict(result) for result in results])


EXPERIMENT = Experiment(
    "signal-cells", "A byte-exact transfer through NAT, dropped options, reordering, loss and a restart.", run
)
