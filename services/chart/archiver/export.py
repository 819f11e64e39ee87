"""Snapshots as files: CSV and Parquet, written piece by piece by pyarrow."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import csv, parquet

CSV, PARQUET = "csv", "parquet"

SCHEMA = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("destination", pa.string(), nullable=False),
        pa.field("metric", pa.string(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("method", pa.string(), nullable=False),
        pa.field("interval_low", pa.float64()),
        pa.field("interval_high", pa.float64()),
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)


class _Sink(io.RawIOBase):
    """Collects what is written; knows how much that was in all, for the offsets of Parquet."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any, /) -> int:
        """Keep a copy."""
        part = bytes(data)
        self._parts.append(part)
        self._position += len(part)
        return len(part)

    def tell(self) -> int:
        """Bytes written since the start."""
        return self._position

    def take(self) -> bytes:
        """What was written since it was asked last."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data


class Export:
    """A file in the making; `write` and `close` return the bytes that are ready."""

    def __init__(self, kind: str) -> None:
        self._sink = _Sink()
        self._writer: Any
        if kind == CSV:
            self._writer = csv.CSVWriter(self._sink, SCHEMA)
        else:
            self._writer = parquet.ParquetWriter(self._sink, SCHEMA, compression="zstd")

    def write(self, rows: Sequence[dict[str, Any]]) -> bytes:
        """Add rows as the repository gives them."""
        columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
        self._writer.write_table(pa.table(columns, schema=SCHEMA))
        return self._sink.take()

    def close(self) -> bytes:
        """End the file."""
        self._writer.close()
        return self._sink.take()
