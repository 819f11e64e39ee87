"""The stories of every database of reservations, told to the one in memory."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from chart.reservations.decisions import messages
from chart.reservations.decisions.in_band import LeaseRule
from chart.reservations.decisions.ledger import LinkCommitment
from chart.reservations.decisions.rates import Change
from chart.reservations.decisions.reservation import Timing
from chart.v1 import flow_grant_pb2, grant_status_pb2, topology_pb2
from chart.v1 import rate_request_pb2 as rr
from chart_lab.simulation.broker import SimulatedBroker, Stored
from chart_lab.simulation.callbacks import Receivers
from chart_lab.simulation.database import Database
from chart_lab.simulation.loop import pretend
from chart_lab.simulation.repository import FLOW_GRANT
from chart_lab.simulation.reservations import GRANT_STATUS, TOPOLOGY, Replica
from support import simulated, stores
from support.reservations import LINKS, MEGA, NODES


class Memory:
    """A `stores.Store` over the simulation's parts."""

    def __init__(self, bench: simulated.Bench) -> None:
        self._bench = bench
        self._broker = SimulatedBroker(bench.loop, random.Random(1))
        self._database = Database(bench.loop, random.Random(2))
        self._processes = [bench.process(name) for name in ("one", "two")]
        # Nothing is kept free for in-band asks, so that all of a link may be reserved.
        rule = LeaseRule(idle_share=0.0)
        receivers = Receivers(bench.loop, random.Random(3), lambda identity, body: None)
        self._replicas = [
            Replica(one, self._broker, self._database, Timing(), rule, receivers) for one in self._processes
        ]
        self._agents = self._broker.client(bench.process("agents"))
        for number, node in enumerate(NODES):
            self._state(node, node=topology_pb2.Node(id=node, addresses=[f"192.0.2.{number}"]))
        for identity, (origin, target) in zip(LINKS, itertools.pairwise(NODES), strict=True):
            link = topology_pb2.Link(id=identity, from_node=origin, to_node=target, capacity_bps=100 * MEGA)
            self._state(identity, link=link)

    def _state(self, key: str, node: topology_pb2.Node | None = None, link: topology_pb2.Link | None = None) -> None:
        entity = topology_pb2.TopologyEntity(node=node, link=link)
        self._broker.append(TOPOLOGY, Stored(key, entity.SerializeToString(), {}, self._bench.loop.now_us))

    async def open(self) -> None:
        self._coordinator = asyncio.ensure_future(self._broker.coordinate())
        for process, replica in zip(self._processes, self._replicas, strict=True):
            await process.spawn(replica.open())
            process.spawn(replica.run())

    async def create(self, wanted: rr.RateRequestSpecification, key: str, replica: int = 0) -> rr.RateRequest:
        call = self._replicas[replica].create("alice", wanted, key)
        return cast(rr.RateRequest, await self._processes[replica].spawn(call))

    async def release(self, request_id: str, owner: str = "alice", replica: int = 0) -> rr.RateRequest:
        call = self._replicas[replica].release(owner, request_id)
        return cast(rr.RateRequest, await self._processes[replica].spawn(call))

    async def commit(self, request_id: str) -> rr.RateRequest:
        return cast(rr.RateRequest, await self._processes[0].spawn(self._replicas[0].commit("alice", request_id)))

    async def change(self, request_id: str, wanted: Change) -> rr.RateRequest | None:
        call = self._replicas[0].change("alice", request_id, wanted)
        return cast("rr.RateRequest | None", await self._processes[0].spawn(call))

    async def get(self, request_id: str) -> rr.RateRequest:
        return messages.rate_request(self._database.table("rate_request")[request_id]["reservation"])

    async def confirm(self, grant: flow_grant_pb2.FlowGrant, node: str, *, removed: bool = False) -> None:
        state = grant_status_pb2.GRANT_STATE_REMOVED if removed else grant_status_pb2.GRANT_STATE_APPLIED
        status = grant_status_pb2.GrantStatus(
            request_id=grant.request_id,
            node=node,
            generation=grant.generation,
            state=state,
            applied_at_us=self._bench.loop.now_us,
        )
        await self._agents.publish(GRANT_STATUS, f"{grant.request_id},{node}", status)

    def grant(self, request_id: str) -> flow_grant_pb2.FlowGrant | None:
        return cast("flow_grant_pb2.FlowGrant | None", self._broker.value(FLOW_GRANT, request_id))

    async def committed(self) -> dict[str, int]:
        found = dict.fromkeys(LINKS, 0)
        for (name, link_id, _), row in self._database.table("commitment").items():
            if not name.startswith("lease"):
                found[link_id] += LinkCommitment(**row).committed_bps
        return found


@pytest.mark.parametrize("story", stores.STORIES, ids=lambda story: story.__name__)
def test_stories(story: Callable[[stores.Store], Awaitable[None]]) -> None:
    bench = simulated.Bench()

    async def tell() -> None:
        memory = Memory(bench)
        await memory.open()
        await story(memory)

    with pretend(bench.loop, 1):
        bench.run(tell)
