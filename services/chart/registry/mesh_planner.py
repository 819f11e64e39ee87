"""Turns meshes into sensing configurations, and does so anew when nodes, links, meshes or sensor pods come and go.

Every replica plans by the same functions from the same facts; one at a time writes (advisory lock), and only what
differs from what is stored. Sensor pods read the configurations from their stream and need nothing of this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import psycopg
import structlog
from prometheus_client import Gauge, Histogram

from chart.common import audit, database
from chart.common.database import Connection
from chart.common.streams import Broker
from chart.registry import mesh_layout, repository, streams
from chart.registry.presence import Presence
from chart.registry.repository import LINK, NODE, SENSING_CONFIGURATION, SENSING_MESH, Stored
from chart.v1.sensing_configuration_pb2 import SensingConfiguration
from chart.v1.sensing_mesh_pb2 import MeshPlan, SensingMesh
from chart.v1.sensor_pod_state_pb2 import SensorPodState
from chart.v1.wanted_pairs_pb2 import WantedPairs

POD_STATE = "chart.sensor-pod-state.v1"
WANTED_PAIRS = "chart.wanted-pairs.v1"
LOOK_EVERY_S = 0.5
RETRY_S = 5.0

CONFIGURED = Gauge("chart_registry_mesh_configurations", "Sensing configurations made of a mesh", ["mesh"])
DURATION = Histogram("chart_registry_mesh_plan_seconds", "From looking at what changed to its configurations stored")

_log = structlog.get_logger("chart.registry.meshes")


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class MeshPlanner:
    """Keeps the configurations of all meshes as they should be."""

    def __init__(self, pool: database.Pool, now_us: Callable[[], int] = _now_us) -> None:
        self._pool = pool
        self._now_us = now_us
        self._presence = Presence()
        # What each pod could use of each link, bytes a minute.
        self._wanted: dict[str, dict[str, int]] = {}
        # What inference wants measured, by metric.
        self._wishes: dict[str, tuple[mesh_layout.Wish, ...]] = {}
        self._plans: dict[str, MeshPlan] = {}
        # Ids of the configurations of pairs that inference chose, as they were laid out last.
        self._chosen: set[str] = set()
        self._seen: object = None
        # Before it is known which pods report, every mesh would seem empty.
        self._listening = False

    def plan_of(self, mesh: str) -> MeshPlan:
        """What a mesh was laid out to last; empty before the first time."""
        return self._plans.get(mesh) or MeshPlan(slowest=1.0)

    async def follow(self, broker: Broker) -> None:
        """Take what sensor pods report, for ever."""
        state = await broker.compacted(POD_STATE)
        changes = state.subscribe_changes(with_current=False)
        try:
            stored = {node: value.reported_at_us for node, value in state.items() if isinstance(value, SensorPodState)}
            self._presence.stored(stored, self._now_us())
            self._listening = True
            async for node, value in changes:
                if isinstance(value, SensorPodState):
                    self._presence.heard(node, self._now_us())
                    self._wanted[node] = {one.link_id: one.wanted_bytes for one in value.probes}
                else:
                    self._presence.gone(node)
                    self._wanted.pop(node, None)
        finally:
            await changes.aclose()
            await state.close()

    async def follow_wishes(self, broker: Broker) -> None:
        """Take what inference wants measured, for ever."""
        state = await broker.compacted(WANTED_PAIRS)
        changes = state.subscribe_changes(with_current=True)
        try:
            async for metric, value in changes:
                found = value.pairs if isinstance(value, WantedPairs) else ()
                self._wishes[metric] = tuple(
                    mesh_layout.Wish(metric, one.source_node, one.destination_node) for one in found
                )
        finally:
            await changes.aclose()
            await state.close()

    def wanted(self) -> dict[str, dict[str, int]]:
        """What the pods that report could use of each link, bytes a minute by node and link."""
        reporting = self._presence.reporting()
        return {node: links for node, links in self._wanted.items() if node in reporting}

    async def run(self) -> None:
        """Plan when something changed, for ever."""
        while True:
            try:
                await self.look()
            except psycopg.Error as error:
                _log.warning("meshes not planned, trying again", reason=str(error), in_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> bool:
        """Plan if anything that plans follow from is not as it was at the last look; whether it was."""
        if not self._listening:
            return False
        reporting = self._presence.reporting()
        begun = time.monotonic()
        wishes = mesh_layout.in_turns(self._wishes)
        async with self._pool.connection() as connection:
            facts = (reporting, wishes, await repository.marks(connection, (NODE, LINK, SENSING_MESH)))
            if facts == self._seen:
                return False
            stated = [row.message for row in await repository.listing(connection, SENSING_MESH)]
            nodes = [row.message for row in await repository.listing(connection, NODE)]
            links = [row.message for row in await repository.listing(connection, LINK)]

        def all_plans() -> dict[str, mesh_layout.Plan]:
            return {mesh.id: mesh_layout.plan(mesh, nodes, links, reporting, wishes) for mesh in stated}

        plans = await asyncio.to_thread(all_plans)
        if not await self._store(stated, plans):
            return False
        self._seen = facts
        DURATION.observe(time.monotonic() - begun)
        return True

    async def _store(self, stated: list[SensingMesh], plans: dict[str, mesh_layout.Plan]) -> bool:
        """Bring the configurations of meshes in line; False: another replica is at it."""
        async with self._pool.connection() as connection, connection.transaction():
            if not await repository.try_lock(connection, "mesh-plan"):
                return False
            stored = await repository.configurations_of_meshes(connection)
            wanted = {identity: one for plan in plans.values() for identity, one in plan.configurations.items()}
            changed, removed = mesh_layout.differences(wanted, {key: row.message for key, row in stored.items()})
            kept = await repository.keep_nodes(connection)
            changed = [one for one in changed if one.source_node in kept and one.destination_node in kept]
            await _write(connection, changed, removed)
            touched = {one.mesh for one in changed} | {stored[identity].message.mesh for identity in removed}
            # Pairs that inference chose come and go every minute: told in the mesh's plan, not to the audit.
            chosen = {identity for plan in plans.values() for identity in plan.chosen}
            passing = chosen | self._chosen
            lasting = {one.mesh for one in changed if one.id not in passing}
            lasting |= {stored[identity].message.mesh for identity in removed if identity not in passing}
            for identity in sorted(lasting):
                counts = _counts(identity, changed, removed, stored)
                await audit.add(connection, "registry", "sensing_mesh.plan", identity, counts)
                _log.info("a mesh was laid out", mesh=identity, **counts)
        self._chosen = chosen
        now_us = time.time_ns() // 1000
        for mesh in stated:
            shown = plans[mesh.id].shown
            shown.changed_at_us = now_us if mesh.id in touched else self.plan_of(mesh.id).changed_at_us
            self._plans[mesh.id] = shown
            CONFIGURED.labels(mesh.id).set(shown.configurations)
        for gone in self._plans.keys() - plans.keys():
            del self._plans[gone]
            CONFIGURED.remove(gone)
        return True


async def _write(connection: Connection, changed: list[SensingConfiguration], removed: list[str]) -> None:
    revisions = await repository.next_revisions(connection, len(changed))
    async with connection.pipeline():
        for configuration, revision in zip(changed, revisions, strict=True):
            row = Stored(configuration, revision)
            await repository.put(connection, SENSING_CONFIGURATION, configuration.id, configuration, revision)
            await streams.announce(connection, SENSING_CONFIGURATION, configuration.id, row)
        for identity in removed:
            await repository.delete(connection, SENSING_CONFIGURATION, identity)
            await streams.announce(connection, SENSING_CONFIGURATION, identity, None)


async def remove(connection: Connection, mesh: str = "", node: str = "") -> None:
    """Delete the configurations of a mesh, or those of all meshes that name a node, in the caller's transaction."""
    found = await repository.configurations_of_meshes(connection, mesh, node)
    await _write(connection, [], list(found))


def _counts(
    mesh: str, changed: list[SensingConfiguration], removed: list[str], stored: dict[str, Stored[Any]]
) -> dict[str, int]:
    """What changed of one mesh, for the audit."""
    mine = [one.id for one in changed if one.mesh == mesh]
    return {
        "added": sum(1 for identity in mine if identity not in stored),
        "changed": sum(1 for identity in mine if identity in stored),
        "removed": sum(1 for identity in removed if stored[identity].message.mesh == mesh),
    }
