"""Running the original pathChirp, pathrate and Spruce programs: what they print, and the programs around them.

The programs are not part of CHART; who has them puts them on the PATH or names their folder. Parsing is pure. The
formats are those of pathChirp 2.3 (.instbw files), pathrate 2.4 (-N files, its report), Spruce 0.3 (standard error).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from chart.sensors.program import Option, Parameters, SensorError

MEGA = 1e6
STOP_S = 2.0
BACK_OFF_S = (0.5, 30.0)
OUTPUT_MAX_BYTES = 1 << 20

PROGRAM_OPTIONS = (
    Option("programs", "", "FOLDER", "where the original programs are (the PATH)", command_line_only=True),
    Option("far-end", False, None, "keep the far end's program running instead", command_line_only=True),
)

_INSTBW = re.compile(r"^\s*(\d+\.\d+)\s+(\d+(?:\.\d+)?)\s*$")
_PATHRATE_FIELD = re.compile(r"PATHRATE\.CAP([LH])=(\d+(?:\.\d+)?)\s*([kMG]bps)")
_PATHRATE_FINAL = re.compile(
    r"Final capacity estimate\s*:\s*(\d+(?:\.\d+)?)\s*([kMG]bps)\s+to\s+(\d+(?:\.\d+)?)\s*([kMG]bps)"
)
_PATHRATE_BOUND = re.compile(r"lower bound", re.IGNORECASE)
# Its sender misspells the words before; "Kbps" is what both ends have in common.
_SPRUCE = re.compile(r"bandwidth[^:\n]*:\s*(\d+)\s*Kbps", re.IGNORECASE)
_UNITS = {"kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9}


@dataclass(frozen=True)
class CapacityRange:
    """What pathrate answers."""

    low_bps: float
    high_bps: float
    lower_bound: bool


def parse_instbw(text: str) -> list[tuple[float, float]]:
    """Times (s since the epoch) and estimates (bit/s) of a .instbw file; a line cut short at the end is passed over.

    Raises:
        SensorError: a line that is something else.
    """
    found = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        match = _INSTBW.match(line)
        if match:
            found.append((float(match[1]), float(match[2]) * MEGA))
        elif line.strip() and number < len(lines):
            raise SensorError("other", f"line {number} of pathChirp's file is no time and rate: {line:.60}")
    return found


def parse_pathrate(text: str) -> CapacityRange:
    """The interval in pathrate's -N file or in its report.

    Raises:
        SensorError: there is none.
    """
    fields = {match[1]: float(match[2]) * _UNITS[match[3]] for match in _PATHRATE_FIELD.finditer(text)}
    bound = _PATHRATE_BOUND.search(text) is not None
    if set(fields) == {"L", "H"}:
        return CapacityRange(fields["L"], fields["H"], bound)
    final = _PATHRATE_FINAL.search(text)
    if final is None:
        last = text.strip().splitlines()[-1:] or ["nothing"]
        raise SensorError("other", f"pathrate gives no capacity; its last words are: {last[0]:.120}")
    return CapacityRange(float(final[1]) * _UNITS[final[2]], float(final[3]) * _UNITS[final[4]], bound)


def parse_spruce(text: str) -> float:
    """Available bandwidth (bit/s) in what Spruce's sender or receiver prints.

    Raises:
        SensorError: there is none.
    """
    match = _SPRUCE.search(text)
    if match is None:
        last = text.strip().splitlines()[-1:] or ["nothing"]
        raise SensorError("other", f"Spruce gives no bandwidth; its last words are: {last[0]:.120}")
    return float(match[1]) * 1e3


def smoothed(estimates: Sequence[tuple[float, float]]) -> float:
    """Mean of the estimates (bit/s). Raises SensorError when there are none."""
    if not estimates:
        raise SensorError("unreachable", "pathChirp wrote no estimate: does its sender run at the destination?")
    return statistics.fmean(rate for _, rate in estimates)


def check_destination(parameters: Parameters) -> None:
    """An IP address: names would go to the programs' command lines. Raises SensorError."""
    if parameters["far_end"]:
        return
    try:
        ip_address(parameters["destination"])
    except ValueError:
        words = f"{parameters['destination']!r} is no IP address, such as 10.1.0.2"
        raise SensorError("usage", f"destination: {words}") from None


def find_program(name: str, folder: str) -> str:
    """Path of an original program. Raises SensorError (usage) when it is not installed."""
    found = shutil.which(name, path=folder or None)
    if found is None:
        where = folder or "the PATH"
        raise SensorError("usage", f"{name} is not in {where}: install the original program or give --programs")
    return found


def read_estimates(folder: Path) -> list[tuple[float, float]] | None:
    """The estimates of the .instbw file in a folder; None without one. Raises SensorError."""
    files = sorted(folder.glob("*.instbw"))
    return parse_instbw(files[-1].read_text(errors="replace")) if files else None


def read_report(path: Path) -> str:
    """The text of a file that a program may have written."""
    return path.read_text(errors="replace") if path.exists() else ""


async def run_program(command: Sequence[str], folder: Path, limit_s: float) -> tuple[int, str]:
    """Run a program in a folder and return its status and what it printed on either stream.

    Raises:
        SensorError: it did not end in time.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C"},
    )
    assert process.stdout is not None
    printed = bytearray()
    try:
        async with asyncio.timeout(limit_s):
            while part := await process.stdout.read(4096):
                printed += part
                # The last words count.
                del printed[:-OUTPUT_MAX_BYTES]
            status = await process.wait()
    except TimeoutError:
        raise SensorError("unreachable", f"{Path(command[0]).name} did not end within {limit_s:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
    return status, printed.decode(errors="replace")


async def keep_far_end(command: Sequence[str]) -> None:
    """Keep the far end's program running; it is started again when it ends, ever later when it ends at once."""
    back_off_s = BACK_OFF_S[0]
    loop = asyncio.get_running_loop()
    while True:
        started_s = loop.time()
        with tempfile.TemporaryDirectory(prefix="chart-original-") as folder:
            process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdin=asyncio.subprocess.DEVNULL)
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.terminate()
        short = loop.time() - started_s < BACK_OFF_S[1]
        back_off_s = min(2 * back_off_s, BACK_OFF_S[1]) if short else BACK_OFF_S[0]
        await asyncio.sleep(back_off_s)
