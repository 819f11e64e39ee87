"""Clients of a broker that asks who they are."""

from __future__ import annotations

from typing import Any

from chart_lab.platform.settings import PlatformSettings
from support.authority import Place

ANSWER_S = 8.0

Settings = dict[str, Any]


def as_node(settings: PlatformSettings, place: Place, files: tuple[str, str], **more: str | int) -> Settings:
    """librdkafka's settings of who has these files (certificate, key)."""
    certificate, key = files
    return {
        "bootstrap.servers": settings.kafka_bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(place.ca_file),
        "ssl.certificate.location": certificate,
        "ssl.key.location": key,
        "message.timeout.ms": round(1000 * ANSWER_S),
        "log_level": 0,
        **more,
    }
