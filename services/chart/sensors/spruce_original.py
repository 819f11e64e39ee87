"""spruce-original: available bandwidth by the original Spruce (Strauss, Katabi, Kaashoek, IMC 2003)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from chart.sensors import original
from chart.sensors.program import Option, Parameters, Result, Sensor, SensorError, main

SLACK_S = 15.0
PAIR_BYTES = 2 * 1500
GAP_MIN_S = 0.1
SHARE = 0.05


def duration_s(parameters: Parameters) -> float:
    """Pairs come every 100 ms on average, or so that they take 5 % of the capacity."""
    by_share_s = PAIR_BYTES * 8 / (SHARE * parameters["capacity_bps"])
    return float(parameters["pairs"] * max(GAP_MIN_S, by_share_s))


def declare(parameters: Parameters) -> tuple[int, int]:
    """All pairs; the gaps are chance, so the time is twice the mean at most."""
    return parameters["pairs"] * PAIR_BYTES, int((2 * duration_s(parameters) + SLACK_S) * 1000)


def check(parameters: Parameters) -> None:
    """A destination, and the capacity that Spruce must know."""
    original.check_destination(parameters)
    if not parameters["far_end"] and parameters["capacity_bps"] <= 0:
        raise SensorError("usage", "--capacity-bps is missing: the capacity of the path, which pathrate measures")


async def run(parameters: Parameters) -> Result:
    """Run the sender against the receiver at the destination."""
    if parameters["far_end"]:
        await original.keep_far_end([original.find_program("spruce_rcv", parameters["programs"])])
    command = [original.find_program("spruce_snd", parameters["programs"]), "-h", parameters["destination"]]
    command += ["-c", f"{parameters['capacity_bps'] / 1e3:.0f}k", "-n", str(parameters["pairs"])]
    with tempfile.TemporaryDirectory(prefix="chart-original-") as folder:
        limit_s = 2 * duration_s(parameters) + SLACK_S
        _, printed = await original.run_program(command, Path(folder), limit_s)
    return Result(
        metrics=[("available_bandwidth_bps", original.parse_spruce(printed), "bps")],
        probes_sent=2 * parameters["pairs"],
        probe_bytes=parameters["pairs"] * PAIR_BYTES,
    )


SENSOR = Sensor(
    name="spruce-original",
    synopsis="--destination ADDRESS --capacity-bps BPS [options] | --serve [options] | --far-end",
    description="Measure available bandwidth with the original Spruce.",
    options=(
        Option("capacity-bps", 0.0, "BPS", "capacity of the bottleneck, at most 1e9", 0, 1e9),
        Option("pairs", 100, "N", "pairs in the run (100)", 10, 5000),
        *original.PROGRAM_OPTIONS,
    ),
    declare=declare,
    check=check,
    run=run,
    runs_at_once=1,
)

if __name__ == "__main__":
    sys.exit(main(SENSOR))
