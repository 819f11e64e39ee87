"""Small parts of HTTP that several routes use: entity tags, pages."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Header, Query, Response

from chart.common.problems import ProblemError

_ETAG = re.compile(r'^\s*"?(\d{1,19})"?\s*$')
T = TypeVar("T")

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=64,
        description="Change only if the resource still has this entity tag; `*`: only if it exists.",
        examples=['"3"'],
    ),
]
IfNoneMatch = Annotated[
    str | None,
    Header(alias="If-None-Match", max_length=64, description="Answer 304 when the resource still has this tag."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=128,
        pattern=r"^[\x21-\x7e]+$",
        description="Repeating a request with the same key within 24 h returns the first response.",
        examples=["01KAJ3Z0Q3D5X6W5K3T4Z8Y7VN"],
    ),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="Most items on the page.")]
Cursor = Annotated[
    str | None,
    Query(
        min_length=1, max_length=512, pattern=r"^[A-Za-z0-9_=.:-]+$", description="`next_cursor` of the page before."
    ),
]


def tag(response: Response, revision: int) -> None:
    """Set the entity tag of the answer."""
    response.headers["ETag"] = f'"{revision}"'


def expected_revision(if_match: str | None, current: int | None) -> int:
    """The revision that a change is conditional on; 0: none.

    ``current`` is the stored revision, None when there is nothing; looked up only for ``If-Match: *``.
    """
    if if_match is None:
        return 0
    if if_match.strip() == "*":
        if current is None:
            raise precondition_failed("There is nothing to change yet.")
        return current
    match = _ETAG.match(if_match)
    if match is None:
        raise ProblemError(
            422,
            "Invalid request",
            'If-Match: must be one entity tag such as "3".',
            field="If-Match",
            kind="invalid-value",
        )
    # Revision 0 is never stored, and on the wire it would mean "whatever it is".
    if not 0 < int(match[1]) < 2**63:
        raise precondition_failed("The resource has another revision.")
    return int(match[1])


def precondition_failed(detail: str) -> ProblemError:
    """412: the resource is not in the state that the request is conditional on."""
    return ProblemError(
        412,
        "Precondition failed",
        detail,
        field="If-Match",
        suggestions=["Read the resource again and repeat the change with its ETag."],
        kind="revision-conflict",
    )


def not_modified(if_none_match: str | None, revision: int) -> bool:
    """Whether the client has this revision already."""
    return if_none_match is not None and f'"{revision}"' in if_none_match.replace("W/", "").split(", ")


def page(items: Sequence[T], key: Callable[[T], str], limit: int, cursor: str | None) -> tuple[list[T], str | None]:
    """One page of items sorted by key; the cursor is the last key of the page before, so inserts and deletes between
    two pages make nothing appear twice or get lost."""
    after = decode_cursor(cursor) if cursor is not None else None
    left = [item for item in sorted(items, key=key) if after is None or key(item) > after]
    shown = left[:limit]
    more = len(left) > len(shown)
    return shown, encode_cursor(key(shown[-1])) if more and shown else None


def encode_cursor(key: str) -> str:
    """A key as a cursor."""
    return base64.urlsafe_b64encode(key.encode()).decode()


def decode_cursor(cursor: str) -> str:
    """The key in a cursor; raises a 422 problem when it is not one of ours."""
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except ValueError:
        raise bad_cursor() from None


def bad_cursor() -> ProblemError:
    """422: not a cursor that a page gave."""
    return ProblemError(
        422,
        "Invalid request",
        "cursor: must be the next_cursor of the previous page.",
        field="cursor",
        suggestions=["Leave it out to start at the first page."],
        kind="invalid-value",
    )
