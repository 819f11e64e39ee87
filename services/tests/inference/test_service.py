"""The inference service over local streams: measurements in, estimates out, news only, pairs asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import numpy as np
import pytest

from chart.common import rpc
from chart.common.clock import FakeClock
from chart.common.rpc_errors import not_found
from chart.common.settings import BaseServiceSettings
from chart.common.streams import CompactedState, LocalBroker
from chart.inference import service
from chart.inference.asking import OWNER, Asker
from chart.inference.rpc import InferenceServicer, registration
from chart.inference.settings import InferenceSettings
from chart.inference.streams import CONTRADICTION, ESTIMATE, MEASUREMENT, TOPOLOGY, WANTED_PAIRS, InferenceService
from chart.v1 import (
    estimate_pb2,
    inference_pb2,
    inference_pb2_grpc,
    measurement_pb2,
    registry_pb2,
    registry_pb2_grpc,
    sensing_configuration_pb2,
    topology_pb2,
)
from chart.v1.platform_settings_pb2 import PlatformSettings
from chart.v1.wanted_pairs_pb2 import WantedPairs
from support.waiting import eventually

NODES = ("alpha", "bravo", "charlie", "delta")
DELAYS_US = (1000, 50_000, 1000)


def measurement(
    source: str, destination: str, value: float, at_us: int = 0, *, metric: str = "rtt_us", error: str = ""
) -> measurement_pb2.Measurement:
    return measurement_pb2.Measurement(
        source_node=source,
        destination_node=destination,
        metric=metric,
        value=value,
        unit="us",
        measured_at_us=at_us,
        error=error,
    )


class Bench:
    def __init__(self, **more: object) -> None:
        self.clock = FakeClock()
        self.broker = LocalBroker(self.clock)
        self.settings = InferenceSettings(
            kafka_bootstrap="local:",
            inference_period_s=1.0,
            _env_file=None,
            **more,  # type: ignore[call-arg, arg-type]
        )
        self.estimates: CompactedState

    async def line(self) -> None:
        for number, node in enumerate(NODES):
            entity = topology_pb2.Node(id=node, addresses=[f"10.0.0.{number}/32"], sensor_pod_target="127.0.0.1:1")
            await self.broker.publish(TOPOLOGY, node, topology_pb2.TopologyEntity(node=entity))
        for near, far, delay_us in zip(NODES, NODES[1:], DELAYS_US, strict=False):
            for one, other in ((near, far), (far, near)):
                link = topology_pb2.Link(
                    id=f"{one}:to-{other}", from_node=one, to_node=other, capacity_bps=100_000_000, delay_us=delay_us
                )
                await self.broker.publish(TOPOLOGY, link.id, topology_pb2.TopologyEntity(link=link))

    async def measure(self, source: str, destination: str, value: float, **more: str) -> None:
        one = measurement(source, destination, value, self.clock.now_us(), **more)
        await self.broker.publish(MEASUREMENT, f"{source},{destination},{one.metric}", one)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[InferenceService]:
        self.estimates = await self.broker.compacted(ESTIMATE)
        inference = InferenceService(self.broker, self.settings, self.clock)
        task = asyncio.create_task(inference.run())
        try:
            yield inference
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def value(self, key: str) -> estimate_pb2.Estimate | None:
        one = self.estimates.get(key)
        return one if isinstance(one, estimate_pb2.Estimate) else None

    async def told(self, key: str) -> estimate_pb2.Estimate:
        async def there() -> estimate_pb2.Estimate | None:
            await self.clock.advance(0.3)
            return self.value(key)

        found = await eventually(there)
        assert isinstance(found, estimate_pb2.Estimate)
        return found


async def test_few_nodes_get_measured_and_composed_estimates() -> None:
    bench = Bench()
    await bench.line()
    for near, far, rtt_us in (
        ("alpha", "bravo", 2050.0),
        ("bravo", "charlie", 100_900.0),
        ("charlie", "delta", 2100.0),
    ):
        await bench.measure(near, far, rtt_us)
    async with bench.running():
        end = await bench.told("alpha,delta,rtt_us")
        assert end.method == "composition"
        assert end.value == pytest.approx(2050 + 100_900 + 2100, rel=1e-6)
        assert end.interval_low < end.value < end.interval_high
        assert end.unit == "us"
        own = await bench.told("bravo,alpha,rtt_us")
        assert own.method == "measured"
        assert own.value == 2050


async def test_only_what_changed_is_told() -> None:
    bench = Bench()
    await bench.line()
    await bench.measure("alpha", "bravo", 2000.0)
    async with bench.running():
        await bench.told("alpha,bravo,rtt_us")
        before = {key: bench.estimates.record(key) for key in bench.estimates.keys()}  # noqa: SIM118 - not a dict
        await bench.measure("alpha", "bravo", 2001.0)
        await bench.measure("charlie", "delta", 2500.0)

        async def moved() -> bool:
            await bench.clock.advance(0.3)
            one = bench.value("delta,charlie,rtt_us")
            return one is not None and one.method == "measured" and one.value == 2500

        await eventually(moved)
        record, first = bench.estimates.record("alpha,bravo,rtt_us"), before["alpha,bravo,rtt_us"]
        assert record is not None
        assert first is not None
        assert record.offset == first.offset


async def test_a_restarted_service_tells_nothing_twice_and_old_results_are_forgotten() -> None:
    bench = Bench(inference_measurement_age_s=100.0)
    await bench.line()
    await bench.measure("alpha", "bravo", 2000.0)
    async with bench.running():
        await bench.told("alpha,bravo,rtt_us")
    offsets = {key: bench.estimates.record(key).offset for key in bench.estimates.keys()}  # type: ignore[union-attr]  # noqa: SIM118
    async with bench.running() as inference:
        await eventually(lambda: inference.ready)
        await bench.clock.advance(3)
        assert {key: bench.estimates.record(key).offset for key in bench.estimates.keys()} == offsets  # type: ignore[union-attr]  # noqa: SIM118

        async def gone() -> bool:
            await bench.clock.advance(30)
            return bench.value("alpha,bravo,rtt_us") is None

        await eventually(gone)


def test_the_book_refuses_what_it_cannot_hold() -> None:
    book = service.Book(most_nodes=3, most_metrics=1)
    assert book.take(measurement("a", "b", 5.0, 10), 100) == "rtt_us"
    assert book.take(measurement("a", "b", 4.0, 5), 100) is None, "older"
    assert book.results["rtt_us"]["a", "b"].value == 5
    assert book.take(measurement("a", "b", float("nan"), 11), 100) is None
    assert book.take(measurement("a", "b", 1.0, 11, error="lost"), 100) is None
    assert book.take(measurement("a", "a", 1.0, 11), 100) is None
    assert book.take(measurement("a", "b", 1.0, 11, metric="mood"), 100) is None
    assert book.take(measurement("a", "b", 1.0, 11, metric="jitter_us"), 100) is None
    assert book.take(measurement("b", "c", 1.0, 11), 100) == "rtt_us"
    assert book.take(measurement("c", "d", 1.0, 11), 100) is None
    assert book.refused == 3
    # A clock that runs ahead does not freeze the pair.
    assert book.take(measurement("a", "b", 7.0, 10**18), 100) == "rtt_us"
    assert book.take(measurement("a", "b", 8.0, 101), 101) == "rtt_us"


def test_a_removed_node_takes_its_results_along() -> None:
    book = service.Book(most_nodes=10, most_metrics=2)
    book.note("a", topology_pb2.TopologyEntity(node=topology_pb2.Node(id="a")))
    book.take(measurement("a", "b", 5.0, 10), 100)
    book.take(measurement("b", "c", 5.0, 10), 100)
    book.note("a", None)
    assert set(book.results["rtt_us"]) == {("b", "c")}


def test_changes_are_news_and_withdrawals() -> None:
    def one(value: float, method: str = "landmark") -> estimate_pb2.Estimate:
        return estimate_pb2.Estimate(
            value=value, method=method, metric="rtt_us", interval_low=value * 0.9, interval_high=value * 1.1
        )

    told = {"a": one(100), "b": one(100), "c": one(100), "d": one(100)}
    now = {"a": one(101), "b": one(110), "c": one(100, "measured"), "e": one(5)}
    assert set(service.changes(told, now, "rtt_us", 0.02)) == {"b", "c", "d", "e"}
    assert service.changes(told, now, "rtt_us", 0.02)["d"] is None


async def test_rpc_pages_and_next_pairs() -> None:
    bench = Bench()
    random = np.random.default_rng(1)
    nodes = [f"n{number}" for number in range(12)]
    for near in range(12):
        for far in range(near + 1, 12):
            if random.random() < 0.5:
                await bench.measure(nodes[near], nodes[far], float(random.uniform(1e3, 1e5)))
    async with bench.running() as inference:
        await bench.told("n0,n1,rtt_us")
        await eventually(lambda: len(inference.told) > 100)
        servicer = InferenceServicer(inference, bench.clock)
        seen: list[str] = []
        cursor = ""
        while True:
            request = inference_pb2.ListEstimatesRequest(metric="rtt_us", limit=50, cursor=cursor)
            answer = await servicer.ListEstimates(request, None)
            assert len(answer.ages_us) == len(answer.estimates) <= 50
            assert min(answer.ages_us) >= 0
            seen += [f"{one.source_node},{one.destination_node}" for one in answer.estimates]
            cursor = answer.next_cursor
            if not cursor:
                break
        assert len(seen) == len(set(seen)) == len(inference.told)
        only = await servicer.ListEstimates(inference_pb2.ListEstimatesRequest(source_node="n3"), None)
        assert {one.source_node for one in only.estimates} == {"n3"}
        settings = BaseServiceSettings(grpc_listen="127.0.0.1:0", _env_file=None)  # type: ignore[call-arg]
        async with rpc.serve([registration(inference)], settings) as server:
            channel = rpc.channel(f"127.0.0.1:{server.port}")
            stub = inference_pb2_grpc.InferenceStub(channel)
            pairs = (await stub.NextPairs(inference_pb2.NextPairsRequest(metric="rtt_us", count=5))).pairs
            assert 0 < len(pairs) <= 5
            measured = inference.book.results["rtt_us"]
            for one in pairs:
                assert (one.source_node, one.destination_node) not in measured
                assert (one.destination_node, one.source_node) not in measured
            with pytest.raises(rpc.RefusalError), rpc.refusals():
                await stub.NextPairs(inference_pb2.NextPairsRequest(metric="mood"))
            await check_ranking(stub, inference)
            await channel.close(None)


async def check_ranking(stub: inference_pb2_grpc.InferenceAsyncStub, inference: InferenceService) -> None:
    """The order is that of the estimates told; what makes no sense is refused."""
    ranked = await stub.RankNodes(inference_pb2.RankNodesRequest(node="n3", metric="rtt_us", count=4))
    values = sorted(one.value for one in inference.told.values() if one.source_node == "n3")
    assert [one.value for one in ranked.nodes] == values[:4]
    assert (ranked.unit, list(ranked.unknown)) == ("us", [])
    some = await stub.RankNodes(inference_pb2.RankNodesRequest(node="n3", metric="rtt_us", candidates=["n5", "x"]))
    assert ([one.node for one in some.nodes], list(some.unknown)) == (["n5"], ["x"])
    question = inference_pb2.RankRelaysRequest(source_node="n1", destination_node="n2", metric="rtt_us", count=3)
    relays = await stub.RankRelays(question)
    assert relays.direct.value == inference.told["n1,n2,rtt_us"].value
    first = relays.relays[0]
    over = (inference.told[f"n1,{first.node},rtt_us"], inference.told[f"{first.node},n2,rtt_us"])
    assert first.value == pytest.approx(over[0].value + over[1].value)
    refused: list[tuple[str, Awaitable[object]]] = [
        ("metric", stub.RankNodes(inference_pb2.RankNodesRequest(node="n3", metric="mood"))),
        ("count", stub.RankNodes(inference_pb2.RankNodesRequest(node="n3", metric="rtt_us", count=1001))),
        ("metric", stub.RankRelays(inference_pb2.RankRelaysRequest(source_node="n1", metric="jitter_us"))),
        ("destination_node", stub.RankRelays(inference_pb2.RankRelaysRequest(metric="rtt_us"))),
    ]
    for field, call in refused:
        with pytest.raises(rpc.RefusalError) as caught, rpc.refusals():
            await call
        assert caught.value.refusal.field == field


async def test_a_sensor_that_contradicts_the_others_is_exported_until_it_agrees() -> None:
    def exported() -> dict[str, float]:
        (family,) = CONTRADICTION.collect()
        return {sample.labels["node"]: sample.value for sample in family.samples}

    bench = Bench()

    async def measure(factor: float) -> None:
        for source in NODES:
            for destination in NODES:
                if source != destination:
                    await bench.measure(source, destination, 5000.0 * (factor if source == "bravo" else 1.0))

    async def becomes(wanted: dict[str, float]) -> bool:
        await bench.clock.advance(0.3)
        return exported() == wanted

    await measure(2.0)
    async with bench.running():
        await eventually(lambda: becomes({"bravo": 1.0}))
        await measure(1.1)
        await eventually(lambda: becomes({}))


class Registry(registry_pb2_grpc.RegistryServicer):
    def __init__(self) -> None:
        self.taken: dict[str, sensing_configuration_pb2.SensingConfiguration] = {}

    async def PutSensingConfiguration(  # noqa: N802
        self, request: registry_pb2.PutSensingConfigurationRequest, context: object
    ) -> registry_pb2.PutSensingConfigurationResponse:
        self.taken[request.configuration.id] = request.configuration
        return registry_pb2.PutSensingConfigurationResponse(configuration=request.configuration, created=True)

    async def ListSensingConfigurations(  # noqa: N802
        self, request: registry_pb2.ListSensingConfigurationsRequest, context: object
    ) -> registry_pb2.ListSensingConfigurationsResponse:
        return registry_pb2.ListSensingConfigurationsResponse(configurations=self.taken.values())

    async def DeleteSensingConfiguration(  # noqa: N802
        self, request: registry_pb2.DeleteSensingConfigurationRequest, context: object
    ) -> registry_pb2.DeleteSensingConfigurationResponse:
        if self.taken.pop(request.id, None) is None:
            raise not_found("sensing configuration", request.id)
        return registry_pb2.DeleteSensingConfigurationResponse()


async def test_pairs_are_asked_for_when_allowed() -> None:
    registry = Registry()  # type: ignore[abstract]  # what a servicer leaves out answers UNIMPLEMENTED
    add = registry_pb2_grpc.add_RegistryServicer_to_server
    settings = BaseServiceSettings(grpc_listen="127.0.0.1:0", _env_file=None)  # type: ignore[call-arg]
    async with rpc.serve([("chart.v1.Registry", add, registry)], settings) as server:
        bench = Bench(inference_active_pairs=2, registry_target=f"127.0.0.1:{server.port}")
        await bench.line()
        await bench.measure("alpha", "bravo", 2000.0)
        async with bench.running():

            async def asked() -> bool:
                await bench.clock.advance(0.3)
                return len(registry.taken) >= 2

            await eventually(asked)
    for one in registry.taken.values():
        assert one.owner == "inference"
        assert one.sensor == "ping"
        assert one.valid_until_us > bench.clock.now_us() - 60_000_000
        assert {one.source_node, one.destination_node} != {"alpha", "bravo"}
        assert one.destination_address == f"10.0.0.{NODES.index(one.destination_node)}"


def wanted(source: str, destination: str, metric: str = "rtt_us") -> service.Wanted:
    return service.Wanted(source, destination, metric, "near", 0.5)


async def test_what_was_asked_for_is_taken_away_when_it_is_over() -> None:
    registry = Registry()  # type: ignore[abstract]  # what a servicer leaves out answers UNIMPLEMENTED
    for identity, owner in (("inference-x-y-ping", OWNER), ("theirs", "somebody")):
        registry.taken[identity] = sensing_configuration_pb2.SensingConfiguration(
            id=identity, owner=owner, valid_until_us=5
        )
    nodes = {
        node: topology_pb2.Node(id=node, addresses=["10.0.0.1/32"], sensor_pod_target="127.0.0.1:1")
        for node in ("alpha", "bravo")
    }
    nodes["mute"] = topology_pb2.Node(id="mute", addresses=["10.0.0.2/32"])
    add = registry_pb2_grpc.add_RegistryServicer_to_server
    settings = BaseServiceSettings(grpc_listen="127.0.0.1:0", _env_file=None)  # type: ignore[call-arg]
    async with rpc.serve([("chart.v1.Registry", add, registry)], settings) as server:
        more = {"inference_active_valid_s": 10.0, "registry_target": f"127.0.0.1:{server.port}"}
        settings_now = Bench(**more).settings
        asker = Asker(lambda: settings_now)
        pairs = [wanted("alpha", "bravo"), wanted("alpha", "bravo", "rtt_min_us"), wanted("mute", "alpha")]
        await asker.ask(pairs, nodes, 1000)
        assert set(registry.taken) == {"theirs", "inference-alpha-bravo-ping"}, "what an earlier life left is gone"
        assert asker.asked == {("alpha", "bravo"): 10_001_000}
        await asker.ask([wanted("bravo", "alpha")], nodes, 9_000_000)
        assert len(registry.taken) == 3
        del registry.taken["inference-bravo-alpha-ping"]
        await asker.ask([], nodes, 30_000_000)
        assert set(registry.taken) == {"theirs"}
        asker.forget(30_000_000)
        assert not asker.asked
    # A registry that is away is no error.
    await asker.ask([wanted("alpha", "bravo")], nodes, 40_000_000)
    assert not asker.asked


async def test_operators_switch_asking_on_and_off_while_it_runs() -> None:
    registry = Registry()  # type: ignore[abstract]  # what a servicer leaves out answers UNIMPLEMENTED
    add = registry_pb2_grpc.add_RegistryServicer_to_server
    settings = BaseServiceSettings(grpc_listen="127.0.0.1:0", _env_file=None)  # type: ignore[call-arg]
    async with rpc.serve([("chart.v1.Registry", add, registry)], settings) as server:
        bench = Bench(registry_target=f"127.0.0.1:{server.port}")
        await bench.line()
        await bench.measure("alpha", "bravo", 2000.0)
        async with bench.running() as inference:

            async def estimated() -> bool:
                await bench.clock.advance(0.3)
                return bool(inference.metrics)

            await eventually(estimated)
            assert not registry.taken
            wish = PlatformSettings(id="platform", inference_active_pairs=1, inference_active_priority=77)
            await bench.broker.publish("chart.platform-settings.v1", "platform", wish)

            async def asked() -> bool:
                await bench.clock.advance(0.3)
                return bool(registry.taken)

            await eventually(asked)
            assert {one.priority for one in registry.taken.values()} == {77}


async def test_meshes_are_told_what_to_measure_next() -> None:
    bench = Bench(inference_wanted_pairs=2)
    await bench.line()
    await bench.measure("alpha", "bravo", 2000.0)
    async with bench.running():
        state = await bench.broker.compacted(WANTED_PAIRS)

        def wanted() -> set[frozenset[str]]:
            found = state.get("rtt_us")
            pairs = found.pairs if isinstance(found, WantedPairs) else ()
            return {frozenset((one.source_node, one.destination_node)) for one in pairs}

        async def told(without: frozenset[str] | None = None) -> bool:
            await bench.clock.advance(1.0)
            return len(wanted()) == 2 and without not in wanted()

        await eventually(told)
        assert frozenset(("alpha", "bravo")) not in wanted()
        # What has been measured makes room for another.
        done = next(iter(wanted()))
        first, second = sorted(done)
        await bench.measure(first, second, 5000.0)
        await eventually(lambda: told(without=done))
        await state.close()


async def test_nothing_is_asked_for_by_default() -> None:
    assert InferenceSettings(_env_file=None).inference_active_pairs == 0  # type: ignore[call-arg]
