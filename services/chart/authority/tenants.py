"""Which addresses applications may be authorised for: those of their tenants, as the registry states them."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import cast

import structlog

from chart.common.ownership import End, Ownership, end_words, own_prefix
from chart.common.problems import ProblemError
from chart.common.retries import for_ever
from chart.common.streams import Broker, CompactedState, StreamError
from chart.v1 import tenant_pb2, topology_pb2

TENANT = "chart.tenant.v1"
TOPOLOGY = "chart.topology.v1"
RETRY_S = 2.0

_log = structlog.get_logger("chart.authority.tenants")


class Owners:
    """What belongs to which tenant, as far as the streams say."""

    def __init__(self) -> None:
        self._ownership: Ownership | None = None

    async def follow(self, broker: Broker) -> None:
        """Keep up with tenants and nodes until cancelled."""

        def told(error: Exception, in_s: float) -> None:
            _log.warning("tenants cannot be followed, trying again", reason=str(error), in_s=in_s)

        async def follow() -> None:
            states = [await broker.compacted(topic) for topic in (TENANT, TOPOLOGY)]
            try:
                async with asyncio.TaskGroup() as tasks:
                    for state in states:
                        tasks.create_task(self._watch(state, *states))
            except* StreamError as errors:
                raise errors.exceptions[0] from None
            finally:
                for state in states:
                    await state.close()

        await for_ever(follow, StreamError, told, RETRY_S)

    async def _watch(self, state: CompactedState, tenants: CompactedState, topology: CompactedState) -> None:
        self.take(tenants, topology)
        async for _ in state.subscribe_changes():
            self.take(tenants, topology)
        msg = "the stream ended"
        raise StreamError(msg)

    def take(self, tenants: CompactedState, topology: CompactedState) -> None:
        """Reckon anew from what the streams say."""
        entities = (cast(topology_pb2.TopologyEntity, entity) for _, entity in topology.items())
        nodes = {
            one.node.id: tuple(own for text in one.node.addresses if (own := own_prefix(text)) is not None)
            for one in entities
            if one.HasField("node")
        }
        self._ownership = Ownership.of((cast(tenant_pb2.Tenant, one) for _, one in tenants.items()), nodes)

    def check(self, address: str, owner: str, caller: tenant_pb2.Caller) -> None:
        """Refuse an address that does not belong to the caller's tenant.

        Raises:
            ProblemError: 403 with what belongs to it; 503 before the tenants are known.
        """
        if caller.operator:
            return
        found = self._ownership
        if found is None:
            raise ProblemError(
                503, "Service unavailable", "The tenants cannot be read yet.", suggestions=["Try again in 2 s."]
            )
        tenant = found.tenant_of(owner, caller)
        end = End("destination", "", (ipaddress.ip_network(address),), 0, 0)
        if found.owns(tenant, end):
            return
        stated = found.tenants.get(tenant)
        owned = [end_words(one) for one in stated.ends][:5] if stated is not None else []
        words = f"it owns {', '.join(owned)}" if owned else "it owns nothing"
        raise ProblemError(
            403,
            "Not authorised",
            f"The address {address} does not belong wholly to {owner}'s tenant {tenant}; {words}.",
            field="client_address",
            suggestions=[f"Use an address of {one}." for one in owned]
            or [f"An operator lets it belong to a tenant: chart tenant set NAME --member {owner} --own prefix=PREFIX."],
            kind="foreign-selector",
        )
