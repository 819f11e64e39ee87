"""pathrate-original: capacity by the original pathrate (Dovrolis, Ramanathan, Moore, 2004)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from chart.sensors import original
from chart.sensors.program import Option, Parameters, Result, Sensor, main

# Both phases at their longest: 1000 pairs, then 500 trains of 50 full packets.
PROBE_BYTES_MAX = 40_000_000
QUICK_BYTES_MAX = 5_000_000


def declare(parameters: Parameters) -> tuple[int, int]:
    """The longest phases, or the preliminary one alone."""
    size_bytes = QUICK_BYTES_MAX if parameters["quick"] else PROBE_BYTES_MAX
    return size_bytes, int(parameters["limit_s"] * 1000)


async def run(parameters: Parameters) -> Result:
    """Run the receiver against the sender at the destination."""
    if parameters["far_end"]:
        await original.keep_far_end([original.find_program("pathrate_snd", parameters["programs"])])
    command = [original.find_program("pathrate_rcv", parameters["programs"]), "-s", parameters["destination"]]
    command += ["-Q"] if parameters["quick"] else []
    with tempfile.TemporaryDirectory(prefix="chart-original-") as folder:
        report = Path(folder) / "report"
        _, printed = await original.run_program([*command, "-N", str(report)], Path(folder), parameters["limit_s"])
        told = original.read_report(report)
    found = original.parse_pathrate(f"{told}\n{printed}")
    return Result(
        metrics=[("reverse_capacity_bps", (found.low_bps + found.high_bps) / 2, "bps")],
        probe_bytes=declare(parameters)[0],
        details={
            "low_bps": found.low_bps,
            "high_bps": found.high_bps,
            "lower_bound": found.lower_bound,
            "direction": "from the destination",
        },
    )


SENSOR = Sensor(
    name="pathrate-original",
    synopsis="--destination ADDRESS [options] | --serve [options] | --far-end",
    description="Measure capacity with the original pathrate, from the destination to here.",
    options=(
        Option("quick", False, None, "end after the preliminary phase"),
        Option("limit-s", 2400.0, "S", "it may take up to half an hour (2400)", 10, 7200),
        *original.PROGRAM_OPTIONS,
    ),
    declare=declare,
    check=original.check_destination,
    run=run,
    runs_at_once=1,
)

if __name__ == "__main__":
    sys.exit(main(SENSOR))
