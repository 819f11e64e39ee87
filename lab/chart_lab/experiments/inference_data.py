"""Files of network matrices for `inference-accuracy`, plain or gzip; see lab/data/README.md for the formats."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chart.common.places import repository_root
from chart.inference.observations import Floats
from chart_lab.errors import LabError

GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Throughput:
    """Directed throughput between nodes, and the round-trip time beside it; NaN where the file says nothing."""

    nodes: list[str]
    throughput_bps: Floats
    rtt_ms: Floats


def data_folder() -> Path:
    """Where the matrices of the repository stand."""
    return repository_root() / "lab" / "data"


def _lines(path: Path) -> list[str]:
    try:
        content = path.read_bytes()
        if content.startswith(GZIP_MAGIC):
            content = gzip.decompress(content)
        text = content.decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise LabError(f"{path} cannot be read: {error}") from error
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _number(text: str, where: str) -> float:
    text = text.strip()
    try:
        value = float(text) if text else float("nan")
    except ValueError:
        raise LabError(f"{where}: {text!r} is not a number") from None
    return value if value >= 0 and np.isfinite(value) else float("nan")


def read_rtt(path: Path) -> tuple[list[str], Floats]:
    """(names, milliseconds) of a square matrix, one row per line, separated by tabs, commas or blanks.

    Raises:
        LabError: no file, no numbers or not square.
    """
    rows = []
    for number, line in enumerate(_lines(path), 1):
        cells = line.split("\t") if "\t" in line else line.split(",") if "," in line else line.split()
        rows.append([_number(cell, f"{path}, row {number}") for cell in cells])
    if len(rows) < 3 or any(len(row) != len(rows) for row in rows):
        raise LabError(f"{path} is not a square matrix of at least 3 nodes")
    return [f"n{number}" for number in range(len(rows))], np.array(rows)


def read_throughput(path: Path) -> Throughput:
    """Lines of source, destination, bit/s, RTT in ms, with commas.

    Raises:
        LabError: no file, or a line that is not of that form.
    """
    rows: list[tuple[str, str, float, float]] = []
    for number, cells in enumerate(csv.reader(_lines(path)), 1):
        if number == 1 and len(cells) >= 3 and not cells[2].strip().replace(".", "", 1).isdigit():
            continue  # the names of the columns
        if len(cells) < 3:
            raise LabError(f"{path}, line {number}: source, destination, bit/s, RTT in ms are expected")
        where = f"{path}, line {number}"
        rtt_ms = _number(cells[3], where) if len(cells) > 3 else float("nan")
        rows.append((cells[0].strip(), cells[1].strip(), _number(cells[2], where), rtt_ms))
    nodes = sorted({name for row in rows for name in row[:2]})
    if len(nodes) < 3:
        raise LabError(f"{path} names fewer than 3 nodes")
    index = {name: number for number, name in enumerate(nodes)}
    throughput_bps = np.full((len(nodes), len(nodes)), np.nan)
    rtt_ms_of = np.full_like(throughput_bps, np.nan)
    for source, destination, rate, rtt in rows:
        throughput_bps[index[source], index[destination]] = rate
        rtt_ms_of[index[source], index[destination]] = rtt
    return Throughput(nodes, throughput_bps, rtt_ms_of)
