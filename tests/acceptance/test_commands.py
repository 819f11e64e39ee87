"""`chart run` and `chart explain` on a node of a running network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from chart_lab.network import Lab
from chart_lab.platform.laboratory import fetch
from chart_lab.platform.stack import Platform
from chart_lab.programs import program
from support.laboratory import established
from support.waiting import poll, until

pytestmark = pytest.mark.lab

PORT = 5301
RATE_BPS = 10_000_000
CHART = str(Path(sys.executable).parent / "chart")


def explain(platform: Platform, request_id: str) -> dict[str, Any]:
    """What `chart explain --json` says."""
    command = [CHART, "explain", request_id, "--json", "--server", platform.settings.gateway_url]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_command_runs_at_its_rate_and_is_explained(platform: Platform, rest: httpx.Client, lab: Lab) -> None:
    bulk = str(program("lab/bulk"))
    receiver = lab.popen("delta", [bulk, "receive", "--listen", f"0.0.0.0:{PORT}"], stderr=subprocess.DEVNULL)
    # Sends until it is told on its standard input that enough was seen.
    transfer = ["sh", "-c", f"{bulk} send --connect {lab.address('delta')}:{PORT} --duration-s 240 & read _; kill $!"]
    run = [CHART, "run", "--rate", "10M", "--to", "delta", "--service", "guaranteed", "--wait", "60", "--json"]
    command = lab.popen(
        "alpha",
        [*run, "--server", platform.settings.gateway_url, "--", *transfer],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert command.stderr is not None
        told = command.stderr.readline()
        assert told.startswith("{"), told + command.communicate(timeout=60)[1]
        until(lambda: "trinity" in established(lab, "alpha", f"dport = :{PORT}"), "the flow is under its rate")
        (request,) = fetch(rest, "/v1/rate-requests", lifecycle="ACTIVE")["items"]
        assert request["id"] == json.loads(told)["id"]
        assert request["request"]["cgroup_id"]

        # The first reports still cover the flow's start.
        def at_its_rate(said: dict[str, Any]) -> object:
            measured_bps, rate_bps = said["measured_bps"], said["kernel_rate_bps"]
            return said["cause"] is None and measured_bps and rate_bps and measured_bps >= 0.9 * rate_bps

        found = poll(lambda: explain(platform, request["id"]), at_its_rate, limit_s=60)
        assert at_its_rate(found), found
        assert found["granted_bps"] == RATE_BPS
        assert found["kernel_rate_bps"] >= RATE_BPS, "the guaranteed rate, and what is left over on top"
        assert found["bottleneck"] == "bravo:to-charlie"
        _, err = command.communicate(input="\n", timeout=120)
        assert command.returncode == 0, err
    finally:
        for process in (command, receiver):
            process.kill()
            process.communicate()
    after = fetch(rest, f"/v1/rate-requests/{request['id']}")
    assert after["lifecycle"] == "RELEASED"
    assert "released" in explain(platform, request["id"])["cause"]


def test_the_status_of_the_command_is_passed_on(platform: Platform, lab: Lab) -> None:
    command = [CHART, "run", "--rate", "1M", "--to", "delta", "--server", platform.settings.gateway_url]
    assert lab.exec("alpha", [*command, "--", "sh", "-c", "exit 7"], check=False).returncode == 7
    refused = lab.exec("alpha", [*command, "--", "no-such-program"], check=False)
    assert refused.returncode == 1
    assert "cannot be started" in refused.stderr
