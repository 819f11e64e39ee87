"""Streams of the pod: configurations, topology and leases in; that it is there and what it could use out.
(Measurements out: publisher.py.)

Without the broker the pod goes on with what its repository holds; the streams are read as soon as it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from google.protobuf.message import Message

from chart.common.clock import Clock
from chart.common.compacted import CompactedState
from chart.common.streams import Broker, StreamError
from chart.sensor_pod.applications import LimitExceededError
from chart.sensor_pod.model import InvalidConfigurationError
from chart.sensor_pod.pod import Pod
from chart.v1 import sensing_configuration_pb2, topology_pb2
from chart.v1.probe_lease_pb2 import ProbeLeases
from chart.v1.sensor_pod_state_pb2 import ProbedLink, SensorPodState

CONFIGURATIONS = "chart.sensing-configuration.v1"
TOPOLOGY = "chart.topology.v1"
LEASES = "chart.probe-lease.v1"
STATE = "chart.sensor-pod-state.v1"
# The registry takes a pod that reports nothing for three times this for gone.
REPORT_EVERY_S = 2.0
BACK_OFF_S = (0.5, 15.0)
AT_A_TIME = 50

_log = structlog.get_logger("chart.sensor_pod.streams")

Follow = Callable[[CompactedState], Awaitable[None]]


class ControlStreams:
    """Follows both streams into the pod."""

    def __init__(self, broker: Broker, pod: Pod, clock: Clock) -> None:
        self._broker = broker
        self._pod = pod
        self._clock = clock
        # Configurations beyond their applications' limits, by id: other limits may let them in.
        self._refused: dict[str, sensing_configuration_pb2.SensingConfiguration] = {}
        self._limits_changed = asyncio.Event()

    def limits_changed(self) -> None:
        """Applications have other limits from now on."""
        self._limits_changed.set()

    async def run_refused(self) -> None:
        """Offer what was beyond its limits again whenever these changed, until cancelled."""
        while True:
            await self._limits_changed.wait()
            self._limits_changed.clear()
            for identity in list(self._refused):
                # Taken away or changed meanwhile.
                if (waiting := self._refused.get(identity)) is not None:
                    await self._apply_configuration(identity, waiting)

    async def run_configurations(self) -> None:
        """Follow configurations of this node until cancelled."""
        await self._keep(CONFIGURATIONS, self._follow_configurations)

    async def run_topology(self) -> None:
        """Follow links until cancelled."""
        await self._keep(TOPOLOGY, self._follow_topology)

    async def run_state(self) -> None:
        """Report until cancelled that the pod is there."""
        failing = False
        while True:
            self._pod.renew_leases()
            state = SensorPodState(
                node=self._pod.node,
                reported_at_us=self._clock.now_us(),
                probes=[ProbedLink(link_id=link, wanted_bytes=size) for link, size in self._pod.wanted().items()],
            )
            try:
                await self._broker.publish(STATE, self._pod.node, state)
                failing = False
            except StreamError as error:
                if not failing:
                    _log.warning("nobody learns that the pod is there", reason=str(error))
                failing = True
            await self._clock.sleep(REPORT_EVERY_S)

    async def _keep(self, topic: str, follow: Follow) -> None:
        back_off_s = BACK_OFF_S[0]
        while True:
            try:
                state = await self._broker.compacted(topic)
                back_off_s = BACK_OFF_S[0]
                try:
                    await follow(state)
                finally:
                    await state.close()
                reason = "the stream ended"
            except StreamError as error:
                reason = str(error)
            _log.warning("going on with what is known", topic=topic, reason=reason, again_in_s=back_off_s)
            await self._clock.sleep(back_off_s)
            back_off_s = min(2 * back_off_s, BACK_OFF_S[1])

    async def _follow_configurations(self, state: CompactedState) -> None:
        changes = state.subscribe_changes()
        try:
            present = dict(state.items())
            gone = [known.id for known in self._pod.configurations("stream") if known.id not in present]
            await self._pod.remove(gone)
            for number, (identity, value) in enumerate(present.items(), 1):
                await self._apply_configuration(identity, value)
                if number % AT_A_TIME == 0:
                    await asyncio.sleep(0)  # runs that are due meanwhile start
            _log.info("sensing configurations are read", removed=len(gone), configured=len(self._pod.configurations()))
            async for identity, change in changes:
                await self._apply_configuration(identity, change)
        finally:
            await changes.aclose()

    async def _apply_configuration(self, identity: str, value: Message | None) -> None:
        self._refused.pop(identity, None)
        if not isinstance(value, sensing_configuration_pb2.SensingConfiguration) or value.source_node != self._pod.node:
            # A tombstone, or it moved to another node.
            if self._pod.origin(identity) == "stream":
                await self._pod.remove([identity])
            return
        try:
            await self._pod.put(value, "stream")
        except InvalidConfigurationError as error:
            _log.error("a configuration cannot be run", configuration=identity, reason=str(error))
        except LimitExceededError as error:
            self._refused[identity] = value
            _log.warning(
                "a configuration is beyond its application's limits", configuration=identity, reason=str(error)
            )
            await self._pod.note_refusal(identity, str(error))

    async def run_leases(self) -> None:
        """Follow this pod's leases until cancelled."""
        await self._keep(LEASES, self._follow_leases)

    async def _follow_leases(self, state: CompactedState) -> None:
        changes = state.subscribe_changes(with_current=True)
        try:
            async for node, value in changes:
                if node == self._pod.node:
                    self._pod.take_leases(value if isinstance(value, ProbeLeases) else ProbeLeases())
        finally:
            await changes.aclose()

    async def _follow_topology(self, state: CompactedState) -> None:
        changes = state.subscribe_changes()
        try:
            self._take_topology(state)
            async for _ in changes:
                self._take_topology(state)
        finally:
            await changes.aclose()

    def _take_topology(self, state: CompactedState) -> None:
        entities = [value for _, value in state.items() if isinstance(value, topology_pb2.TopologyEntity)]
        nodes = sum(1 for entity in entities if entity.HasField("node"))
        self._pod.set_topology((entity.link for entity in entities if entity.HasField("link")), nodes)
