"""The built dashboard at `/`: its files, and its page for every path that the dashboard routes itself."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from chart.common.problems import ProblemError

# Paths of the interface: unknown ones below them are errors, never the dashboard's page.
API_PREFIXES = ("v1", "auth", "dev-issuer", "healthz", "readyz", "metrics", "openapi.json")


class Dashboard:
    """What the router falls back to when no route matches."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a file or the page; raises a 404 for everything else."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(404)
        path = scope["path"].lstrip("/")
        if path.split("/", 1)[0].split(":", 1)[0] in API_PREFIXES:
            raise HTTPException(404)
        takes_gzip = "gzip" in Headers(scope=scope).get("accept-encoding", "")
        await self._answer(path, takes_gzip=takes_gzip)(scope, receive, send)

    def _answer(self, path: str, *, takes_gzip: bool) -> Response:
        file = self._file(path)
        if file is not None and path:
            # The build puts a hash of the content into the names below assets/.
            hashed = path.startswith("assets/")
            cache = "public, max-age=31536000, immutable" if hashed else "public, max-age=300"
            if file.name != "index.html":
                return _served(file, {"Cache-Control": cache}, takes_gzip=takes_gzip)
        elif path.startswith("assets/") or "." in path.rsplit("/", 1)[-1]:
            raise HTTPException(404)
        page = self._folder / "index.html"
        if not page.is_file():
            raise ProblemError(
                404, "Not found", "The dashboard is not built.", suggestions=["Run make setup.", "REST is at /v1."]
            )
        return FileResponse(page, headers={"Cache-Control": "no-cache"})

    def _file(self, path: str) -> Path | None:
        """The file of this path inside the folder; None when there is none, or it is outside."""
        try:
            candidate = (self._folder / path).resolve()
            inside = candidate.is_relative_to(self._folder) and candidate.is_file()
        except (ValueError, OSError):
            return None
        return candidate if inside else None


def _served(file: Path, headers: dict[str, str], *, takes_gzip: bool) -> Response:
    """The file, or what the build compressed beside it."""
    compressed = file.with_name(f"{file.name}.gz")
    if not takes_gzip or not compressed.is_file():
        return FileResponse(file, headers=headers)
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return FileResponse(
        compressed, headers={**headers, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}, media_type=kind
    )
