"""The streams of the service: tunnel reports, grants, topology and estimates in, commands out.

Reports are shared among replicas by tunnel (consumer group, key: tunnel); a report of the past is of no use, so nothing
is committed. What operators stated is read from the database again and again, so that every replica knows it; without
the database the last known holds. Commands go out directly: each is a lease, the next period brings another.
"""

from __future__ import annotations

import asyncio
from typing import cast

import psycopg
import psycopg_pool
import structlog
from prometheus_client import Counter, Gauge, Histogram

from chart.common import runtime
from chart.common.clock import Clock, SystemClock
from chart.common.database import Pool
from chart.common.streams import Broker, CompactedState, StreamError
from chart.tunnels import repository
from chart.tunnels.service import Target, TunnelControl, target_of
from chart.tunnels.settings import TunnelsSettings
from chart.v1 import estimate_pb2, flow_grant_pb2, topology_pb2, tunnel_command_pb2, tunnel_report_pb2, tunnels_pb2

REPORT = "chart.tunnel-report.v1"
COMMAND = "chart.tunnel-command.v1"
FLOW_GRANT = "chart.flow-grant.v1"
TOPOLOGY = "chart.topology.v1"
ESTIMATE = "chart.estimate.v1"
STATES = (COMMAND, FLOW_GRANT, TOPOLOGY, ESTIMATE)
CAPACITY_METRIC = "capacity_bps"

REPORTS = Counter("chart_tunnels_reports_total", "Reports taken")
REFUSED = Counter(
    "chart_tunnels_refused_reports_total", "Reports of another node than the origin, or of more tunnels than allowed"
)
COMMANDS = Counter("chart_tunnels_commands_total", "Commands acknowledged by the broker")
UNSENT = Counter("chart_tunnels_command_failures_total", "Commands that the broker did not acknowledge")
TUNNELS = Gauge("chart_tunnels_known_tunnels", "Tunnels that this replica works for or that something is stated of")
RATE = Gauge("chart_tunnels_rate_bits_per_second", "What a tunnel carried in its last period", ["tunnel"])
TARGET = Gauge("chart_tunnels_target_bits_per_second", "B* of a tunnel, 0: none", ["tunnel"])
DOWN = Gauge(
    "chart_tunnels_down_ratio",
    "1: a tunnel that operators set is not reported to this replica, or has no peer",
    ["tunnel"],
)
CONNECTIONS = Gauge("chart_tunnels_connections", "m as commanded", ["tunnel"])
CHANGES = Counter("chart_tunnels_connection_changes_total", "Connections opened and closed by command", ["tunnel"])
GUARDED = Counter("chart_tunnels_guarded_periods_total", "Periods in which the guard kept m", ["tunnel"])
DECIDE = Histogram(
    "chart_tunnels_decide_seconds",
    "Decision on one report",
    buckets=(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.02),
)

_log = structlog.get_logger("chart.tunnels")

# A tunnel without settings is forgotten after so many times the silence from which one is shown as silent.
FORGOTTEN = 3


class Tunnels:
    """The running service of one replica."""

    def __init__(self, broker: Broker, pool: Pool, settings: TunnelsSettings, clock: Clock | None = None) -> None:
        self._broker = broker
        self._pool = pool
        self._settings = settings
        self._clock = clock or SystemClock()
        self._states: dict[str, CompactedState] = {}
        self._stated = False
        self._publishing: dict[str, asyncio.Task[None]] = {}
        self.tunnels: dict[str, TunnelControl] = {}
        # Tunnels that carry nothing, and those that are exported.
        self._down: set[str] = set()
        self._exported: set[str] = set()

    @property
    def ready(self) -> bool:
        """Whether every state that decisions need is held, and what operators stated has been read."""
        return len(self._states) == len(STATES) and all(one.ready for one in self._states.values()) and self._stated

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            StreamUnavailable: a state could not be read at the start; the supervisor tries again.
        """
        for topic in STATES:
            self._states[topic] = await self._broker.compacted(topic)
        try:
            await runtime.run_together(self._keep_settings(), self._take_reports())
        finally:
            for task in self._publishing.values():
                task.cancel()

    # ------------------------------------------------------------ what operators state

    async def _keep_settings(self) -> None:
        while True:
            try:
                await self.read_settings()
            except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
                _log.warning("what is stated of tunnels cannot be read; the last known holds", reason=str(error))
            self._note_down()
            await self._clock.sleep(self._settings.tunnel_settings_period_s)

    def _note_down(self) -> None:
        """Export which tunnels carry nothing, and say so once."""
        now_us = self._clock.now_us()
        for name, control in self.tunnels.items():
            reason = control.down(now_us, self._settings.tunnel_silence_us)
            DOWN.labels(tunnel=name).set(bool(reason))
            if reason and name not in self._down:
                _log.warning("a tunnel carries nothing", tunnel=name, reason=reason)
            elif name in self._down and not reason:
                _log.info("a tunnel carries again", tunnel=name)
            (self._down.add if reason else self._down.discard)(name)
        for name in self._exported - self.tunnels.keys():
            DOWN.remove(name)
            self._down.discard(name)
        self._exported = set(self.tunnels)

    async def read_settings(self) -> None:
        """Read everything that is stated."""
        async with self._pool.connection() as connection:
            stated = {one.tunnel: one for one in await repository.listing(connection)}
        for name in stated.keys() | self.tunnels.keys():
            self.use(name, stated.get(name))
        self._stated = True

    def use(self, name: str, stated: tunnels_pb2.TunnelSettings | None) -> None:
        """What is stated of one tunnel now; None: nothing."""
        known = self.tunnels.get(name)
        if known is None:
            if stated is None:
                return
            known = self._new(name)
        if known.settings is not None and stated is not None and stated.revision < known.settings.revision:
            return  # read before the change that this replica made itself
        if known.use(stated):
            what = "no longer controlled" if stated is None else "stated anew"
            _log.info("a tunnel is " + what, tunnel=name, revision=stated.revision if stated else 0)
        if stated is None and known.forgotten(self._clock.now_us(), FORGOTTEN * self._settings.tunnel_silence_us):
            del self.tunnels[name]
        TUNNELS.set(len(self.tunnels))

    def _new(self, name: str) -> TunnelControl:
        made = TunnelControl(
            name, periods=self._settings.tunnel_history_periods, steps=self._settings.tunnel_history_steps
        )
        last = self._states[COMMAND].get(name) if COMMAND in self._states else None
        if last is not None:
            # So that generations go on growing.
            made.command = cast(tunnel_command_pb2.TunnelCommand, last)
        self.tunnels[name] = made
        return made

    # ------------------------------------------------------------ reports

    async def _take_reports(self) -> None:
        group = self._settings.tunnels_group
        async with self._broker.subscribe([REPORT], group=group, start="latest") as reports:
            async for record in reports:
                if record.value is not None:
                    self.take(cast(tunnel_report_pb2.TunnelReport, record.value))
        raise StreamError("the reports of tunnels are no longer followed")

    def take(self, report: tunnel_report_pb2.TunnelReport) -> None:
        """One report: decide, and publish the command."""
        control = self.tunnels.get(report.tunnel)
        if control is None:
            if not report.tunnel or len(self.tunnels) >= self._settings.tunnels_maximum:
                REFUSED.inc()
                return
            control = self._new(report.tunnel)
            TUNNELS.set(len(self.tunnels))
            _log.info("works for a tunnel: its reports arrive", tunnel=report.tunnel, origin=report.origin_node)
        now_us = self._clock.now_us()
        if control.of_another(report, now_us, self._settings.tunnel_silence_us):
            REFUSED.inc()
            _log.warning(
                "a report of another node than the tunnel's origin",
                tunnel=report.tunnel,
                origin=control.report.origin_node if control.report else "",
                reported_by=report.origin_node,
            )
            return
        REPORTS.inc()
        with DECIDE.time():
            target = self.target(control, now_us)
            capacity_bps = self.capacity_bps(control, report)
            command = control.take(report, target, capacity_bps, now_us, self._settings.tunnel_lease_us)
        RATE.labels(tunnel=control.name).set(control.rate_bps)
        TARGET.labels(tunnel=control.name).set(control.target.bps)
        if command is None:
            return
        CONNECTIONS.labels(tunnel=control.name).set(command.connections)
        if command.connections:
            CHANGES.labels(tunnel=control.name).inc(abs(command.connections - report.connections_wanted))
        if control.history and control.history[-1].guarded:
            GUARDED.labels(tunnel=control.name).inc()
        if control.name in self._publishing:
            # The broker is slow or away: the command of the next period says what then holds.
            UNSENT.inc()
            return
        task = asyncio.create_task(self._publish(command), name="publish tunnel command")
        self._publishing[control.name] = task

    async def _publish(self, command: tunnel_command_pb2.TunnelCommand) -> None:
        try:
            await self._broker.publish(COMMAND, command.tunnel, command)
        except StreamError as error:
            UNSENT.inc()
            _log.warning(
                "a command was not published; the tunnel keeps its m", tunnel=command.tunnel, reason=str(error)
            )
        else:
            COMMANDS.inc()
        finally:
            self._publishing.pop(command.tunnel, None)

    # ------------------------------------------------------------ targets and capacities

    def _grant(self, control: TunnelControl) -> flow_grant_pb2.FlowGrant | None:
        if control.settings is None or not control.settings.request_id:
            return None
        return cast("flow_grant_pb2.FlowGrant | None", self._states[FLOW_GRANT].get(control.settings.request_id))

    def target(self, control: TunnelControl, now_us: int) -> Target:
        """B* of a tunnel now."""
        if control.settings is None:
            return control.target
        return target_of(control.settings, self._grant(control), now_us)

    def capacity_bps(self, control: TunnelControl, report: tunnel_report_pb2.TunnelReport) -> int:
        """C: stated, or the smallest link of the grant's path, or estimated between the ends; 0: not known."""
        if control.settings is not None and control.settings.capacity_bps:
            return control.settings.capacity_bps
        grant = self._grant(control)
        capacities = [self._link_bps(link_id) for link_id in grant.link_ids] if grant is not None else []
        if capacities and all(capacities):
            return min(capacities)
        key = f"{report.origin_node},{report.destination_node},{CAPACITY_METRIC}"
        estimate = cast("estimate_pb2.Estimate | None", self._states[ESTIMATE].get(key))
        return round(estimate.value) if estimate is not None and estimate.value > 0 else 0

    def _link_bps(self, link_id: str) -> int:
        entity = cast("topology_pb2.TopologyEntity | None", self._states[TOPOLOGY].get(link_id))
        return entity.link.capacity_bps if entity is not None else 0

    def show(self, name: str, *, whole: bool) -> tunnels_pb2.Tunnel | None:
        """One tunnel as gRPC tells it; None: unknown."""
        control = self.tunnels.get(name)
        if control is None:
            return None
        return control.show(self._clock.now_us(), self._settings.tunnel_silence_us, whole=whole)
