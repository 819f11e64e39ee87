"""Settings of the archiver; environment with prefix ``CHART_``."""

from __future__ import annotations

from pydantic import Field

from chart.common.settings import BaseServiceSettings


class ArchiverSettings(BaseServiceSettings):
    """Batches and retention."""

    grpc_listen: str = "127.0.0.1:18104"
    http_listen: str = "127.0.0.1:18204"
    archive_batch_rows: int = Field(default=5000, ge=1, le=20_000)
    archive_batch_wait_s: float = Field(default=0.25, gt=0, le=10)
    # Between two looks at roll-ups, changes and alert rules that are due.
    rollup_period_s: float = Field(default=5.0, gt=0, le=60)
    change_period_s: float = Field(default=60.0, gt=0, le=3600)
    alert_period_s: float = Field(default=5.0, gt=0, le=60)
    # How far back levels of a path are compared.
    change_hours: float = Field(default=4.0, gt=0, le=48)
    # Paths that are judged for changes in one go.
    change_paths: int = Field(default=2000, ge=1)
    # Between two snapshots of all pairs (0: none by themselves), and how many are kept.
    snapshot_period_s: float = Field(default=4 * 3600.0, ge=0)
    snapshots_kept: int = Field(default=42, ge=1, le=10_000)
    # An older result is no part of a snapshot; the estimate is.
    snapshot_age_s: float = Field(default=86_400.0, gt=0)
    # Days that each table keeps.
    rollup_minute_retention_days: int = Field(default=30, ge=1)
    rollup_hour_retention_days: int = Field(default=730, ge=1)
    measurement_retention_days: int = Field(default=90, ge=1)
    link_retention_days: int = Field(default=14, ge=1)
    # Minutes of link loads.
    link_minute_retention_days: int = Field(default=365, ge=1)
    grant_retention_days: int = Field(default=90, ge=1)
    audit_retention_days: int = Field(default=365, ge=1)
    # What happened to the overlay's links and paths; by which table packets went at the beginning stays.
    overlay_retention_days: int = Field(default=90, ge=1)

    def retention_days(self) -> dict[str, int]:
        """Days by table."""
        return {
            "measurement": self.measurement_retention_days,
            "estimate": self.link_retention_days,
            "link_load": self.link_retention_days,
            "link_minute": self.link_minute_retention_days,
            "link_rate": self.link_retention_days,
            "grant_status": self.grant_retention_days,
            "flow_grant": self.grant_retention_days,
            "audit": self.audit_retention_days,
            "overlay_event": self.overlay_retention_days,
            "rollup_minute": self.rollup_minute_retention_days,
            "rollup_hour": self.rollup_hour_retention_days,
        }
