"""Settings of the service tunnels."""

from __future__ import annotations

from pydantic import Field

from chart.common.settings import BaseServiceSettings


class TunnelsSettings(BaseServiceSettings):
    """What the service may be told, prefix ``CHART_``."""

    database_url: str = "postgresql://tunnels@127.0.0.1:15432/chart"
    grpc_listen: str = "127.0.0.1:18106"
    http_listen: str = "127.0.0.1:18206"
    # How long a tunnel keeps the m of a command without another one; at least three of its periods in any case.
    tunnel_lease_us: int = Field(default=10_000_000, ge=1_000_000, le=600_000_000)
    # How often what operators stated is read again, so that a change through another replica counts here too.
    tunnel_settings_period_s: float = Field(default=1.0, gt=0, le=60)
    # Periods and steps that are kept of each tunnel, and tunnels in all.
    tunnel_history_periods: int = Field(default=300, ge=60, le=10_000)
    tunnel_history_steps: int = Field(default=20, ge=1, le=1000)
    tunnels_maximum: int = Field(default=1000, ge=1, le=100_000)
    # A tunnel that reported nothing for this long is shown as silent.
    tunnel_silence_us: int = Field(default=10_000_000, ge=1_000_000)
    # Consumer group that shares the tunnels' reports among replicas.
    tunnels_group: str = "tunnels"
