"""Settings of the inference service; environment with prefix ``CHART_``."""

from __future__ import annotations

from pydantic import Field

from chart.common.settings import BaseServiceSettings


class InferenceSettings(BaseServiceSettings):
    """Periods, bounds, and whether it may have pairs measured."""

    grpc_listen: str = "127.0.0.1:18105"
    http_listen: str = "127.0.0.1:18205"
    # Between two refreshes of the estimates; a metric without news is left alone.
    inference_period_s: float = Field(default=30.0, gt=0, le=3600)
    # A measurement older than this is forgotten: the pair is estimated again.
    inference_measurement_age_s: float = Field(default=86_400.0, gt=0)
    # An estimate goes out again when it moved by this, relative, or its interval by five times this.
    inference_change: float = Field(default=0.02, ge=0, le=1)
    # Bounds of what is held in memory: nodes, and metrics of each pair.
    inference_nodes: int = Field(default=1000, ge=2, le=5000)
    inference_metrics: int = Field(default=16, ge=1, le=64)
    # Share of the pairs that shall be measured in the end; decides how many landmarks there are.
    inference_fraction: float = Field(default=0.13, gt=0, le=1)
    # Pairs of each metric that meshes are told to measure, within their budgets; 0: none.
    inference_wanted_pairs: int = Field(default=100, ge=0, le=1000)
    # Pairs that are asked for in each period, as short-lived sensing configurations at the registry; 0: none.
    inference_active_pairs: int = Field(default=0, ge=0, le=200)
    # How long a pair that was asked for has time to be measured before it may be asked for again.
    inference_active_valid_s: float = Field(default=120.0, ge=10, le=3600)
    inference_active_priority: int = Field(default=10, ge=0, le=255)
