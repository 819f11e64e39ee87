"""The gateway as a process over the real registry, reservations and archiver, Kafka and PostgreSQL."""

# ruff: noqa: ASYNC212 - one client and one test: nothing else waits in this loop
from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from chart.common.streams import KafkaBroker
from chart.v1 import flow_grant_pb2, grant_status_pb2
from support.postgres import PostgresServer
from support.processes import ServerProcess, free_ports
from support.waiting import eventually
from threats import tenants

pytestmark = pytest.mark.contract

SERVICES = ("registry", "reservations", "archiver")
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


@dataclass
class Platform:
    url: str
    processes: dict[str, ServerProcess]
    health: dict[str, str]

    def ready(self, name: str) -> bool:
        try:
            return httpx.get(f"{self.health[name]}/readyz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def start(self, name: str) -> None:
        self.processes[name].start(lambda: self.ready(name), limit_s=45)

    def client(self, role: str = "operator") -> httpx.Client:
        body = {"subject": f"contract-{role}", "roles": [role]}
        token = httpx.post(f"{self.url}/dev-issuer/token", json=body).json()["access_token"]
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=10)


@contextmanager
def started(kafka_bootstrap: str, postgres: PostgresServer, directory: Path) -> Iterator[Platform]:
    for schema in SERVICES:
        postgres.truncate(schema)
    ports = dict(zip([*SERVICES, *(f"{name} health" for name in SERVICES), "gateway"], free_ports(7), strict=True))
    base = {
        "PATH": os.environ["PATH"],
        "CHART_KAFKA_BOOTSTRAP": kafka_bootstrap,
        "CHART_STATE_DIR": str(directory),
        **{f"CHART_{name.upper()}_TARGET": f"127.0.0.1:{ports[name]}" for name in SERVICES},
    }
    processes, health = {}, {}
    for name in (*SERVICES, "gateway"):
        http_port = ports["gateway" if name == "gateway" else f"{name} health"]
        settings = {**base, "CHART_HTTP_LISTEN": f"127.0.0.1:{http_port}"}
        if name != "gateway":
            settings["CHART_GRPC_LISTEN"] = f"127.0.0.1:{ports[name]}"
            settings["CHART_DATABASE_URL"] = postgres.role_url(name)
        script = str(Path(sys.executable).parent / f"chart-{name}")
        command = ("env", "-i", *(f"{key}={value}" for key, value in settings.items()), script)
        processes[name] = ServerProcess(name, command, directory / f"{name}.log")
        health[name] = f"http://127.0.0.1:{http_port}"
    platform = Platform(health["gateway"], processes, health)
    try:
        for name in (*SERVICES, "gateway"):
            platform.start(name)
        yield platform
    finally:
        for process in reversed(processes.values()):
            process.stop()


def register(client: httpx.Client) -> None:
    """Two nodes, one link."""
    for number, node in enumerate(("gwa", "gwb"), start=1):
        answer = client.put(f"/v1/nodes/{node}", json={"addresses": [f"198.51.100.{number}/32"]})
        assert answer.status_code == 201, answer.text
    answer = client.put("/v1/links/gwa:to-gwb", json={"to_node": "gwb", "capacity_bps": 100_000_000})
    assert answer.status_code == 201, answer.text


def unregister(client: httpx.Client) -> None:
    """Leave the shared streams as they were."""
    for request in client.get("/v1/rate-requests?lifecycle=ACTIVE").json()["items"]:
        client.post(f"/v1/rate-requests/{request['id']}/release")
    client.delete("/v1/links/gwa:to-gwb")
    for node in ("gwa", "gwb"):
        client.delete(f"/v1/nodes/{node}")


async def test_the_whole_way(kafka_bootstrap: str, postgres: PostgresServer, tmp_path: Path) -> None:
    with started(kafka_bootstrap, postgres, tmp_path) as platform, platform.client() as client:
        register(client)
        # Reservations hears of the topology by its stream.
        body = {"source": "gwa", "destination": "gwb", "guaranteed_bps": 10_000_000, "duration_s": 600}
        await eventually(
            lambda: client.post("/v1/rate-requests:preview", json=body).json().get("granted") is True, limit_s=20
        )
        try:
            await grant_is_enforced_and_traced(platform, client, kafka_bootstrap, body)
            refusals_name_the_field(client, body)
            applications_are_kept_apart(platform, client, body)
            await tenants_are_kept_apart(platform)
            await services_killed(platform, client, body)
        finally:
            unregister(client)


async def grant_is_enforced_and_traced(
    platform: Platform, client: httpx.Client, bootstrap: str, body: dict[str, object]
) -> None:
    broker = KafkaBroker(bootstrap)
    grants = await broker.compacted("chart.flow-grant.v1")
    headers = {"Idempotency-Key": "contract-1", "traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}
    began = time.monotonic()
    answer = client.post("/v1/rate-requests", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["lifecycle"], made["path"], made["granted_bps"]) == ("ACTIVE", ["gwa:to-gwb"], 10_000_000)
    assert made["request"]["duration_s"] == 600
    again = client.post("/v1/rate-requests", json=body, headers=headers)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json()["id"] == made["id"]
    grant = await eventually(lambda: grants.get(made["id"]))
    assert isinstance(grant, flow_grant_pb2.FlowGrant)
    record = grants.record(made["id"])
    assert record is not None
    assert TRACE_ID in record.headers["traceparent"]
    for node in made["confirming_nodes"]:
        status = grant_status_pb2.GrantStatus(
            request_id=made["id"],
            node=node,
            generation=grant.generation,
            state=grant_status_pb2.GRANT_STATE_APPLIED,
            applied_at_us=time.time_ns() // 1000,
            kernel_rate_bps=10_000_000,
        )
        await broker.publish("chart.grant-status.v1", f"{made['id']},{node}", status)
    path = f"/v1/rate-requests/{made['id']}"
    enforced = await eventually(lambda: (got := client.get(path).json())["enforcement"] == "ENFORCED" and got)
    assert time.monotonic() - began < 5
    assert enforced["confirmations"][0]["kernel_rate_bps"] == 10_000_000
    assert enforced["enforced_at"]
    await grants.close()
    await broker.close()


def refusals_name_the_field(client: httpx.Client, body: dict[str, object]) -> None:
    too_much = client.post("/v1/rate-requests", json={**body, "guaranteed_bps": 90_000_000})
    assert too_much.status_code == 409, too_much.text
    assert too_much.json()["ceiling"] == 70_000_000
    preview = client.post("/v1/rate-requests:preview", json={**body, "guaranteed_bps": 90_000_000}).json()
    assert preview["refusal"]["ceiling"] == 70_000_000
    assert (preview["refusal"]["type"], preview["refusal"]["status"]) == (too_much.json()["type"], 409)
    unknown = client.post("/v1/rate-requests", json={**body, "source": "nowhere"})
    assert (unknown.status_code, unknown.json()["field"]) == (422, "source")
    preview = client.post("/v1/rate-requests:preview", json={**body, "source": "nowhere"})
    assert (preview.status_code, preview.json()["refusal"]["status"]) == (200, 422), preview.text
    past = client.post("/v1/rate-requests", json={**body, "start": "2020-01-01T00:00:00Z"})
    assert (past.status_code, past.json()["field"]) == (422, "start")
    stale = client.put("/v1/policies/default", json={"enforcement": "off"}, headers={"If-Match": '"999"'})
    assert (stale.status_code, stale.json().get("field")) == (412, "If-Match"), stale.text


def applications_are_kept_apart(platform: Platform, operator: httpx.Client, body: dict[str, object]) -> None:
    with platform.client("application") as application:
        assert application.get("/v1/rate-requests").json()["items"] == []
        other = operator.get("/v1/rate-requests").json()["items"][0]["id"]
        assert application.get(f"/v1/rate-requests/{other}").status_code == 404
        assert application.post(f"/v1/rate-requests/{other}/release").status_code == 404
        made = application.post("/v1/rate-requests", json={**body, "guaranteed_bps": 1_000_000})
        assert made.json()["owner"] == "contract-application"
        assert application.post(f"/v1/rate-requests/{made.json()['id']}/release").json()["lifecycle"] == "RELEASED"


async def tenants_are_kept_apart(platform: Platform) -> None:
    """What `make threat-test` tries against the installed platform."""

    def token(subject: str, roles: tuple[str, ...]) -> str:
        body = {"subject": subject, "roles": roles}
        return str(httpx.post(f"{platform.url}/dev-issuer/token", json=body).json()["access_token"])

    asked, read = await tenants.trials(platform.url, token)
    assert (asked.accepted, asked.good_refused) == ([], 0)
    assert (read.accepted, read.good_refused) == ([], 0)
    assert asked.tried > 400
    assert read.tried > 35


async def services_killed(platform: Platform, client: httpx.Client, body: dict[str, object]) -> None:
    before = {item["id"]: item["lifecycle"] for item in client.get("/v1/rate-requests").json()["items"]}
    platform.processes["registry"].kill()
    # The network is still shown, from the stream; and the gateway says what is missing.
    assert {node["id"] for node in client.get("/v1/nodes").json()["items"]} >= {"gwa", "gwb"}
    assert client.get("/readyz").json()["checks"]["registry"] != "ok"
    answer = client.put("/v1/nodes/gwa", json={})
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
    await asyncio.to_thread(platform.start, "registry")
    platform.processes["gateway"].kill()
    await asyncio.to_thread(platform.start, "gateway")
    # The same key: the token from before is still good.
    after = {item["id"]: item["lifecycle"] for item in client.get("/v1/rate-requests").json()["items"]}
    assert after == before
    assert client.put("/v1/nodes/gwa", json={"addresses": ["198.51.100.1/32"]}).status_code == 200
