"""Rows as arrays, one per column: a statement writes any number of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chart.common.database import Connection


async def many(connection: Connection, statement: str, found: list[tuple[Any, ...]]) -> None:
    """Run a statement over arrays, one per column; nothing when there is no row."""
    if found:
        await connection.execute(statement, columns(found, len(found[0])))


def columns(found: list[tuple[Any, ...]], number: int) -> list[str]:
    """Rows as arrays, one per column."""
    return [array(column) for column in zip(*found, strict=True)] if found else ["{}"] * number


def array(column: Iterable[Any]) -> str:
    """Numbers, texts or bytes as a literal of PostgreSQL for an array of them.

    Several times quicker than converting each element, and of one type whatever the numbers are, so that the statement
    stays prepared.
    """
    values = column if isinstance(column, list | tuple) else list(column)
    kinds = set(map(type, values))
    if kinds == {int}:
        return "{" + ",".join(map(str, values)) + "}"
    if kinds == {bytes}:
        return '{"\\\\x' + '","\\\\x'.join(map(bytes.hex, values)) + '"}'
    if kinds == {str}:
        joined = '","'.join(values)
        # Nothing in them that would have to be escaped.
        if "\\" not in joined and joined.count('"') == 2 * (len(values) - 1):
            return '{"' + joined + '"}'
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bytes):
        return '"\\\\x' + value.hex() + '"'
    return str(value)
