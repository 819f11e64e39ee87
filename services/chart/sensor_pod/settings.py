"""Settings of a sensor pod; environment with prefix ``CHART_``."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field

from chart.common.places import repository_root
from chart.common.settings import BaseServiceSettings


class PodSettings(BaseServiceSettings):
    """What a pod may be told. ``node`` is required; ``state_dir`` holds the pod's file."""

    grpc_listen: str = "0.0.0.0:18110"
    http_listen: str = "0.0.0.0:18210"
    # Certificate and key of this node without their endings .pem and .key, as the agent keeps them in its state
    # directory ("/run/chart/node"); or a one-time token by which the pod gets a certificate of the node for itself.
    # With neither, and without a service account token, the pod signs no record, and its gRPC interface is plain.
    node_identity: Path | None = None
    enrolment_token_file: Path | None = None
    # Who may call the pod, as their certificates name them; with an identity only.
    grpc_callers: tuple[str, ...] = ("service/gateway",)
    # Programs that speak the --serve protocol; each one's file name is the name of the sensor.
    sensors_dir: Path = Field(
        default_factory=lambda: Path(os.environ.get("CHART_BUILD_DIR") or repository_root() / "build") / "sensors"
    )
    # Keys shared with the responders of the other nodes; empty: a key of its own in the state directory.
    sensor_key_file: Path | None = None
    responder_listen: str = "0.0.0.0:18300"
    responder: bool = True
    # Part of each link's capacity that probing may take.
    probe_share: float = Field(default=0.01, gt=0, le=0.5)
    # For links that the topology does not give a capacity: low, for it may be an access line.
    default_capacity_bps: int = Field(default=1_000_000, ge=64_000)
    # Limits per application as JSON: {"*": {"configurations": 1000, "priority": 10, "period_ms": 1000,
    # "one_shots_per_minute": 60, "probe_share": 0.5}}; "*" is for whoever is not named.
    application_limits: str = ""
    retention_days: float = Field(default=7.0, gt=0)
    retention_rows: int = Field(default=500_000, ge=1000)
