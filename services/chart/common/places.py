"""Where files of the repository stand: interface definitions and migrations.

The distribution is installed from the checkout (editable) or into an image that sets the environment variables.
"""

from __future__ import annotations

import os
from pathlib import Path


def repository_root() -> Path:
    """The checkout that this package was installed from."""
    return Path(__file__).resolve().parents[3]


def topics_file() -> Path:
    """The catalogue of streams: ``CHART_TOPICS_FILE`` or proto/chart/v1/topics.yaml."""
    named = os.environ.get("CHART_TOPICS_FILE")
    return Path(named) if named else repository_root() / "proto" / "chart" / "v1" / "topics.yaml"


def migrations_dir() -> Path:
    """The Alembic environment: ``CHART_MIGRATIONS_DIR`` or migrations/."""
    named = os.environ.get("CHART_MIGRATIONS_DIR")
    return Path(named) if named else repository_root() / "migrations"
