"""host: processor, memory and processes of this machine (The CHART System, section 6)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

import psutil

from chart.sensors.program import Option, Parameters, Result, Sensor, SensorError, main

# Beyond the two readings.
SLACK_MS = 500


def declare(parameters: Parameters) -> tuple[int, int]:
    """Nothing is sent."""
    return 0, int(parameters["duration_ms"]) + SLACK_MS


def check(parameters: Parameters) -> None:
    """All values are possible."""
    del parameters


def _processes(name: str) -> tuple[int, int]:
    """How many processes there are of a name, and their resident bytes."""
    count = resident = 0
    for process in psutil.process_iter(["name"]):
        if process.info["name"] != name:
            continue
        # One that ended meanwhile does not count.
        with contextlib.suppress(psutil.Error):
            resident += process.memory_info().rss
            count += 1
    return count, resident


async def run(parameters: Parameters) -> Result:
    """Two readings of the processor's times, one of everything else."""
    before = psutil.cpu_times()
    await asyncio.sleep(parameters["duration_ms"] / 1000)
    after = psutil.cpu_times()
    spent = {name: getattr(after, name) - getattr(before, name) for name in after._fields}
    # Guests are part of user already.
    total = sum(seconds for name, seconds in spent.items() if not name.startswith("guest"))
    if total <= 0:
        raise SensorError("other", "the processor's clock did not move: ask for a longer --duration-ms")
    idle = spent["idle"] + spent.get("iowait", 0.0)
    memory = psutil.virtual_memory()
    swap = psutil.swap_memory()
    result = Result(
        metrics=[
            ("cpu_busy_ratio", min(1.0, max(0.0, 1 - idle / total)), "ratio"),
            ("load_1m", os.getloadavg()[0], "count"),
            ("cpus", float(psutil.cpu_count() or 1), "count"),
            ("memory_total_bytes", float(memory.total), "bytes"),
            ("memory_available_bytes", float(memory.available), "bytes"),
            ("memory_used_ratio", memory.percent / 100, "ratio"),
            ("swap_used_bytes", float(swap.used), "bytes"),
            ("processes", float(len(psutil.pids())), "count"),
        ]
    )
    if parameters["process"]:
        count, resident = _processes(parameters["process"])
        result.metrics.append(("named_processes", float(count), "count"))
        result.metrics.append(("named_processes_resident_bytes", float(resident), "bytes"))
    return result


SENSOR = Sensor(
    name="host",
    synopsis="[options] | --serve [options]",
    description="Tell how busy this machine is: processor, memory, processes. The destination plays no part.",
    options=(
        Option("duration-ms", 200.0, "MS", "between the two readings of the processor (200)", 20, 60000),
        Option("process", "", "NAME", "also count the processes of this name and their memory"),
    ),
    declare=declare,
    check=check,
    run=run,
)

if __name__ == "__main__":
    sys.exit(main(SENSOR))
