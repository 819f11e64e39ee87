"""`python -m chart.gateway.openapi > FILE` prints the OpenAPI document; nothing is started and nothing is read."""

from __future__ import annotations

import json
import sys

from chart.gateway.api import create_app
from chart.gateway.settings import GatewaySettings


def text() -> str:
    """The document as JSON; the same sources give the same bytes, whatever the environment says."""
    settings = GatewaySettings.model_construct(environment="development")
    return json.dumps(create_app(settings).openapi(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
