"""Snapshots as files: what is written in pieces reads as one."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet as pq
import pytest

from chart.archiver.export import CSV, PARQUET, SCHEMA, Export

AT = datetime(2026, 3, 1, 9, 30, 0, 250, UTC)


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "source": "alpha",
        "destination": f"n{number}",
        "metric": "rtt_us",
        "value": number + 0.5,
        "unit": "us",
        "method": "measured",
        "interval_low": None,
        "interval_high": None,
        "at": AT,
        **changes,
    }


PAGES = [
    [row(1), row(2, method="signature", interval_low=1.0, interval_high=4.0)],
    [row(number) for number in range(3, 5000)],
]


def written(kind: str, pages: list[list[dict[str, Any]]]) -> bytes:
    file = Export(kind)
    return b"".join([*(file.write(page) for page in pages), file.close()])


def test_parquet() -> None:
    table = pq.read_table(io.BytesIO(written(PARQUET, PAGES)))
    assert table.schema.equals(SCHEMA)
    assert table.to_pylist() == PAGES[0] + PAGES[1]


def test_csv() -> None:
    read = list(csv.DictReader(io.StringIO(written(CSV, PAGES).decode())))
    assert len(read) == 4999
    assert read[1] | {"value": "2.5", "interval_low": "1", "interval_high": "4"} == read[1]
    assert read[0]["interval_low"] == ""
    assert read[0]["at"].startswith("2026-03-01 09:30:00.000250")


@pytest.mark.parametrize("kind", [CSV, PARQUET])
def test_an_empty_snapshot_has_its_columns(kind: str) -> None:
    data = written(kind, [])
    if kind == PARQUET:
        assert pq.read_table(io.BytesIO(data)).num_rows == 0
    else:
        assert data == b"" or data.decode().replace('"', "").startswith("source,destination")
