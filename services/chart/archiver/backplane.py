"""Loops of the backplane: roll-ups, changes of paths, alerts, snapshots; each a loop that waits for the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import psycopg_pool
import structlog
from prometheus_client import Counter, Gauge, Histogram

from chart.archiver import alerts, change
from chart.archiver.alert_repository import AlertRepository
from chart.archiver.repository import Repository
from chart.archiver.rollup_repository import BATCH, RollupRepository
from chart.archiver.settings import ArchiverSettings
from chart.archiver.snapshot_repository import Snapshot, SnapshotRepository
from chart.archiver.times import day_of
from chart.archiver.windows import SECONDS, Path
from chart.common.clock import Clock
from chart.common.platform_settings import PlatformView
from chart.common.retries import until_done

BACK_OFF_S = (0.5, 15.0)
FORGET_EVERY_S = 3600.0
# How often it is looked whether a snapshot is due; the period may change meanwhile.
LOOK_FOR_SNAPSHOT_S = 5.0
RECHECK_US = 2 * 3_600_000_000
SCHEDULE = "schedule"

ROLLED = Counter("chart_archiver_rollups_total", "Minutes and hours computed, repetitions included", ["resolution"])
CHANGES = Counter("chart_archiver_path_changes_total", "Lasting changes of a path's level that were found")
ALERTS = Counter("chart_archiver_alerts_total", "Records of alerts that fired or were resolved")
FIRING = Gauge("chart_archiver_firing_alerts_count", "Alerts that fire")
SNAPSHOTS = Counter("chart_archiver_snapshots_total", "Snapshots of all pairs")
LOOK = Histogram("chart_archiver_backplane_seconds", "Time of one look", ["loop"])

_AWAY = (psycopg.OperationalError, psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests, OSError)

_log = structlog.get_logger("chart.archiver.backplane")


class Backplane:
    """The loops."""

    def __init__(
        self,
        tables: Repository,
        rollups: RollupRepository,
        alert_repository: AlertRepository,
        snapshots: SnapshotRepository,
        clock: Clock,
        settings: ArchiverSettings,
        platform: PlatformView | None = None,
    ) -> None:
        """``settings``: what this process was started with; what operators set for the platform goes before."""
        self._tables = tables
        self._rollups = rollups
        self._alerts = alert_repository
        self._snapshots = snapshots
        self._clock = clock
        self._settings = settings
        self._platform = platform or PlatformView()
        # Paths with minutes that were computed since they were judged last; bounded by the paths there are.
        self._news: dict[Path, None] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        settings = self._settings
        loops: list[tuple[str, float, Callable[[], Awaitable[object]]]] = [
            ("rollup", settings.rollup_period_s, self.roll),
            ("change", settings.change_period_s, self.find_changes),
            ("alert", settings.alert_period_s, self.look_for_alerts),
            ("forget", FORGET_EVERY_S, self.forget),
            ("snapshot", LOOK_FOR_SNAPSHOT_S, self.scheduled_snapshot),
        ]
        async with asyncio.TaskGroup() as group:
            for name, period_s, work in loops:
                group.create_task(self._keep(name, period_s, work), name=f"backplane {name}")

    async def _keep(self, name: str, period_s: float, work: Callable[[], Awaitable[object]]) -> None:
        async def look() -> None:
            with LOOK.labels(loop=name).time():
                await work()

        def told(error: Exception, again_in_s: float) -> None:
            _log.warning("waiting for the database", loop=name, reason=str(error), again_in_s=again_in_s)

        while True:
            await until_done(look, _AWAY, told, BACK_OFF_S, sleep=self._clock.sleep)
            await self._clock.sleep(period_s)

    async def roll(self) -> int:
        """Bring every roll-up that is out of date up to date; returns how many there were."""
        done = 0
        now_us = self._clock.now_us()
        while stored := await self._tables.store_minutes(now_us, BATCH):
            done += stored
            ROLLED.labels(resolution="link-minute").inc(stored)
            if stored < BATCH:
                break
        for resolution in SECONDS:
            while windows := await self._rollups.roll(resolution):
                done += len(windows)
                ROLLED.labels(resolution=resolution).inc(len(windows))
                if resolution == "minute":
                    self._news.update((window.path, None) for window in windows)
                if len(windows) < BATCH:
                    break
        return done

    async def find_changes(self) -> int:
        """Judge the paths with news, a bounded number at a time; returns how many changes are new."""
        paths = list(self._news)[: self._settings.change_paths]
        if not paths:
            return 0
        now_us = self._clock.now_us()
        since_us = now_us - round(self._settings.change_hours * 3600e6)
        known = await self._rollups.medians(paths, since_us)
        # The change point search is arithmetic: beside the loop, not in it.
        verdicts = await asyncio.to_thread(lambda: [change.judge(series) for series in known])
        fresh = await self._rollups.judge([one for one in verdicts if one is not None], now_us)
        for path in paths:
            self._news.pop(path, None)
        CHANGES.inc(len(fresh))
        for verdict in fresh:
            if verdict.change is not None:
                _log.info("a path changed", path=verdict.path, before=verdict.change.before, after=verdict.change.after)
        return len(fresh)

    async def look_for_alerts(self) -> int:
        """Compare rules with what is known; returns how many records were queued."""
        rules = await self._alerts.rules()
        known = await self._alerts.open_alerts()
        if not rules and not known:
            return 0
        now_us = self._clock.now_us()
        states = await self._alerts.states(sorted({rule.metric for rule in rules}), now_us) if rules else []
        steps = alerts.steps(alerts.findings(rules, states, now_us), known, now_us)
        told = await self._alerts.carry_out(steps, now_us) if steps else 0
        ALERTS.inc(told)
        FIRING.set(len(await self._alerts.listing(firing=True, subject="", limit=10_000)))
        return told

    async def scheduled_snapshot(self) -> Snapshot | None:
        """Take a snapshot when the last one is older than the period that holds now; with a period of 0 none."""
        period_s = self._platform.applied(self._settings).snapshot_period_s
        if not period_s:
            return None
        return await self.snapshot(SCHEDULE, unless_since_us=self._clock.now_us() - round(period_s * 1e6))

    async def snapshot(self, reason: str, *, unless_since_us: int = 0) -> Snapshot | None:
        """Take a snapshot."""
        settings = self._settings
        taken = await self._snapshots.take(
            self._clock.now_us(),
            reason,
            round(settings.snapshot_age_s * 1e6),
            settings.snapshots_kept,
            unless_since_us=unless_since_us,
        )
        if taken is not None:
            SNAPSHOTS.inc()
            _log.info("took a snapshot of all pairs", snapshot=taken.id, rows=taken.rows, reason=reason)
        return taken

    async def forget(self) -> None:
        """Drop what nobody needs any more."""
        # An archiver of an earlier version, at work until a moment ago, noted none.
        await self._tables.recheck_minutes(self._clock.now_us() - RECHECK_US)
        days = self._settings.rollup_hour_retention_days
        await self._rollups.forget(day_of(self._clock.now_us()), days)
        await self._alerts.forget(self._clock.now_us() - self._settings.audit_retention_days * 86_400_000_000)
