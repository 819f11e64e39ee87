"""gRPC server and channel: errors keep their meaning, calls have deadlines, traces go along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import psycopg
import pytest
import pytest_asyncio
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from chart.common import rpc, rpc_errors, telemetry
from chart.common.records import StreamUnavailable
from chart.common.rpc import RefusalError
from chart.common.settings import BaseServiceSettings
from chart.v1 import allocator_pb2, allocator_pb2_grpc, link_rate_pb2, reservations_pb2

Behaviour = Callable[[Any, Any], Any]


class Servicer(allocator_pb2_grpc.AllocatorServicer):
    """Does what the test says."""

    def __init__(self) -> None:
        self.behaviour: Behaviour = lambda request, context: allocator_pb2.ListLinkRatesResponse()
        self.calls = 0

    async def ListLinkRates(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.calls += 1
        answer = self.behaviour(request, context)
        return await answer if asyncio.iscoroutine(answer) else answer


@pytest_asyncio.fixture
async def listening() -> AsyncIterator[tuple[Servicer, str]]:
    """The servicer and HOST:PORT of its server."""
    servicer = Servicer()
    registration = ("chart.v1.Allocator", allocator_pb2_grpc.add_AllocatorServicer_to_server, servicer)
    async with rpc.serve([registration], BaseServiceSettings(grpc_listen="127.0.0.1:0")) as server:
        yield servicer, f"127.0.0.1:{server.port}"


@pytest_asyncio.fixture
async def served(listening: tuple[Servicer, str]) -> AsyncIterator[tuple[Servicer, Any, aio.Channel]]:
    """The servicer and a channel whose deadline leaves room for every retry of an unavailable service."""
    servicer, target = listening
    channel = rpc.channel(target, deadline_s=15.0)
    yield servicer, allocator_pb2_grpc.AllocatorStub(channel), channel
    await channel.close(None)


def raising(error: Exception) -> Behaviour:
    def behave(_request: Any, _context: Any) -> Any:
        raise error

    return behave


REQUEST = allocator_pb2.ListLinkRatesRequest(node="bravo")


async def test_an_answer_comes_through_with_the_callers_trace(served: tuple[Servicer, Any, aio.Channel]) -> None:
    servicer, stub, _ = served
    traces = []

    def answer(request: Any, _context: Any) -> Any:
        traces.append(telemetry.current_trace_id())
        return allocator_pb2.ListLinkRatesResponse(nodes=[link_rate_pb2.LinkRates(node=request.node)])

    servicer.behaviour = answer
    with telemetry.span("cause") as span:
        response = await stub.ListLinkRates(REQUEST)
    assert response.nodes[0].node == "bravo"
    assert traces == [f"{span.get_span_context().trace_id:032x}"]


async def test_a_refusal_arrives_whole(served: tuple[Servicer, Any, aio.Channel]) -> None:
    servicer, stub, _ = served
    refusal = reservations_pb2.Refusal(
        code="insufficient-capacity",
        detail="80 Mbit/s are free",
        field="guaranteed_bps",
        bottleneck_link_id="bravo:to-charlie",
        ceiling_bps=80_000_000,
        suggestions=["ask for 80 Mbit/s"],
    )
    servicer.behaviour = raising(RefusalError(refusal))
    with pytest.raises(RefusalError) as caught, rpc.refusals():
        await stub.ListLinkRates(REQUEST)
    assert caught.value.refusal == refusal
    assert caught.value.status is grpc.StatusCode.FAILED_PRECONDITION
    document = rpc.problem_of(caught.value).document("/v1/rate-requests")
    assert document["status"] == 409
    assert document["type"] == "urn:chart:problem:insufficient-capacity"
    assert document["ceiling"] == 80_000_000
    assert document["field"] == "guaranteed_bps"


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (rpc_errors.invalid("period_ms", "too short"), grpc.StatusCode.INVALID_ARGUMENT, 422),
        (rpc_errors.not_found("link", "x:y"), grpc.StatusCode.NOT_FOUND, 404),
        (rpc_errors.conflict("changed"), grpc.StatusCode.ABORTED, 412),
        (StreamUnavailable("no broker"), grpc.StatusCode.UNAVAILABLE, 503),
        (psycopg.OperationalError("no database"), grpc.StatusCode.UNAVAILABLE, 503),
    ],
)
async def test_errors_keep_their_meaning(
    served: tuple[Servicer, Any, aio.Channel], error: Exception, code: grpc.StatusCode, status: int
) -> None:
    servicer, stub, _ = served
    servicer.behaviour = raising(error)
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.ListLinkRates(REQUEST)
    assert caught.value.code() is code
    assert rpc.problem_of(caught.value).status == status


async def test_an_unexpected_error_tells_the_caller_nothing_of_the_inside(
    served: tuple[Servicer, Any, aio.Channel],
) -> None:
    servicer, stub, _ = served
    servicer.behaviour = raising(ZeroDivisionError("secret figure 42"))
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.ListLinkRates(REQUEST)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "42" not in (caught.value.details() or "")


async def test_a_call_without_answer_ends_at_the_deadline(listening: tuple[Servicer, str]) -> None:
    servicer, target = listening
    servicer.behaviour = lambda _request, _context: asyncio.sleep(30)
    channel = rpc.channel(target, deadline_s=0.5)
    with pytest.raises(aio.AioRpcError) as caught:
        await asyncio.wait_for(allocator_pb2_grpc.AllocatorStub(channel).ListLinkRates(REQUEST), 15)
    await channel.close(None)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_an_unavailable_service_is_asked_again(served: tuple[Servicer, Any, aio.Channel]) -> None:
    servicer, stub, _ = served

    def recover(_request: Any, _context: Any) -> Any:
        if servicer.calls < 3:
            raise StreamUnavailable("not yet")
        return allocator_pb2.ListLinkRatesResponse()

    servicer.behaviour = recover
    await stub.ListLinkRates(REQUEST, timeout=5)
    assert servicer.calls == 3


async def test_the_actor_is_passed_on(served: tuple[Servicer, Any, aio.Channel]) -> None:
    servicer, stub, _ = served
    actors: list[str] = []

    def note(_request: Any, context: Any) -> Any:
        actors.append(rpc.actor(context))
        return allocator_pb2.ListLinkRatesResponse()

    servicer.behaviour = note
    await stub.ListLinkRates(REQUEST, metadata=((rpc.ACTOR_METADATA, "alice"),))
    await stub.ListLinkRates(REQUEST)
    assert actors == ["alice", "unknown"]


async def test_health_and_reflection_answer(served: tuple[Servicer, Any, aio.Channel]) -> None:
    _, _, channel = served
    answer = await health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(service="chart.v1.Allocator")
    )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    async for response in call:
        assert "chart.v1.Allocator" in {service.name for service in response.list_services_response.service}
        break


async def test_nobody_at_the_address_is_unavailable_within_the_deadline() -> None:
    channel = rpc.channel("127.0.0.1:1", deadline_s=1.0)
    with pytest.raises(aio.AioRpcError) as caught:
        await allocator_pb2_grpc.AllocatorStub(channel).ListLinkRates(REQUEST)
    assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    assert rpc.problem_of(caught.value).status in (503, 504)
    await channel.close(None)
