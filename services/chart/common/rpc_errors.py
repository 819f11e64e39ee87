"""Refusals as exceptions, on both sides of a gRPC call."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from chart.common.records import StreamUnavailable
from chart.v1 import reservations_pb2

REFUSAL_METADATA = "chart-refusal-bin"

_unavailable: list[type[Exception]] = [StreamUnavailable]


def means_unavailable(*errors: type[Exception]) -> None:
    """Errors of a store that cannot be reached: calls that fail with one answer UNAVAILABLE, and may be repeated."""
    _unavailable.extend(errors)


def is_unavailable(error: BaseException) -> bool:
    """Whether a call failed because a stream or a store cannot be reached."""
    return isinstance(error, tuple(_unavailable))


class RefusalError(Exception):
    """A service says no, why, and what would be accepted."""

    def __init__(
        self,
        refusal: reservations_pb2.Refusal,
        status: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION,
    ) -> None:
        super().__init__(f"{refusal.code}: {refusal.detail}")
        self.refusal = refusal
        self.status = status


def invalid(
    field: str,
    detail: str,
    *suggestions: str,
    code: str = "invalid-value",
    floor_bps: int | None = None,
    ceiling_bps: int | None = None,
) -> RefusalError:
    """A value that is not acceptable; names the field at fault and, where they are known, the least and the greatest
    value that would be accepted.
    """
    refusal = reservations_pb2.Refusal(
        code=code, detail=detail, field=field, suggestions=suggestions, floor_bps=floor_bps, ceiling_bps=ceiling_bps
    )
    return RefusalError(refusal, grpc.StatusCode.INVALID_ARGUMENT)


def not_found(what: str, identity: str, known: Sequence[str] = ()) -> RefusalError:
    """The object does not exist; suggests a few that do."""
    refusal = reservations_pb2.Refusal(
        code="not-found", detail=f"there is no {what} {identity!r}", field="id", suggestions=list(known)[:5]
    )
    return RefusalError(refusal, grpc.StatusCode.NOT_FOUND)


def conflict(detail: str) -> RefusalError:
    """It was changed meanwhile."""
    refusal = reservations_pb2.Refusal(code="revision-conflict", detail=detail, field="expected_revision")
    return RefusalError(refusal, grpc.StatusCode.ABORTED)
