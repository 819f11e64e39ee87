"""What passed by lately: audit records and flow records, the newest of each, in bounded memory.

The streams keep more than this (90 days and one day); a gateway that starts reads the audit from the beginning and
keeps its end, and hears of a flow when its node next speaks of it (every minute and at the flow's end).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from chart.common.clock import Clock
from chart.common.records import Start
from chart.common.retries import for_ever
from chart.common.streams import Broker
from chart.v1 import audit_pb2, flow_record_pb2

AUDIT = "chart.audit.v1"
FLOW_RECORD = "chart.flow-record.v1"

AUDIT_MAX = 10_000
FLOWS_MAX = 10_000
RETRY_S = 2.0

_log = structlog.get_logger("chart.gateway")

FlowKey = tuple[str, int, str, int, str, int, int]


@dataclass(frozen=True)
class Flow:
    """The newest record of a flow, and what it sent per second since the record before (or since it began)."""

    record: flow_record_pb2.FlowRecord
    sent_bps: float
    delivered_bps: float


def flow_key(record: flow_record_pb2.FlowRecord) -> FlowKey:
    """What tells one flow from another: node, protocol, both ends, and when it began (ports are used again)."""
    return (
        record.node,
        record.protocol,
        record.source_address,
        record.source_port,
        record.destination_address,
        record.destination_port,
        record.started_at_us,
    )


class Observed:
    """Records in, the newest out. Pure but for `loops`."""

    def __init__(self, *, audit_max: int = AUDIT_MAX, flows_max: int = FLOWS_MAX) -> None:
        self._audit: deque[audit_pb2.AuditRecord] = deque(maxlen=audit_max)
        self._audit_ids: set[str] = set()
        self._flows: OrderedDict[FlowKey, Flow] = OrderedDict()
        self._flows_max = flows_max

    def note_audit(self, record: audit_pb2.AuditRecord) -> None:
        """Keep a record; one that is delivered twice is kept once."""
        if record.id in self._audit_ids:
            return
        if len(self._audit) == self._audit.maxlen:
            self._audit_ids.discard(self._audit[0].id)
        self._audit.append(record)
        self._audit_ids.add(record.id)

    def note_flow(self, record: flow_record_pb2.FlowRecord) -> None:
        """Keep the newest record of a flow; the flow with the oldest record makes room."""
        key = flow_key(record)
        known = self._flows.pop(key, None)
        if known is not None and known.record.ended_at_us >= record.ended_at_us:
            # Delivered twice, or late: nothing new.
            self._flows[key] = known
            return
        since_us = known.record.ended_at_us if known else record.started_at_us
        sent, delivered = (known.record.sent_bytes, known.record.delivered_bytes) if known is not None else (0, 0)
        seconds = max(record.ended_at_us - since_us, 1) / 1e6
        self._flows[key] = Flow(
            record,
            sent_bps=max(0, record.sent_bytes - sent) * 8 / seconds,
            delivered_bps=max(0, record.delivered_bytes - delivered) * 8 / seconds,
        )
        while len(self._flows) > self._flows_max:
            self._flows.popitem(last=False)

    def audit(self, *, subject: str = "", actor: str = "", action: str = "") -> Iterator[audit_pb2.AuditRecord]:
        """The newest first; empty matches anything, ``action`` also the beginning of one ("rate-request")."""
        for record in sorted(self._audit, key=lambda one: one.at_us, reverse=True):
            if (
                subject in ("", record.subject)
                and actor in ("", record.actor)
                and (action in ("", record.action) or record.action.startswith(f"{action}."))
            ):
                yield record

    def flows(self, *, node: str = "", running: bool = False) -> list[Flow]:
        """Highest rate first."""
        found = [
            one for one in self._flows.values() if node in ("", one.record.node) and not (running and one.record.final)
        ]
        return sorted(found, key=lambda one: (-one.delivered_bps, -one.record.delivered_bytes))

    def loops(self, broker: Broker, clock: Clock) -> list[Coroutine[Any, Any, None]]:
        """Endless coroutines that feed this from the streams."""
        return [self._follow(broker, clock, AUDIT, "earliest"), self._follow(broker, clock, FLOW_RECORD, "latest")]

    async def _follow(self, broker: Broker, clock: Clock, topic: str, start: Start) -> None:
        """Follow; when it fails, say so and begin anew after a pause."""

        async def follow() -> None:
            async with broker.subscribe((topic,), start=start) as records:
                async for record in records:
                    if isinstance(record.value, audit_pb2.AuditRecord):
                        self.note_audit(record.value)
                    elif isinstance(record.value, flow_record_pb2.FlowRecord):
                        self.note_flow(record.value)

        def told(error: Exception, in_s: float) -> None:
            _log.warning("cannot follow a stream, trying again", topic=topic, error=str(error), in_s=in_s)

        # Whatever the error is, the next attempt may succeed and REST goes on.
        await for_ever(follow, Exception, told, RETRY_S, sleep=clock.sleep)
