"""Snapshots and history as files: CSV and Parquet, written piece by piece by pyarrow."""

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


_PATH = [
    pa.field("source", pa.string(), nullable=False),
    pa.field("destination", pa.string(), nullable=False),
    pa.field("metric", pa.string(), nullable=False),
    pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("unit", pa.string(), nullable=False),
]
_PROBES = [pa.field("probes_sent", pa.int64(), nullable=False), pa.field("probes_lost", pa.int64(), nullable=False)]
# Results of single runs; a run with an error has no value that counts.
MEASUREMENTS = pa.schema(
    [
        *_PATH,
        pa.field("value", pa.float64(), nullable=False),
        pa.field("sensor", pa.string(), nullable=False),
        *_PROBES,
        pa.field("error", pa.string(), nullable=False),
    ]
)
# Minutes or hours; without a good result there are no values.
ROLLUPS = pa.schema(
    [
        *_PATH,
        pa.field("count", pa.int64(), nullable=False),
        pa.field("failed", pa.int64(), nullable=False),
        *(pa.field(name, pa.float64()) for name in ("mean", "p50", "p95", "p99", "minimum", "maximum")),
        *_PROBES,
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

    def __init__(self, kind: str, schema: pa.Schema = SCHEMA) -> None:
        self._sink = _Sink()
        self._schema = schema
        self._writer: Any
        if kind == CSV:
            self._writer = csv.CSVWriter(self._sink, schema)
        else:
            self._writer = parquet.ParquetWriter(self._sink, schema, compression="zstd")

    def write(self, rows: Sequence[dict[str, Any]]) -> bytes:
        """Add rows as the repository gives them."""
        columns = {name: [row[name] for row in rows] for name in self._schema.names}
        self._writer.write_table(pa.table(columns, schema=self._schema))
        return self._sink.take()

    def close(self) -> bytes:
        """End the file."""
        self._writer.close()
        return self._sink.take()
