"""Settings of reservations."""

from __future__ import annotations

from pydantic import Field

from chart.common.settings import BaseServiceSettings


class ReservationsSettings(BaseServiceSettings):
    """What reservations may be told, prefix ``CHART_``."""

    grpc_listen: str = "127.0.0.1:18103"
    http_listen: str = "127.0.0.1:18203"
    # How long an agent may apply a grant without a renewal; renewed at half of it.
    # Agents take no grant that is valid for longer than five minutes.
    grant_validity_us: int = Field(default=60_000_000, ge=1_000_000, le=240_000_000)
    # After this without a confirmation of every node a request counts as FAILED (and keeps trying).
    confirmation_limit_us: int = Field(default=10_000_000, ge=100_000)
    idempotency_us: int = Field(default=24 * 3600 * 1_000_000, ge=1_000_000)
    # An ended request stays in chart.rate-request.v1 for this long.
    remember_ended_us: int = Field(default=24 * 3600 * 1_000_000, ge=1_000_000)
    # Consumer group that shares grant statuses among replicas.
    reservations_group: str = "reservations"
    # What maximum-rate requests may be promised together with guaranteed ones, in multiples of what may be committed.
    oversubscription: float = Field(default=4.0, ge=1, le=1000)
    # A held request that is not committed by then is given up.
    hold_limit_us: int = Field(default=900 * 1_000_000, ge=1_000_000)
    # Callbacks to plain HTTP and to addresses that are not public; never in production unless this is set.
    callbacks_anywhere: bool | None = None
    # Leases for in-band requests: share of what a link may commit while nobody draws, and at most; length, lifetime of
    # one in-band commitment without a renewal (elements keep an idle guaranteed rate for 30 s, to the end of half a
    # second), greatest error of a clock.
    lease_idle_share: float = Field(default=0.1, ge=0, le=1)
    lease_greatest_share: float = Field(default=0.5, ge=0, le=1)
    lease_length_us: int = Field(default=20_000_000, ge=4_000_000)
    lease_lifetime_us: int = Field(default=30_500_000, ge=100_000)
    clock_error_us: int = Field(default=1_000_000, ge=0)
