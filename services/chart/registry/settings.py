"""Settings of the registry."""

from __future__ import annotations

from chart.common.settings import BaseServiceSettings


class RegistrySettings(BaseServiceSettings):
    """The registry's defaults of the embedded platform."""

    database_url: str = "postgresql://registry@127.0.0.1:15432/chart"
    grpc_listen: str = "127.0.0.1:18101"
    http_listen: str = "127.0.0.1:18201"
