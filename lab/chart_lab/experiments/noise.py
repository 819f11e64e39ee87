"""Whether the machine was quiet enough during a measurement for its figures to mean something.

Two witnesses: CPU time that went to neither the lab nor this process (and what the hypervisor stole), and the link
emulator's own account of how late its departures were.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from chart_lab.errors import LateError, NoisyMachineError
from chart_lab.network import Lab
from chart_lab.steal import steal_seconds

Measured = TypeVar("Measured")

# Cores that others may use on average; interrupt work of the lab's own packets is billed to whoever runs.
OTHER_LIMIT_CORES = 0.35
STEAL_LIMIT_CORES = 0.1
LATENESS_P99_LIMIT_US = 1000.0
# A few are no sign of an emulator that cannot keep up: the kernel also counts what a device refuses while it goes down.
DEVICE_DROPS_LIMIT_PACKETS = 5


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds since boot."""

    at_s: float
    busy_s: float
    steal_s: float
    own_s: float


@dataclass(frozen=True)
class Noise:
    """What disturbed a measurement."""

    other_cores: float
    steal_cores: float
    lateness_p99_us: float
    device_dropped_packets: int

    def complaint(self) -> str | None:
        """Why the measurement cannot be judged; None when it can."""
        if self.device_dropped_packets > DEVICE_DROPS_LIMIT_PACKETS:
            return f"the emulator was too slow: {self.device_dropped_packets} packets never reached it"
        if self.steal_cores > STEAL_LIMIT_CORES:
            return f"the hypervisor took {self.steal_cores:.2f} cores (limit {STEAL_LIMIT_CORES})"
        if self.other_cores > OTHER_LIMIT_CORES:
            return f"other processes used {self.other_cores:.2f} cores (limit {OTHER_LIMIT_CORES})"
        if self.lateness_p99_us > LATENESS_P99_LIMIT_US:
            return f"departures were {self.lateness_p99_us:.0f} us late at p99 (limit {LATENESS_P99_LIMIT_US:.0f})"
        return None


def _cgroup_seconds(cgroup: Path) -> float:
    for line in (cgroup / "cpu.stat").read_text().splitlines():
        key, value = line.split()
        if key == "usage_usec":
            return int(value) / 1e6
    return 0.0


def _busy_seconds() -> float:
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, *_ = fields
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def cpu_times(lab: Lab, more_s: float = 0.0) -> CpuTimes:
    """Reads the clocks of the machine, of the lab's processes and of this one; more_s: what the experiment's own
    processes outside the lab have used.
    """
    own = resource.getrusage(resource.RUSAGE_SELF)
    return CpuTimes(
        at_s=time.monotonic(),
        busy_s=_busy_seconds(),
        steal_s=steal_seconds(),
        own_s=_cgroup_seconds(lab.cgroup) + own.ru_utime + own.ru_stime + more_s,
    )


def judge(before: CpuTimes, after: CpuTimes, ground_truth: dict[str, Any]) -> Noise:
    """What disturbed the time between two readings."""
    elapsed_s = max(after.at_s - before.at_s, 1e-9)
    other_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    directions = [ground_truth["forward"], ground_truth["reverse"]]
    return Noise(
        other_cores=max(0.0, other_s / elapsed_s),
        steal_cores=(after.steal_s - before.steal_s) / elapsed_s,
        lateness_p99_us=max(direction["lateness"]["p99_us"] for direction in directions),
        device_dropped_packets=sum(direction["device_dropped_packets"] for direction in directions),
    )


def await_quiet(limit_s: float = 60.0) -> bool:
    """Waits until all processes together leave the machine alone for a second; False when they never do.

    For between measurements, when no lab is up.
    """
    deadline = time.monotonic() + limit_s
    while True:
        before, started_s = _busy_seconds(), time.monotonic()
        time.sleep(1.0)
        if (_busy_seconds() - before) / (time.monotonic() - started_s) < OTHER_LIMIT_CORES:
            return True
        if time.monotonic() > deadline:
            return False


def undisturbed(
    measure: Callable[[], Measured],
    complaint: Callable[[Measured], str | None],
    what: str,
    *,
    attempts: int,
    judge_noise: bool,
) -> Measured:
    """A measurement that the machine's noise did not spoil, or the first one if noise is not to be judged. One whose
    schedule was not kept is none, judged or not.

    Raises NoisyMachineError after so many spoilt ones, with ``what`` and the last complaint.
    """
    told: str | None = None
    for _ in range(attempts):
        try:
            measured = measure()
        except LateError as error:
            told = str(error)
        else:
            told = complaint(measured)
            if told is None or not judge_noise:
                return measured
        await_quiet()
    raise NoisyMachineError(f"{what}, {attempts} attempts: {told}")
