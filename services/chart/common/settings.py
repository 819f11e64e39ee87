"""Settings of a service: the environment with prefix ``CHART_``, then the `.env` file at the root of the checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from chart.common.places import repository_root


class BaseServiceSettings(BaseSettings):
    """What every service may be told. A service derives from it and sets its own defaults (listen addresses, role)."""

    model_config = SettingsConfigDict(env_prefix="CHART_", env_file=str(repository_root() / ".env"), extra="ignore")

    # "HOST:PORT[,...]" of the brokers; "local:" keeps the streams in this process (unit tests).
    kafka_bootstrap: str = "127.0.0.1:19092"
    database_url: str = ""
    state_dir: Path = Field(default_factory=lambda: repository_root() / "var")
    environment: Literal["development", "production"] = "development"
    log_level: str = "info"
    # host:port of an OTLP gRPC collector; empty: spans are written to <state_dir>/traces/<service>.jsonl.
    otlp_endpoint: str = ""
    # New traces a second that are recorded.
    traces_per_s: float = Field(default=50.0, ge=0)
    grpc_listen: str = "127.0.0.1:0"
    http_listen: str = "127.0.0.1:0"
    registry_target: str = "127.0.0.1:18101"
    reservations_target: str = "127.0.0.1:18103"
    archiver_target: str = "127.0.0.1:18104"
    inference_target: str = "127.0.0.1:18105"
    tunnels_target: str = "127.0.0.1:18106"
    # The authority's replicas: https://HOST:PORT[,https://HOST:PORT]; and whether services check records of nodes with
    # what it says (record_check.py): off, observe or require.
    authority_url: str = "https://127.0.0.1:18443"
    record_authentication: Literal["off", "observe", "require"] = "off"
    # The authority's own certificate; default: where a development authority puts it.
    authority_ca: Path | None = None
    # In a Kubernetes cluster: the projected service account token that this service gets its certificates with; none:
    # they are files that somebody else keeps.
    service_account_token_file: Path | None = None
    # Certificate and key of service/records without their endings; default: those a development authority keeps ready.
    record_identity: Path | None = None
    # Name of the node that this process serves (sensor pod).
    node: str = ""

    database_pool_size: int = Field(default=8, ge=2, le=100)
    # Less than the deadline of a call, so that the caller learns the reason.
    database_wait_s: float = Field(default=2.0, gt=0)
    database_statement_timeout_ms: int = Field(default=10_000, ge=100)
    kafka_delivery_timeout_ms: int = Field(default=10_000, ge=1000)
