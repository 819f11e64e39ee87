"""Where the C programs of the project lie: CHART_BUILD_DIR, or build/ beside the sources."""

import os
from pathlib import Path

from chart_lab.errors import LabError

REPOSITORY = Path(__file__).resolve().parents[2]


def build_directory() -> Path:
    """The folder with the build outputs."""
    return Path(os.environ.get("CHART_BUILD_DIR", REPOSITORY / "build"))


def state_directory() -> Path:
    """The folder for state that outlives a command (CHART_STATE_DIR, default var/ beside the sources)."""
    return Path(os.environ.get("CHART_STATE_DIR", REPOSITORY / "var")).resolve()


def program(name: str) -> Path:
    """Path of a build output such as `lab/linkem`.

    Raises LabError when it has not been built.
    """
    path = build_directory() / name
    if not path.exists():
        raise LabError(f"{path} is not built: run `make setup`")
    return path
