"""The far end of the sensors in a lab: its key and its responder."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chart.common.processes import end_process
from chart_lab.errors import LabError
from chart_lab.network import Lab
from chart_lab.programs import program

KEY_LIMIT_S = 10.0


def make_key(folder: Path) -> Path:
    """A new key file that sensors and responder share."""
    key_file = folder / "sensor.key"
    command = [str(program("sensors/sensor-responder")), "--generate-key", str(key_file)]
    subprocess.run(command, check=True, timeout=KEY_LIMIT_S, capture_output=True)
    return key_file


@contextmanager
def responder(lab: Lab, node: str, key_file: Path) -> Iterator[None]:
    """A responder in a node, serving when the block begins. Raises LabError when it does not start."""
    command = [str(program("sensors/sensor-responder")), "--key-file", str(key_file)]
    process = lab.popen(node, command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        if "serving" not in (told := process.stderr.readline()):
            raise LabError(f"the responder of {node}: {told.strip() or 'ended'}")
        yield
    finally:
        end_process(process)
        process.stderr.close()
