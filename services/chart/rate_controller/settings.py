"""Settings of the rate controller, prefix ``CHART_``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from chart.common.kubernetes import ACCOUNT_FILES
from chart.common.settings import BaseServiceSettings


class RateControllerSettings(BaseServiceSettings):
    """What the controller may be told on top of what every service may."""

    kubernetes_url: str = Field(default="https://kubernetes.default.svc", pattern=r"^https?://\S+$")
    kubernetes_ca_file: Path = ACCOUNT_FILES / "ca.crt"
    kubernetes_token_file: Path = ACCOUNT_FILES / "token"
    # Of this cluster, for platforms that serve several: it stands in the tags of its requests.
    cluster_name: str = Field(default="kubernetes", pattern=r"^[A-Za-z0-9._/-]{1,63}$")
    gateway_url: str = Field(default="http://127.0.0.1:18080", pattern=r"^https?://\S+$")
    # Token of the audience of the gateway (CHART_KUBERNETES_AUDIENCE there), and who certifies it; none: the system's.
    gateway_token_file: Path = Path("/etc/chart/gateway/token")
    gateway_ca_file: Path | None = None
    gateway_timeout_s: float = Field(default=10.0, gt=0)
    # Requests are compared with what is asked when something changes, and so often beside that; while some of them are
    # on their way, more often.
    resync_s: float = Field(default=10.0, gt=0)
    settling_s: float = Field(default=0.5, gt=0)
    # What was refused is asked for again after the first, then twice as long each time, up to the last.
    retry_first_s: float = Field(default=5.0, gt=0)
    retry_last_s: float = Field(default=120.0, gt=0)
