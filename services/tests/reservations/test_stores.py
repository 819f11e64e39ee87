"""The stories of every database of reservations, told to PostgreSQL by two real replicas (the one in memory:
simulation/test_repository.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
import pytest_asyncio

from chart.common import rpc
from chart.common.rpc import RefusalError
from chart.reservations.decisions.rates import Change
from chart.v1 import flow_grant_pb2
from chart.v1 import rate_request_pb2 as rr
from chart.v1 import reservations_pb2 as pb
from support import stores
from support.postgres import PostgresServer
from support.reservations import LINKS, Platform, Replica, running

pytestmark = pytest.mark.contract


class Postgres:
    """A `stores.Store` over real replicas."""

    def __init__(self, platform: Platform, replicas: list[Replica], story: str) -> None:
        self._platform = platform
        self._story = story
        self.calls: list[tuple[Any, Any]] = [one.stub() for one in replicas]

    async def create(self, wanted: rr.RateRequestSpecification, key: str, replica: int = 0) -> rr.RateRequest:
        # Keys outlive a story.
        request = pb.CreateRateRequestRequest(
            specification=wanted, owner="alice", idempotency_key=f"{self._story} {key}"
        )
        with rpc.refusals():
            return cast(rr.RateRequest, (await self.calls[replica][1].CreateRateRequest(request)).rate_request)

    async def release(self, request_id: str, owner: str = "alice", replica: int = 0) -> rr.RateRequest:
        request = pb.ReleaseRateRequestRequest(id=request_id, owner=owner)
        with rpc.refusals():
            return cast(rr.RateRequest, (await self.calls[replica][1].ReleaseRateRequest(request)).rate_request)

    async def commit(self, request_id: str) -> rr.RateRequest:
        request = pb.CommitRateRequestRequest(id=request_id, owner="alice")
        with rpc.refusals():
            return cast(rr.RateRequest, (await self.calls[0][1].CommitRateRequest(request)).rate_request)

    async def change(self, request_id: str, wanted: Change) -> rr.RateRequest | None:
        assert wanted == Change(guaranteed_bps=wanted.guaranteed_bps)
        request = pb.ChangeRateRequestRequest(id=request_id, owner="alice", guaranteed_bps=wanted.guaranteed_bps)
        try:
            with rpc.refusals():
                return cast(rr.RateRequest, (await self.calls[0][1].ChangeRateRequest(request)).rate_request)
        except RefusalError as error:
            if error.refusal.code != "insufficient-capacity":
                raise
            return None

    async def get(self, request_id: str) -> rr.RateRequest:
        answer = await self.calls[0][1].GetRateRequest(pb.GetRateRequestRequest(id=request_id))
        return cast(rr.RateRequest, answer.rate_request)

    async def confirm(self, grant: flow_grant_pb2.FlowGrant, node: str, *, removed: bool = False) -> None:
        await self._platform.status(grant, node, 4 if removed else 1)

    async def nothing_drains(self) -> None:
        """Every node removed every grant."""
        draining = "SELECT id, generation, confirming_nodes FROM rate_request WHERE draining <> ''"
        with psycopg.connect(self._platform.database_url, autocommit=True) as connection:
            for identity, generation, nodes in connection.execute(draining).fetchall():
                for node in nodes:
                    grant = flow_grant_pb2.FlowGrant(request_id=identity, generation=generation)
                    await self.confirm(grant, node, removed=True)

            async def over() -> bool:
                return not connection.execute("SELECT 1 FROM link WHERE draining <> '[]'").fetchall()

            await stores.until(over, "nothing drains")

    def grant(self, request_id: str) -> flow_grant_pb2.FlowGrant | None:
        return cast("flow_grant_pb2.FlowGrant | None", self._platform.grants.get(request_id))

    async def committed(self) -> dict[str, int]:
        with psycopg.connect(self._platform.database_url) as connection:
            rows = connection.execute(
                "SELECT link_id, sum(rate_bps) FROM commitment WHERE request_id NOT LIKE 'lease:%' GROUP BY 1"
            ).fetchall()
        return dict.fromkeys(LINKS, 0) | {link_id: int(total) for link_id, total in rows}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replicas(
    kafka_bootstrap: str, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Platform, list[Replica]]]:
    directory: Path = tmp_path_factory.mktemp("stores")
    async with running(kafka_bootstrap, postgres, directory) as platform:
        found = [platform.replica(name) for name in ("one", "two")]
        for one in found:
            one.start()
        yield platform, found
        for one in found:
            one.process.stop()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("story", stores.STORIES, ids=lambda story: story.__name__)
async def test_stories(
    story: Callable[[stores.Store], Awaitable[None]],
    replicas: tuple[Platform, list[Replica]],
    postgres: PostgresServer,
) -> None:
    platform, found = replicas
    store = Postgres(platform, found, story.__name__)
    try:
        await story(store)
    finally:
        # The next story begins with nothing reserved.
        with psycopg.connect(platform.database_url) as connection:
            live = connection.execute("SELECT id FROM rate_request WHERE lifecycle IN (1, 2, 3)").fetchall()
        for (identity,) in live:
            await store.release(identity)
        await store.nothing_drains()
        for channel, _ in store.calls:
            await channel.close()
