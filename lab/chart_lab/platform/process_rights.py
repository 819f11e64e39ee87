"""What the kernel says that a process may do (proc_pid_status(5), capabilities(7))."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

# Of linux/capability.h.
CAPABILITY_BITS = {"NET_ADMIN": 12, "SYS_ADMIN": 21, "PERFMON": 38, "BPF": 39}


@dataclass(frozen=True)
class Rights:
    """What the kernel says that a process may do: its users, and masks of capabilities."""

    users: frozenset[int]
    permitted: int
    effective: int
    bounding: int

    @classmethod
    def of(cls, pid: int) -> Rights | None:
        """Of a process; None when it has ended."""
        try:
            return cls.parse(Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
        except (FileNotFoundError, ProcessLookupError):
            return None

    @classmethod
    def parse(cls, status: str) -> Rights:
        """From the text of /proc/PID/status."""
        lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        users = frozenset(int(word) for word in lines["Uid"].split())
        return cls(users, *(int(lines[f"Cap{name}"], 16) for name in ("Prm", "Eff", "Bnd")))

    def beyond(self, capabilities: Collection[str]) -> str:
        """How these are not exactly some capabilities, and without a way to more; empty when they are."""
        mask = sum(1 << CAPABILITY_BITS[name] for name in capabilities)
        if (self.permitted, self.effective, self.bounding) == (mask,) * 3:
            return ""
        return f"has {self.permitted:#x}, uses {self.effective:#x} and may get {self.bounding:#x} instead of {mask:#x}"

    def beyond_a_user(self) -> str:
        """How these are more than those of an ordinary user; empty when they are not."""
        if 0 in self.users:
            return "runs as root"
        return f"has capabilities {self.permitted:#x}" if self.permitted else ""
