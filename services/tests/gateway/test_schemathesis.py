"""Requests made from the OpenAPI document, against a whole platform: every answer is one that the document describes,
and none is the platform's fault.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support import laboratory

pytestmark = [pytest.mark.contract, pytest.mark.slow, pytest.mark.timeout(600)]

# What a schema cannot say is refused with 422 or 412: rules between fields, unknown nodes, cursors, revisions.
UNTOLD = "positive_data_acceptance"
# Streams of events do not end by themselves; their parts have tests of their own.
ENDLESS = ("/v1/events", "/v1/pair-groups/{id}/events")
# A body that is too large is refused as such before it is read.
CONFIGURATION = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 413, 415, 422, 428]
"""
EXAMPLES = 6


def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    with laboratory.running_platform(tmp_path) as platform:
        url = platform.settings.gateway_url
        (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
        command = [
            *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/openapi.json"),
            *("--header", f"Authorization: Bearer {laboratory.operator_token(platform)}"),
            *(part for path in ENDLESS for part in ("--exclude-path", path)),
            *("--checks", "all", "--exclude-checks", UNTOLD),
            "--continue-on-failure",
            *("--max-examples", str(EXAMPLES), "--seed", "7", "--workers", "2", "--no-color"),
            *("--request-timeout", "20", "--warnings", "off"),
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=540, cwd=tmp_path)
    report = done.stdout[-20_000:] + done.stderr[-2_000:]
    assert done.returncode == 0, report
