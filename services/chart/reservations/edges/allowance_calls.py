"""Allowances of callers over gRPC: what the gateway's replicas draw before they answer."""

from __future__ import annotations

from typing import Any

from chart.common.rpc_errors import invalid
from chart.reservations.store.allowances import Allowances
from chart.v1 import reservations_pb2 as pb

LONGEST_NAME = 255
MOST = 1e9


class AllowanceCalls:
    """Part of the servicer."""

    def __init__(self, allowances: Allowances) -> None:
        self._allowances = allowances

    async def DrawAllowance(  # noqa: N802 - named by the interface
        self, request: pb.DrawAllowanceRequest, context: Any
    ) -> pb.DrawAllowanceResponse:
        """Draw from a caller's bucket."""
        if not 0 < len(request.name) <= LONGEST_NAME or "\x00" in request.name:
            raise invalid("name", f"1 to {LONGEST_NAME} characters, no NUL")
        for field in ("need", "want", "per_s", "burst"):
            if not 0 < getattr(request, field) <= MOST:
                raise invalid(field, f"above 0, at most {MOST:g}")
        if request.need > request.burst:
            raise invalid("need", "at most the burst: more is never there")
        drawn = await self._allowances.draw(
            request.name, need=request.need, want=request.want, per_s=request.per_s, burst=request.burst
        )
        return pb.DrawAllowanceResponse(given=drawn.given, left=drawn.left, wait_s=drawn.wait_s)
