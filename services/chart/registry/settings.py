"""Settings of the registry."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chart.common.settings import BaseServiceSettings


class RegistrySettings(BaseServiceSettings):
    """The registry's defaults of the embedded platform."""

    database_url: str = "postgresql://registry@127.0.0.1:15432/chart"
    grpc_listen: str = "127.0.0.1:18101"
    http_listen: str = "127.0.0.1:18201"
    # Mode of the policy "default" that is made on a database without one. An installation that is tried out or is a
    # laboratory may begin to enforce at once; what operators say afterwards holds over every restart.
    registry_first_enforcement: Literal["off", "observe", "enforce"] = "observe"
    # Whether the mesh "all" that is made on a database without one measures from the start.
    registry_first_mesh: bool = True
    # A sensing configuration whose validity ended stays to be read for so long, then it is deleted.
    registry_keep_over_s: float = Field(default=3600.0, gt=0)
