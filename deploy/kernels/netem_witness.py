"""`make netem-witness`: the lab's link emulator beside the kernel's netem, in one guest under QEMU.

The same transfers go over a link of linkem and over one of netem, in turn, on every cell of a grid of rate, loss, delay
and jitter (guest-witness). The guest's clock is virtual: it counts instructions, so load on this machine changes no
figure, and guests may run beside each other. A cell that is done stays done for the same programs: the command goes on
where it ended.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from guest import VIRTUAL_TIME, Outcome, boot, chosen, say, understand
from guest_image import ImageError, make_image
from kernel_packages import PackageError, PackageSource

from report_file import replace_figures

HERE = Path(__file__).resolve().parent
COMMAND = "make netem-witness"
EMULATORS = ("linkem", "netem")
CONTROLS = ("cubic", "bbr", "chart")
ROUNDS = 5
RATES_MBIT = (4, 12)
LOSSES = (0.0, 0.01, 0.03)
DELAYS_MS = (10, 40)
JITTER_MS = 4
PACKET_BYTES = 1500
SECONDS = 12
# CUBIC's goodput under random loss is as uncertain as its number of losses is small.
CUBIC_LOSSES = 250
CUBIC_LIMIT_S = 120
# A guest waits for little, but its virtual seconds cost this machine about half a second each.
CELL_LIMIT_S = 7200


@dataclass(frozen=True)
class Cell:
    """A link: rate, delay of one way, jitter to either side of it, loss of each way."""

    rate_mbit: int
    loss: float
    delay_ms: int
    jitter_ms: int

    @property
    def name(self) -> str:
        """As it stands in figures."""
        return f"rate_mbit={self.rate_mbit}/loss={self.loss:g}/delay_ms={self.delay_ms}" + (
            f"/jitter_ms={self.jitter_ms}" if self.jitter_ms else ""
        )

    @property
    def queue_packets(self) -> int:
        """What may wait: what passes in a round trip, at least 32 packets (48,000 octets)."""
        return max(32, round(self.rate_mbit * 1e6 * 2 * self.delay_ms / 1e3 / 8 / PACKET_BYTES))

    @property
    def cubic_seconds(self) -> int:
        """How long CUBIC transfers: until some hundred losses are to be expected.

        Mathis, Semke, Mahdavi, Ott, "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997:
        sqrt(3 / 2) / (RTT sqrt(loss)) packets a second, at most the link's.
        """
        if not self.loss:
            return SECONDS
        by_loss = math.sqrt(1.5 / self.loss) / (2 * self.delay_ms / 1e3)
        packets_per_s = min(by_loss, self.rate_mbit * 1e6 / 8 / PACKET_BYTES)
        return round(min(CUBIC_LIMIT_S, max(SECONDS, CUBIC_LOSSES / (self.loss * packets_per_s))))

    def command_line(self) -> list[str]:
        """As the guest takes it from its kernel's command line."""
        return [
            *(f"RATE_MBIT={self.rate_mbit}", f"LOSS={self.loss:g}", f"DELAY_MS={self.delay_ms}"),
            *(f"JITTER_MS={self.jitter_ms}", f"QUEUE_PACKETS={self.queue_packets}"),
            *(f"RUN_SECONDS={SECONDS}", f"CUBIC_SECONDS={self.cubic_seconds}", f"ROUNDS={ROUNDS}"),
        ]


def grid() -> list[Cell]:
    """Every rate with every loss and delay; jitter at the lower rate and the shorter delay, without and with loss."""
    plain = [Cell(rate, loss, delay, 0) for rate in RATES_MBIT for loss in LOSSES for delay in DELAYS_MS]
    return plain + [Cell(RATES_MBIT[0], loss, DELAYS_MS[0], JITTER_MS) for loss in LOSSES[:2]]


def samples_of(outcome: Outcome) -> dict[str, dict[str, list[float]]]:
    """Goodput in Mb/s of each control over each emulator. Raises ValueError when a guest did not measure all."""
    failed = [f"{name} {detail}" for name, (good, detail) in outcome.checks.items() if not good]
    found = {
        control: {
            emulator: outcome.samples.get(f"goodput_mbit/emulator={emulator}/control={control}", [])
            for emulator in EMULATORS
        }
        for control in CONTROLS
    }
    short = [
        f"{control} over {one}: not {ROUNDS} transfers that carried anything"
        for control, samples in found.items()
        for one in EMULATORS
        if len(samples[one]) != ROUNDS or not all(samples[one])
    ]
    if failed or short or not outcome.finished:
        raise ValueError("; ".join([*failed, *short]) or "the guest did not come to its end")
    return found


def difference(samples: dict[str, list[float]]) -> float:
    """|ratio - 1| of the medians of one control over linkem and over netem."""
    return abs(median(samples["linkem"]) / median(samples["netem"]) - 1)


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least so large a share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def figures_of(cells: dict[str, dict[str, dict[str, list[float]]]], whole: bool) -> list[dict[str, Any]]:
    """The report's figures; those of the grid as a whole only when all of it was measured."""
    made: list[dict[str, Any]] = []

    def add(name: str, value: float, unit: str, goal: str = "", peer: str | None = None) -> None:
        made.append({"name": name, "value": round(value, 4), "unit": unit, "goal": goal, "peer": peer})

    differences = []
    for cell, controls in cells.items():
        for control, samples in controls.items():
            for emulator in EMULATORS:
                add(f"goodput_mbit/emulator={emulator}/control={control}/{cell}", median(samples[emulator]), "Mb/s")
            differences.append(difference(samples))
            add(f"linkem_netem_difference/control={control}/{cell}", differences[-1], "", peer="netem")
    if whole:
        add("linkem_netem_difference", median(differences), "", "<= 0.05", "netem")
        add("linkem_netem_difference_p90", percentile(differences, 0.9), "", "<= 0.1", "netem")
    return made


def is_own(name: str) -> bool:
    """Whether a figure of the report is of this command."""
    return "/emulator=" in name or name.startswith("linkem_netem_")


def fingerprint(programs: list[Path], kernel: str) -> str:
    """What the samples depend on beside the cell: programs, the guest's script and its kernel."""
    found = hashlib.sha256(kernel.encode())
    for path in [*programs, HERE / "guest-witness", HERE / "guest-common"]:
        found.update(path.read_bytes())
    return found.hexdigest()


def remembered(state: Path, of: str) -> dict[str, Any]:
    """What was measured with these programs; nothing when they were others."""
    if not state.exists():
        return {}
    found: dict[str, Any] = json.loads(state.read_text())
    if found["of"] != of:
        say(f"{state.name} is of other programs or another kernel: beginning anew")
        return {}
    done: dict[str, Any] = found["cells"]
    return done


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="folder of built programs and downloads")
    parser.add_argument("--report", type=Path, required=True, help="report.json to write; state and consoles beside it")
    parser.add_argument("--kernel", default="6.12", help="release of the guest")
    parser.add_argument("--jobs", type=int, default=1, help="guests at a time")
    parser.add_argument("--cells", type=int, default=len(grid()), help="measure at most so many now")
    return parser.parse_args()


def run(options: argparse.Namespace) -> int:
    """Measure what is missing; how many cells failed."""
    source = PackageSource(options.build / "kernels")
    source.update()
    kernel = chosen(source.kernels(), [options.kernel])[0]
    unpacked = source.unpack(kernel)
    programs = [options.build / "dataplane" / "chart-agent", options.build / "lab" / "linkem"]
    image = options.build / "kernels" / "witness.cpio.gz"
    make_image(unpacked, programs, image, "guest-witness")
    state, of = options.report.parent / "witness.json", fingerprint(programs, kernel.package_version)
    done = remembered(state, of)
    # A cell of other lengths or queues is another cell.
    cells = {" ".join(cell.command_line()): cell for cell in grid()}
    missing = [key for key in cells if key not in done][: options.cells]
    say(f"Linux {kernel.package_version}: {len(cells) - len(missing)} of {len(cells)} cells are done or left for later")

    def measure(key: str) -> tuple[str, Outcome, float]:
        began = time.monotonic()
        log = options.report.parent / "witness" / f"{cells[key].name.replace('/', '_')}.log"
        outcome = understand(kernel.release, boot(unpacked, image, [key], log, VIRTUAL_TIME, CELL_LIMIT_S))
        return key, outcome, time.monotonic() - began

    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for key, outcome, lasted_s in pool.map(measure, missing):
            try:
                done[key] = samples_of(outcome)
            except ValueError as error:
                failed += 1
                say(f"{cells[key].name}: {error}")
                continue
            state.write_text(json.dumps({"of": of, "cells": done}, indent=1) + "\n")
            seen = ", ".join(f"{control} {difference(done[key][control]):.3f}" for control in CONTROLS)
            say(f"{cells[key].name} ({lasted_s:.0f} s): {seen}; {sum(one in done for one in cells)} of {len(cells)}")
    measured = {cell.name: done[key] for key, cell in cells.items() if key in done}
    figures = figures_of(measured, len(measured) == len(cells))
    replace_figures(options.report, COMMAND, is_own, {"figures": figures})
    for figure in figures[-2:] if len(measured) == len(cells) else []:
        say(f"{figure['name']} {figure['value']:g}, goal {figure['goal']}")
    return failed


def main() -> int:
    """Exit status 0 when every cell of this time was measured."""
    try:
        return 1 if run(arguments()) else 0
    except (PackageError, ImageError) as error:
        say(str(error))
        return 2


if __name__ == "__main__":
    sys.exit(main())
