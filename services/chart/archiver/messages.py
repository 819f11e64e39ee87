"""Rows of the tables as messages: what has the same name is the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from google.protobuf.message import Message

# Columns whose field is called otherwise.
_COLUMN = {"source_node": "source", "destination_node": "destination"}

Made = TypeVar("Made", bound=Message)


def message_of(kind: type[Made], row: Mapping[str, Any]) -> Made:
    """A message of the columns that its fields are named after; columns that are NULL leave their fields unset.

    Raises:
        KeyError: a field that must be there has no column. An optional one may have none.
    """
    made = kind()
    for field in kind.DESCRIPTOR.fields:
        column = _COLUMN.get(field.name, field.name)
        if field.has_presence and column not in row:
            continue
        value = row[column]
        if value is not None:
            setattr(made, field.name, value)
    return made
