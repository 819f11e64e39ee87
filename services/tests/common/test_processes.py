"""A service's process: stops on signals with the right exit code, logs JSON lines, writes its spans."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import asyncio, sys
    import structlog
    from pathlib import Path
    from chart.common import runtime, telemetry
    from chart.common.settings import BaseServiceSettings

    async def fail():
        raise RuntimeError("the reason")

    async def hang():
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

    async def serve():
        try:
            with telemetry.span("work", part="one"):
                structlog.get_logger("x").info("started the work because the test says so", figure=42)
            print("ready", flush=True)
            {body}
        finally:
            structlog.get_logger("x").info("closed what was open")

    telemetry.setup("example", BaseServiceSettings(state_dir=Path(sys.argv[1])))
    sys.exit(runtime.run(serve(), stop_limit_s=1.0))
"""


def start(body: str, state: Path) -> subprocess.Popen[str]:
    program = textwrap.dedent(PROGRAM).replace("{body}", body)
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(state)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("CHART_")},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    process = start("await asyncio.Event().wait()", tmp_path)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert "closed what was open" in err
    lines = [json.loads(line) for line in err.splitlines()]
    (line,) = [line for line in lines if line["event"].startswith("started the work")]
    assert (line["service"], line["figure"], line["level"], line["logger"]) == ("example", 42, "info", "x")
    (span,) = [json.loads(text) for text in (tmp_path / "traces" / "example.jsonl").read_text().splitlines()]
    assert span["name"] == "work"
    assert span["trace_id"] == line["trace_id"]
    assert span["attributes"] == {"part": "one"}
    assert span["end_us"] >= span["start_us"] > 0


def test_a_failure_ends_it_with_status_1_and_the_reason(tmp_path: Path) -> None:
    process = start("raise RuntimeError('the reason')", tmp_path)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "closed what was open" in err
    assert "the reason" in err


def test_one_that_does_not_stop_is_ended(tmp_path: Path) -> None:
    process = start("await hang()", tmp_path)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 3
    assert "did not stop within the limit" in err
    assert "most recent call first" in err


def test_one_that_failed_and_does_not_close_is_ended(tmp_path: Path) -> None:
    """Nobody sends it a signal: a supervisor starts anew what has ended."""
    process = start("await runtime.run_together(hang(), fail())", tmp_path)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 3
    assert "the reason" in err
    assert "did not stop within the limit" in err


def test_one_that_failed_and_closes_in_time_ends_with_status_1(tmp_path: Path) -> None:
    process = start("await runtime.run_together(asyncio.sleep(30), fail())", tmp_path)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "closed what was open" in err
    assert "did not stop within the limit" not in err
