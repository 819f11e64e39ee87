"""A guest under QEMU's software emulation: which kernel, how it boots, and what it says on its console."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from kernel_packages import Kernel, PackageError, kernel_image

NEWEST = "newest"
BOOT_LIMIT_S = 900
OPTIONAL = "in_band"
# One processor: with more the emulator runs into breakpoints that the kernel patches its own code with.
EMULATION = ("-accel", "tcg", "-cpu", "max", "-smp", "1")
# The guest's clock counts its instructions, 1 ns each, and is put forward when it waits: what else this machine does
# changes nothing that the guest can measure.
VIRTUAL_TIME = ("-icount", "shift=0,sleep=off,align=off", "-rtc", "clock=vm")


@dataclass
class Outcome:
    """What one kernel's guest said."""

    kernel: str
    checks: dict[str, tuple[bool, str]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    finished: bool = False

    @property
    def works(self) -> bool:
        """Everything but in-band signalling, which a kernel may lack if it says so."""
        needed = [good for name, (good, _) in self.checks.items() if name != OPTIONAL]
        return self.finished and bool(needed) and all(needed)

    @property
    def in_band(self) -> bool:
        """Rates were agreed in band."""
        return self.checks.get(OPTIONAL, (False, ""))[0]

    def text(self, name: str) -> str:
        """What the guest said of a name; empty: nothing."""
        return next((line.partition(" ")[2] for line in self.texts if line.startswith(f"{name} ")), "")


def say(text: str) -> None:
    """Progress."""
    sys.stderr.write(f"kernels: {text}\n")
    sys.stderr.flush()


def chosen(known: list[Kernel], wanted: list[str]) -> list[Kernel]:
    """The kernels that were asked for, each once; ``newest`` is the last one known."""
    if not known:
        raise PackageError("the package source has no kernels")
    found: dict[Kernel, None] = {}
    for name in wanted:
        matching = [known[-1]] if name == NEWEST else [one for one in known if one.release == name]
        if not matching:
            raise PackageError(f"no kernel {name}: there are {', '.join(one.release for one in known)}")
        found[matching[0]] = None
    return list(found)


def boot(
    folder: Path,
    image: Path,
    parameters: list[str],
    log: Path,
    machine: tuple[str, ...] = (),
    limit_s: float = BOOT_LIMIT_S,
) -> str:
    """Run a guest to its end; what it said on its console. ``machine`` are more options of QEMU."""
    kernel = kernel_image(folder)
    words = ["console=ttyS0", "rdinit=/init", "panic=-1", "quiet", "mitigations=off", *parameters]
    command = [
        *("qemu-system-x86_64", *EMULATION, *machine),
        *("-m", "1024", "-nographic", "-no-reboot", "-nic", "none", "-monitor", "none"),
        *("-kernel", str(kernel), "-initrd", str(image), "-append", " ".join(words)),
    ]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as out:
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            say(f"the guest did not end within {limit_s:.0f} s: {log}")
    return log.read_text(errors="replace")


def understand(kernel: str, console: str) -> Outcome:
    """The guest's lines that begin with "@@"."""
    outcome = Outcome(kernel)
    for kind, rest in re.findall(r"^@@ (check|figure|sample|text|end) ?(.*?)\s*$", console, re.M):
        if kind == "check":
            name, good, detail = [*rest.split(" ", 2), ""][:3]
            outcome.checks[name] = (good == "ok", detail)
        elif kind == "figure":
            name, value = rest.split(" ")
            outcome.figures[name] = float(value)
        elif kind == "sample":
            name, value = rest.split(" ")
            outcome.samples.setdefault(name, []).append(float(value))
        elif kind == "text":
            outcome.texts.append(rest)
        else:
            outcome.finished = True
    outcome.figures.update({name: median(values) for name, values in outcome.samples.items()})
    return outcome
