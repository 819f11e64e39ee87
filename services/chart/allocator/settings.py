"""Settings of the allocator."""

from __future__ import annotations

from pydantic import Field

from chart.common.settings import BaseServiceSettings


class AllocatorSettings(BaseServiceSettings):
    """What the allocator may be told, prefix ``CHART_``."""

    grpc_listen: str = "127.0.0.1:18102"
    http_listen: str = "127.0.0.1:18202"
    # How long an agent may use a rate; a rate that does not change is sent again at half of it.
    link_rate_lease_us: int = Field(default=10_000_000, ge=1_000_000)
    # A node that sent no load for this long is forgotten: another replica has it, or its agent is away.
    node_silence_us: int = Field(default=3_000_000, ge=500_000)
    # Consumer group that shares the nodes' loads among replicas.
    allocator_group: str = "allocator"
