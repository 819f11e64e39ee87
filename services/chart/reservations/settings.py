"""Settings of reservations."""

from __future__ import annotations

from pydantic import Field

from chart.common.settings import BaseServiceSettings


class ReservationsSettings(BaseServiceSettings):
    """What reservations may be told, prefix ``CHART_``."""

    grpc_listen: str = "127.0.0.1:18103"
    http_listen: str = "127.0.0.1:18203"
    # How long an agent may apply a grant without a renewal; renewed at half of it.
    grant_validity_us: int = Field(default=60_000_000, ge=1_000_000)
    # After this without a confirmation of every node a request counts as FAILED (and keeps trying).
    confirmation_limit_us: int = Field(default=10_000_000, ge=100_000)
    idempotency_us: int = Field(default=24 * 3600 * 1_000_000, ge=1_000_000)
    # An ended request stays in chart.rate-request.v1 for this long.
    remember_ended_us: int = Field(default=24 * 3600 * 1_000_000, ge=1_000_000)
    # Consumer group that shares grant statuses among replicas.
    reservations_group: str = "reservations"
