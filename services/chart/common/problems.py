"""Errors that a caller can act on, as problem documents (RFC 9457, `application/problem+json`).

Every refusal says why, which field is at fault, and what would be accepted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

MEDIA_TYPE = "application/problem+json"


class ProblemError(Exception):
    """An error with the status and words of its problem document.

    ``floor`` and ``ceiling`` bound what would be accepted, in the unit of ``field``; ``kind`` names the problem type
    and defaults to the title in kebab case.
    """

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        field: str | None = None,
        floor: float | None = None,
        ceiling: float | None = None,
        suggestions: Sequence[str] = (),
        kind: str | None = None,
    ) -> None:
        super().__init__(f"{title}: {detail}")
        self.status = status
        self.title = title
        self.detail = detail
        self.field = field
        self.floor = floor
        self.ceiling = ceiling
        self.suggestions = tuple(suggestions)
        self.kind = kind or re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")

    def document(self, instance: str = "") -> dict[str, Any]:
        """The problem document; ``instance`` is the path that was asked for."""
        document: dict[str, Any] = {
            "type": f"urn:chart:problem:{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
        }
        if self.field is not None:
            document["field"] = self.field
        if self.floor is not None:
            document["floor"] = self.floor
        if self.ceiling is not None:
            document["ceiling"] = self.ceiling
        if self.suggestions:
            document["suggestions"] = list(self.suggestions)
        return document
