"""Talking to a running link emulator over its control socket (lab/linkem/control.h)."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, cast

from chart_lab.errors import LabError

TIMEOUT_S = 5.0


def command(path: Path, **members: object) -> dict[str, Any]:
    """Sends one command and returns its answer.

    Raises LabError when the emulator refuses it or does not answer within 5 s.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT_S)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps(members).encode() + b"\n")
            received = bytearray()
            while not received.endswith(b"\n"):
                part = connection.recv(65536)
                if not part:
                    raise LabError(f"the link emulator at {path} hung up")
                received += part
        except OSError as error:
            raise LabError(f"the link emulator at {path} does not answer: {error}") from error
    answer = cast("dict[str, Any]", json.loads(received))
    if not answer.pop("ok"):
        raise LabError(str(answer.get("error")))
    return answer
