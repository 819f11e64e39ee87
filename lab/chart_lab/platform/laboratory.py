"""The platform with a lab on it: brings up what is missing, and afterwards takes down exactly that."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from chart_lab import network
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.stack import Platform

Progress = Callable[[str], None]

READY_LIMIT_S = 60.0
ENFORCED_LIMIT_S = 10.0
# Tables of the command are not broken into more lines than they have rows.
OUTPUT_COLUMNS = 78


class LaboratoryError(RuntimeError):
    """The lab did not come up, or not all of it works; the message says what is missing."""


def client(settings: PlatformSettings, role: str = "operator") -> httpx.Client:
    """REST client with a token from the development issuer."""
    answer = httpx.post(
        f"{settings.gateway_url}/dev-issuer/token", json={"subject": f"local-{role}", "roles": [role]}, timeout=10
    )
    answer.raise_for_status()
    headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    return httpx.Client(base_url=settings.gateway_url, headers=headers, timeout=10)


def fetch(rest: httpx.Client, path: str, **parameters: str) -> Any:
    """JSON answer of a GET that must succeed."""
    answer = rest.get(path, params=parameters)
    answer.raise_for_status()
    return answer.json()


def chart(settings: PlatformSettings, *arguments: str) -> str:
    """Run the `chart` command of this environment against the platform of these settings; what it prints.

    Raises:
        LaboratoryError: it failed; its own words are in the message.
    """
    command = [str(Path(sys.executable).parent / "chart"), *arguments]
    environment = {
        **os.environ,
        "CHART_STATE_DIR": str(settings.state_dir),
        "CHART_SERVER": settings.gateway_url,
        "CHART_GATEWAY_URL": settings.gateway_url,
        "CHART_KAFKA_NODE_PORT": str(settings.kafka_node_port),
        "CHART_SERVICE_PORT_BASE": str(settings.service_port_base),
        "CHART_KAFKA_TLS": str(int(settings.kafka_tls)),
        "COLUMNS": str(OUTPUT_COLUMNS),
    }
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180, env=environment)
    if done.returncode != 0:
        msg = f"`chart {' '.join(arguments)}` failed: {(done.stderr or done.stdout).strip()}"
        raise LaboratoryError(msg)
    return done.stdout


def request_rate(rest: httpx.Client, body: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """A rate request, and how long it took until every node of its path enforced it (milliseconds).

    Raises:
        LaboratoryError: refused, or not enforced in time; says why.
    """
    started = time.monotonic()
    answer = rest.post("/v1/rate-requests", json=dict(body))
    if answer.status_code != httpx.codes.CREATED:
        msg = f"the rate was refused: {answer.text}"
        raise LaboratoryError(msg)
    request: dict[str, Any] = answer.json()
    while request["enforcement"] != "ENFORCED":
        if time.monotonic() - started > ENFORCED_LIMIT_S:
            why = f"{request['enforcement']} {request['reason']} {request['confirmations']}"
            msg = f"not enforced after {ENFORCED_LIMIT_S:.0f} s: {why}"
            raise LaboratoryError(msg)
        time.sleep(0.005)
        request = fetch(rest, f"/v1/rate-requests/{request['id']}")
    return request, (time.monotonic() - started) * 1000


def wait_ready(rest: httpx.Client, limit_s: float = READY_LIMIT_S) -> None:
    """Until every node's agent reports and every link has a load and a rate.

    Raises:
        LaboratoryError: something is missing after the limit; names it.
    """
    end = time.monotonic() + limit_s
    while True:
        nodes = fetch(rest, "/v1/nodes")["items"]
        links = fetch(rest, "/v1/links")["items"]
        missing = [f"state of {node['id']}" for node in nodes if not node["state"] or node["state"]["stale"]]
        missing += [f"load of {link['id']}" for link in links if not link["load"]]
        missing += [f"rate of {link['id']}" for link in links if not link["rate"]]
        if nodes and links and not missing:
            return
        if time.monotonic() > end:
            msg = f"after {limit_s:.0f} s still no {', '.join(missing) or 'node or link'}; see var/lab/*/ for the logs"
            raise LaboratoryError(msg)
        time.sleep(0.2)


@contextlib.contextmanager
def laboratory(
    settings: PlatformSettings, topology: str, progress: Progress, *, keep: bool = False
) -> Iterator[Platform]:
    """Platform and lab, up and ready. What ran before stays up; what this started is taken down unless ``keep``.

    Raises:
        LaboratoryError, SupervisorError, KafkaUnavailableError, PostgresUnavailableError: with what to do.
    """
    platform = Platform(settings)
    platform_was_up = platform.running()
    lab_was_up = topology in network.list_ids(settings.state_dir / "lab")
    try:
        platform.up(progress)
        if not lab_was_up:
            progress(f"building the lab {topology}")
            chart(settings, "lab", "up", topology, "--platform")
        with client(settings) as rest:
            wait_ready(rest)
        progress(f"the lab {topology} is up, its agents report")
        yield platform
    finally:
        if not keep:
            if not lab_was_up:
                progress("taking the lab down")
                with contextlib.suppress(LaboratoryError):
                    chart(settings, "lab", "down", "--lab", topology)
            if not platform_was_up:
                progress("taking the platform down")
                platform.down(purge=True)
