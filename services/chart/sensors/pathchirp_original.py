"""pathchirp-original: available bandwidth by the original pathChirp (Ribeiro et al., PAM 2003)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from chart.sensors import original
from chart.sensors.program import Option, Parameters, Result, Sensor, SensorError, main

SLACK_S = 10.0


def declare(parameters: Parameters) -> tuple[int, int]:
    """The sender keeps to its average rate; twice as much when its range moves."""
    size_bytes = parameters["average_bps"] / 8 * parameters["duration_s"] * 2
    return int(size_bytes), int((parameters["duration_s"] + SLACK_S) * 1000)


async def run(parameters: Parameters) -> Result:
    """Run the receiver, which asks the sender at the destination for chirps."""
    if parameters["far_end"]:
        await original.keep_far_end([original.find_program("pathchirp_snd", parameters["programs"])])
    receiver = original.find_program("pathchirp_rcv", parameters["programs"])
    # Its flags want a blank before the value.
    command = [receiver, "-S", parameters["destination"], "-t", f"{parameters['duration_s']:g}"]
    command += ["-a", f"{parameters['average_bps'] / original.MEGA:g}"]
    with tempfile.TemporaryDirectory(prefix="chart-original-") as folder:
        _, printed = await original.run_program(command, Path(folder), parameters["duration_s"] + SLACK_S)
        estimates = original.read_estimates(Path(folder))
    if estimates is None:
        words = printed.strip().splitlines()[-1:] or ["nothing"]
        raise SensorError("unreachable", f"pathchirp_rcv wrote no estimates; its last words are: {words[0]:.120}")
    return Result(
        metrics=[("reverse_available_bandwidth_bps", original.smoothed(estimates), "bps")],
        probe_bytes=int(parameters["average_bps"] / 8 * parameters["duration_s"]),
        details={"estimates": len(estimates), "direction": "from the destination"},
    )


SENSOR = Sensor(
    name="pathchirp-original",
    synopsis="--destination ADDRESS [options] | --serve [options] | --far-end",
    description="Measure available bandwidth with the original pathChirp, from the destination to here.",
    options=(
        Option("duration-s", 20.0, "S", "of chirps; the first estimate comes after about 6 (20)", 8, 600),
        Option("average-bps", 300000.0, "BPS", "average rate of probing (300000)", 5000, 3e6),
        *original.PROGRAM_OPTIONS,
    ),
    declare=declare,
    check=original.check_destination,
    run=run,
    runs_at_once=1,
)

if __name__ == "__main__":
    sys.exit(main(SENSOR))
