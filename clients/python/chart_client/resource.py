"""What the groups of calls of a client have in common."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

from chart_client.models import Model
from chart_client.transport import Transport

M = TypeVar("M", bound=Model)


def time_of(moment: datetime | None) -> str | None:
    """A moment as the gateway reads it. Raises ValueError when it has no time zone."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        msg = "a time needs a zone: datetime.now(UTC), or .astimezone()"
        raise ValueError(msg)
    return moment.isoformat()


def path_of(*parts: str) -> str:
    """Path of a resource; ids are quoted."""
    return "/".join(["/v1", *(quote(part, safe=":") for part in parts)])


class Resource:
    """Base of the groups of calls."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _all(self, model: type[M], path: str, **query: Any) -> Iterator[M]:
        """Every item of every page."""
        cursor = None
        while True:
            page = self._transport.request("GET", path, query={**query, "cursor": cursor}).json()
            for item in page["items"]:
                yield model.model_validate(item)
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def _one(self, model: type[M], method: str, path: str, body: object = None, **headers: str) -> M:
        answer = self._transport.request(
            method, path, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        return model.model_validate(answer.json())
