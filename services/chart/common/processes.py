"""Programs that a program starts, and their end."""

from __future__ import annotations

import subprocess
from typing import Any

END_LIMIT_S = 10.0


def end_process(process: subprocess.Popen[Any], limit_s: float = END_LIMIT_S) -> None:
    """Ends a program in order, or after a while without its consent. One that has ended already is only waited for."""
    process.terminate()
    try:
        process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
