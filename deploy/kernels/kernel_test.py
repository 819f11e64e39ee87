"""`make kernel-test`: the agent on every kernel of a matrix, under QEMU's software emulation, over netem.

Each kernel comes from the machine's package source and boots with a file system of a shell and the agent alone
(guest-init, which is also the test). The figures of one kernel are those of one boot: they compare CUBIC, BBR and CHART
with each other, not this emulation with real hardware.

With ``--record`` the kernels become the ones that are claimed, when everything works on all of them (supported.json,
from which tools/kernels.py writes README, documents, doctor and values). Exit status 1 when a function fails on any
kernel.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from guest import NEWEST, OPTIONAL, Outcome, boot, chosen, say, understand
from guest_image import ImageError, make_image
from kernel_packages import PackageError, PackageSource

from report_file import replace_figures

ROOT = Path(__file__).resolve().parents[2]
SUPPORTED = Path(__file__).with_name("supported.json")
# Payload of a full frame: 1448 of the 1514 octets that netem counts.
PAYLOAD_SHARE = 1448 / 1514
CONTROLS = ("cubic", "bbr", "chart")


@dataclass(frozen=True)
class EmulatedPath:
    """The emulated path: rate, one-way delay, loss of each direction; what is transferred over it."""

    rate_mbit: int
    delay_ms: int
    loss: float
    seconds: int
    rounds: int

    @property
    def queue_packets(self) -> int:
        """What is under way in netem and twice as much again, at least 100 packets."""
        under_way = self.rate_mbit * 1e6 * self.delay_ms / 1e3 / 8 / 1514
        return round(under_way + max(100.0, 2 * under_way))

    @property
    def deliverable_mbit(self) -> float:
        """The most payload that the path can deliver."""
        return self.rate_mbit * PAYLOAD_SHARE * (1 - self.loss)

    def command_line(self) -> list[str]:
        """As the guest takes it from its kernel's command line."""
        return [
            f"RATE_MBIT={self.rate_mbit}",
            f"DELAY_MS={self.delay_ms}",
            f"LOSS_PERCENT={self.loss * 100:g}",
            f"QUEUE_PACKETS={self.queue_packets}",
            f"RUN_SECONDS={self.seconds}",
            f"ROUNDS={self.rounds}",
        ]


def figures_of(outcome: Outcome, path: EmulatedPath) -> list[dict[str, Any]]:
    """The report's figures of one kernel."""
    made: list[dict[str, Any]] = []

    def add(name: str, value: float, unit: str, goal: str = "", peer: str | None = None) -> None:
        base, _, more = name.partition("/")
        label = "/".join(part for part in (base, f"kernel={outcome.kernel}", more) if part)
        made.append({"name": label, "value": round(value, 4), "unit": unit, "goal": goal, "peer": peer})

    add("works", float(outcome.works), "", ">= 1")
    add("in_band", float(outcome.in_band), "", "1, or 0 with the reason")
    for name, (good, _) in outcome.checks.items():
        add(f"function/name={name}", float(good), "", "" if name == OPTIONAL else ">= 1")
    goodput = {control: outcome.figures.get(f"goodput_mbit/control={control}", 0.0) for control in CONTROLS}
    for control, mbit in goodput.items():
        add(f"goodput_mbit/control={control}", mbit, "Mb/s")
    add("gain_over_cubic", goodput["chart"] / max(goodput["cubic"], 0.001), "", ">= 5", "cubic")
    add("gain_over_bbr", goodput["chart"] / max(goodput["bbr"], 0.001), "", ">= 1", "bbr")
    add("share_of_limit", goodput["chart"] / path.deliverable_mbit, "", ">= 0.85")
    if "left_behind" in outcome.figures:
        add("left_behind", outcome.figures["left_behind"], "objects", "<= 0")
    return made


def print_outcome(outcome: Outcome) -> None:
    """What worked on a kernel, for people."""
    say(f"{outcome.kernel} ({outcome.text('release') or 'did not boot'}): {'works' if outcome.works else 'FAILED'}")
    for line in outcome.texts:
        if line.startswith("status "):
            say(f"  {line.removeprefix('status ')}")
    for name, (good, detail) in outcome.checks.items():
        say(f"  {'ok    ' if good else 'FAILED'} {name}{': ' + detail if detail else ''}")
    for name, value in outcome.figures.items():
        say(f"  {name} {value:g}")


def record(outcomes: list[Outcome]) -> None:
    """Claim the kernels that were tried."""
    kernels = [
        {
            "kernel": one.kernel,
            "release": one.text("release"),
            "in_band": one.in_band,
            "keeps_programs": "--cleanup" in one.text("status kernel"),
        }
        for one in outcomes
    ]
    claimed = {"tested": datetime.now(UTC).date().isoformat(), "kernels": kernels}
    SUPPORTED.write_text(json.dumps(claimed, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="folder of built programs and downloads")
    parser.add_argument("--report", type=Path, required=True, help="report.json to write; consoles beside it")
    parser.add_argument("--kernels", default=f"6.1,6.12,{NEWEST}", help="releases, comma separated")
    parser.add_argument("--rate-mbit", type=int, default=20)
    parser.add_argument("--delay-ms", type=int, default=50, help="one way")
    parser.add_argument("--loss", type=float, default=0.02, help="each way, as a share of 1")
    parser.add_argument("--seconds", type=int, default=10, help="of each transfer of the comparison")
    parser.add_argument("--rounds", type=int, default=3, help="of the comparison, whose figures are medians")
    parser.add_argument("--record", action="store_true", help="claim these kernels if all work: supported.json")
    return parser.parse_args()


def run(options: argparse.Namespace) -> list[Outcome]:
    """Every kernel, one after the other."""
    path = EmulatedPath(options.rate_mbit, options.delay_ms, options.loss, options.seconds, options.rounds)
    folder = options.build / "kernels"
    source = PackageSource(folder)
    source.update()
    kernels = chosen(source.kernels(), re.split(r"[,\s]+", options.kernels.strip()))
    outcomes = []
    report: dict[str, Any] = {"figures": [], "reasons": {}}
    for kernel in kernels:
        say(f"{kernel.release}: package {kernel.package_version}")
        unpacked = source.unpack(kernel)
        image = folder / f"{kernel.release}.cpio.gz"
        make_image(unpacked, [options.build / "dataplane" / "chart-agent"], image)
        outcome = understand(
            kernel.release, boot(unpacked, image, path.command_line(), options.report.parent / f"{kernel.release}.log")
        )
        print_outcome(outcome)
        outcomes.append(outcome)
        report["figures"] += figures_of(outcome, path)
        report["reasons"].update(
            {f"{name}/kernel={kernel.release}": detail for name, (good, detail) in outcome.checks.items() if not good}
        )
        replace_figures(options.report, "make kernel-test", lambda name: "/kernel=" in name, report)
    return outcomes


def main() -> int:
    """Exit status 0 when everything works on every kernel."""
    options = arguments()
    try:
        outcomes = run(options)
    except (PackageError, ImageError) as error:
        say(str(error))
        return 2
    good = all(one.works for one in outcomes)
    if good and options.record:
        record(outcomes)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
