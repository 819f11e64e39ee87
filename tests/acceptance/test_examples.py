"""The examples of the Python client do what they say, on a running network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from chart_lab.network import Lab
from chart_lab.platform.laboratory import fetch
from chart_lab.platform.stack import Platform
from support.laboratory import operator_token
from support.waiting import until

pytestmark = pytest.mark.lab

EXAMPLES = Path(__file__).parents[2] / "clients/python/examples"
MEGA = 1_000_000


@pytest.fixture
def environment(platform: Platform, lab: Lab) -> dict[str, str]:
    """What an example needs to find its gateway; the network is up."""
    return {
        "PATH": os.environ["PATH"],
        "CHART_SERVER": platform.settings.gateway_url,
        "CHART_TOKEN": operator_token(platform),
    }


def example(name: str, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """An example that ends by itself."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)


def test_a_rate_for_a_command(environment: dict[str, str], rest: httpx.Client) -> None:
    asked = ["--from", "alpha", "--to", "delta", "--port", "5401"]
    done = example("rate_for_a_command.py", environment, *asked, "--rate", "5e6", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3, done.stderr
    identity = done.stdout.partition(":")[0]
    assert fetch(rest, f"/v1/rate-requests/{identity}")["lifecycle"] == "RELEASED"
    refused = example("rate_for_a_command.py", environment, *asked, "--rate", "500e6", "--", "true")
    assert refused.returncode == 1
    assert "bit/s fit now" in refused.stderr


def test_the_next_window(environment: dict[str, str], rest: httpx.Client) -> None:
    body = {"source": "alpha", "destination": "delta", "protocol": "tcp", "service": "guaranteed"}
    first = rest.post(
        "/v1/rate-requests", json={**body, "guaranteed_bps": 60 * MEGA, "destination_port": 5402, "duration_s": 3600}
    )
    assert first.status_code == 201, first.text
    asked = ["--from", "alpha", "--to", "delta", "--rate", "40e6", "--hours", "1"]
    try:
        late = example("next_window.py", environment, *asked, "--within-hours", "0.5")
        assert late.returncode == 1
        assert "too late" in late.stderr
        done = example("next_window.py", environment, *asked)
        assert done.returncode == 0, done.stderr
        found = fetch(rest, f"/v1/rate-requests/{done.stdout.partition(':')[0]}")
        assert found["lifecycle"] == "RESERVED"
        assert found["start"] >= first.json()["end"]
    finally:
        rest.post(f"/v1/rate-requests/{first.json()['id']}/release").raise_for_status()
    rest.post(f"/v1/rate-requests/{found['id']}/release").raise_for_status()


def test_notices_are_received_and_strangers_are_not_believed(environment: dict[str, str], rest: httpx.Client) -> None:
    command = [sys.executable, str(EXAMPLES / "receive_notices.py"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as receiver:
        try:
            assert receiver.stdout is not None
            url = f"http://127.0.0.1:{receiver.stdout.readline().split()[-1]}/"
            assert httpx.post(url, json={"type": "rate-request.granted"}).status_code == 401
            body: dict[str, Any] = {"source": "alpha", "destination": "delta", "guaranteed_bps": MEGA}
            request = rest.post("/v1/rate-requests", json={**body, "callback_url": url}).json()
            rest.post(f"/v1/rate-requests/{request['id']}/release").raise_for_status()
            told: list[str] = []
            while not told or told[-1] != "rate-request.released":
                notice = json.loads(receiver.stdout.readline())
                assert notice["data"]["id"] == request["id"]
                told.append(notice["type"])
            assert told[0] == "rate-request.granted"
            path = f"/v1/rate-requests/{request['id']}"
            until(lambda: fetch(rest, path)["callback_state"] == "DELIVERED", "every notice is delivered")
        finally:
            receiver.kill()
