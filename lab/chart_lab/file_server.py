"""The HTTP server of experiments with files: one folder, served as the platform's own services are (uvicorn).

CHART_FILES=FOLDER uvicorn --factory chart_lab.file_server:application
"""

from __future__ import annotations

import os

from starlette.staticfiles import StaticFiles

FOLDER = "CHART_FILES"


def application() -> StaticFiles:
    """The folder that the environment names. Raises KeyError when it names none, RuntimeError when there is none."""
    return StaticFiles(directory=os.environ[FOLDER])
