"""Reading server-sent events (WHATWG HTML, section 9.2.6). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from chart_client.models import Event


def parse(lines: Iterable[str]) -> Iterator[Event]:
    """Events of a stream of lines; comments and fields of other kinds are skipped. An unfinished event is dropped."""
    name, identity = "message", ""
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield Event(id=identity, name=name, data=json.loads("\n".join(data)))
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            identity = value
