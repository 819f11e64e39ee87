"""Files that the archiver makes while they are sent: CSV or Parquet."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Protocol

from fastapi.responses import StreamingResponse

from chart.gateway.backends import problems
from chart.gateway.errors import responses
from chart.gateway.schemas.sensing import FileFormat

_MEDIA: dict[FileFormat, str] = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}

FILE_RESPONSES: dict[int | str, dict[str, Any]] = {
    **responses(404),
    200: {
        "description": "The file.",
        "content": {
            "text/csv": {"schema": {"type": "string"}},
            "application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}},
        },
    },
}


class Piece(Protocol):
    """A message of a download: the first has the file's name, the others its data."""

    file_name: str
    data: bytes


async def file_of(pieces: AsyncIterable[Piece], file_format: FileFormat) -> StreamingResponse:
    """The file that the archiver sends in pieces. Raises the archiver's refusal, which comes before the first piece."""
    parts = aiter(pieces)
    with problems("archiver"):
        first = await anext(parts)

    async def data() -> AsyncIterator[bytes]:
        async for part in parts:
            yield part.data

    headers = {"Content-Disposition": f'attachment; filename="{first.file_name}"'}
    return StreamingResponse(data(), media_type=_MEDIA[file_format], headers=headers)
