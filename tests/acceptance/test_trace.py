"""One trace follows a rate request through gateway, reservations and Kafka to the agents and back (W3C Trace
Context), and the time between asking and enforcement is within its goal.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import statistics
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from chart.common import streams
from chart.common.settings import BaseServiceSettings
from chart_lab.network import Lab
from chart_lab.platform.laboratory import fetch
from chart_lab.platform.stack import Platform
from support.figures import Figures
from support.waiting import until

pytestmark = pytest.mark.lab

SENDERS = {"alpha", "bravo", "charlie"}
ENFORCED_P50_LIMIT_MS = 1000


def ask(rest: httpx.Client, port: int, headers: dict[str, str] | None = None) -> tuple[dict[str, Any], float]:
    """A request from alpha to delta, and how long it took until it was enforced (milliseconds)."""
    body = {"source": "alpha", "destination": "delta", "protocol": "tcp", "destination_port": port}
    started = time.monotonic()
    answer = rest.post("/v1/rate-requests", json={**body, "guaranteed_bps": 2_000_000}, headers=headers)
    assert answer.status_code == 201, answer.text
    request: dict[str, Any] = answer.json()
    while request["enforcement"] != "ENFORCED":
        assert time.monotonic() - started < 60, request
        time.sleep(0.005)
        request = fetch(rest, f"/v1/rate-requests/{request['id']}")
    return request, (time.monotonic() - started) * 1000


def spans_of(platform: Platform, trace_id: str) -> dict[str, dict[str, Any]]:
    """Spans of a trace that the services wrote, by span id."""
    spans = {}
    for path in Path(platform.settings.state_dir, "traces").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            if trace_id in line:
                span = json.loads(line)
                spans[span["span_id"]] = span
    return spans


async def carried(platform: Platform, request_id: str) -> tuple[str, dict[str, str]]:
    """The traceparents of the grant's record and of each node's status about it."""
    broker = streams.connect(BaseServiceSettings(kafka_bootstrap=platform.settings.kafka_bootstrap))
    try:
        grant = (await broker.compacted("chart.flow-grant.v1")).record(request_id)
        assert grant is not None
        statuses: dict[str, str] = {}
        async with asyncio.timeout(20), broker.subscribe(["chart.grant-status.v1"], start="earliest") as subscription:
            async for record in subscription:
                if record.key.startswith(f"{request_id},"):
                    statuses[record.key.split(",")[1]] = record.headers.get("traceparent", "")
                if statuses.keys() >= SENDERS:
                    break
        return grant.headers.get("traceparent", ""), statuses
    finally:
        await broker.close()


def test_one_trace_follows_a_request_to_the_agents_and_back(platform: Platform, rest: httpx.Client, lab: Lab) -> None:
    trace_id, caller = secrets.token_hex(16), secrets.token_hex(8)
    request, _ = ask(rest, 6100, {"traceparent": f"00-{trace_id}-{caller}-01"})
    try:
        grant, statuses = asyncio.run(carried(platform, request["id"]))
        assert grant.split("-")[1] == trace_id
        assert {node: sent.split("-")[1] for node, sent in statuses.items()} == dict.fromkeys(SENDERS, trace_id)

        def names() -> set[tuple[str, str]]:
            return {(span["service"], span["name"]) for span in spans_of(platform, trace_id).values()}

        create = ("chart-reservations", "serve /chart.v1.Reservations/CreateRateRequest")
        expected = {("chart-gateway", "POST /v1/rate-requests"), create, ("chart-reservations", "grant confirmed")}
        until(lambda: expected <= names(), f"the spans are written: {expected}", limit_s=60)

        def confirmed_nodes() -> set[str]:
            spans = spans_of(platform, trace_id).values()
            return {node for span in spans if span["name"] == "grant confirmed" for node in span["attributes"]["nodes"]}

        until(lambda: confirmed_nodes() >= SENDERS, f"{SENDERS} have confirmed", limit_s=60)
    finally:
        rest.post(f"/v1/rate-requests/{request['id']}/release").raise_for_status()
    spans = spans_of(platform, trace_id)
    (asked,) = [span for span in spans.values() if span["name"] == "POST /v1/rate-requests"]
    assert asked["parent_span_id"] == caller
    (served,) = [span for span in spans.values() if (span["service"], span["name"]) == create]
    assert served["parent_span_id"] in spans, "the call continues a span of the gateway"
    confirmed = [span for span in spans.values() if span["name"] == "grant confirmed"]
    assert confirmed[0]["parent_span_id"] in spans
    assert any(span["attributes"]["enforcement"] == "ENFORCEMENT_ENFORCED" for span in confirmed)


def test_a_request_is_enforced_at_once(rest: httpx.Client, lab: Lab, figures: Figures) -> None:
    taken_ms = []
    for port in range(6200, 6210):
        request, milliseconds = ask(rest, port)
        taken_ms.append(milliseconds)
        rest.post(f"/v1/rate-requests/{request['id']}/release").raise_for_status()
    found_ms = statistics.median(taken_ms)
    figures.at_most("request to enforced, p50 of 10", found_ms, ENFORCED_P50_LIMIT_MS, "ms", sound=60_000)
