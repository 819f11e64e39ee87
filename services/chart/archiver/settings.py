"""Settings of the archiver; environment with prefix ``CHART_``."""

from __future__ import annotations

from pydantic import Field

from chart.common.settings import BaseServiceSettings


class ArchiverSettings(BaseServiceSettings):
    """Batches and retention."""

    grpc_listen: str = "127.0.0.1:18104"
    http_listen: str = "127.0.0.1:18204"
    archive_batch_rows: int = Field(default=1000, ge=1, le=20_000)
    archive_batch_wait_s: float = Field(default=0.25, gt=0, le=10)
    # Days that each table keeps.
    measurement_retention_days: int = Field(default=90, ge=1)
    link_retention_days: int = Field(default=14, ge=1)
    grant_retention_days: int = Field(default=90, ge=1)
    audit_retention_days: int = Field(default=365, ge=1)

    def retention_days(self) -> dict[str, int]:
        """Days by table."""
        return {
            "measurement": self.measurement_retention_days,
            "estimate": self.link_retention_days,
            "link_load": self.link_retention_days,
            "link_rate": self.link_retention_days,
            "grant_status": self.grant_retention_days,
            "flow_grant": self.grant_retention_days,
            "audit": self.audit_retention_days,
        }
