"""What the hypervisor takes of the processors, as the kernel counts it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Steal:
    """CPU seconds that the hypervisor took since boot."""

    at_s: float
    steal_s: float

    @classmethod
    def now(cls) -> Steal:
        """Reads the clock of the machine."""
        return cls(time.monotonic(), steal_seconds())

    def cores_since(self, before: Steal) -> float:
        """Cores taken on average since an earlier reading."""
        return (self.steal_s - before.steal_s) / max(self.at_s - before.at_s, 1e-9)


def steal_seconds() -> float:
    """CPU seconds taken since boot."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")
