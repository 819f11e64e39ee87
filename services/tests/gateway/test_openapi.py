"""The OpenAPI document says what is true; requests made from it break nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.core.result import Ok

from chart.common.problems import MEDIA_TYPE
from chart.gateway import openapi
from support.gateway import World

DOCUMENT = json.loads(openapi.text())
OPERATIONS = [
    (path, method, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
]


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "chart.gateway.openapi"]
    environment = {"CHART_ENVIRONMENT": "production", "CHART_STATE_DIR": str(tmp_path), "PYTHONHASHSEED": "7"}
    printed = subprocess.run(command, capture_output=True, check=True, text=True, env=environment, timeout=60).stdout
    assert printed == openapi.text()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS, ids=lambda value: str(value)[:40])
def test_operations_are_described(path: str, method: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["tags"]
    if not path.startswith(("/v1", "/auth", "/dev-issuer")):
        return
    answers = operation["responses"]
    assert {"422", "429", "500"} <= set(answers)
    if path.startswith("/v1"):
        assert {"401", "403"} <= set(answers)
        assert operation["security"] == [{"bearer": []}, {"session": []}]
    if "requestBody" in operation:
        assert {"400", "413"} <= set(answers)
    for status, answer in answers.items():
        if int(status) >= 400:
            assert answer["content"][MEDIA_TYPE]["schema"]["$ref"] == "#/components/schemas/Problem", status


def test_rates_and_units_are_bounded() -> None:
    body = DOCUMENT["components"]["schemas"]["RateRequestBody"]["properties"]
    for name in ("guaranteed_bps", "priority", "delay_priority", "burst_tolerance"):
        assert {"minimum", "maximum"} <= set(body[name]), name
    assert DOCUMENT["components"]["schemas"]["RateRequestBody"]["additionalProperties"] is False
    assert "HTTPValidationError" not in DOCUMENT["components"]["schemas"]


SKIPPED = r"^/(v1/events|v1/pair-groups/[^/]+/events|metrics|healthz|readyz|auth/logout)$"
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT).exclude(path_regex=SKIPPED)


async def test_generated_requests_break_nothing(place: World) -> None:
    """A few requests per operation, made from the document: answers are those that it lists."""
    operations = []
    for result in SCHEMA.get_all_operations():
        assert isinstance(result, Ok), result
        operations.append(result.ok())
    headers = place.headers("admin")
    loop = asyncio.get_running_loop()
    checked = 0

    def try_one(operation: Any) -> None:
        @settings(
            max_examples=8, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
        )
        @_given(operation)
        def check(case: Any) -> None:
            nonlocal checked
            answer = asyncio.run_coroutine_threadsafe(_send(place, case, headers), loop).result(20)
            listed = DOCUMENT["paths"][operation.path][operation.method]["responses"]
            assert answer.status_code < 500, (case.as_curl_command(), answer.text)
            # The framework's answers to what is not this operation at all.
            assert str(answer.status_code) in {*listed, "404", "405", "415"}, (case.as_curl_command(), answer.text)
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == MEDIA_TYPE, (case.as_curl_command(), answer.text)
            checked += 1

        check()

    for operation in operations:
        await asyncio.to_thread(try_one, operation)
    assert checked >= 5 * len(operations)


def _given(operation: Any) -> Callable[[Callable[[Any], None]], Callable[..., None]]:
    from hypothesis import given

    return given(case=operation.as_strategy())


async def _send(place: World, case: Any, headers: dict[str, str]) -> Any:
    import httpx

    arguments = case.as_transport_kwargs(base_url="http://gateway")
    request = place.client.build_request(
        arguments["method"],
        arguments["url"],
        params=arguments.get("params"),
        json=arguments.get("json"),
        headers={**{k: v for k, v in dict(arguments.get("headers") or {}).items() if v.isascii()}, **headers},
    )
    try:
        return await place.client.send(request)
    except httpx.HTTPError as error:  # pragma: no cover - a finding, shown with the case
        raise AssertionError(case.as_curl_command()) from error
