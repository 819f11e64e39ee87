"""Keeps the rate requests of a cluster's pods as they are asked for, and tells the cluster how it stands with them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from datetime import UTC, datetime

import structlog
from prometheus_client import Counter, Gauge

from chart.common import runtime
from chart.common.clock import Clock
from chart.common.kubernetes import ApiServer, KubernetesError, NotThereError, Object
from chart.rate_controller import decisions, events
from chart.rate_controller.asks import FINALIZER, GROUP, VERSION, Ask, Fault, Key, asked
from chart.rate_controller.collection import Collection, of_pod, of_request
from chart.rate_controller.decisions import Existing, Outcome, Plan, Refusal
from chart.rate_controller.gateway import AwayError, GatewayClient, RefusedError
from chart.rate_controller.settings import RateControllerSettings

PODS = "/api/v1/pods"
REQUESTS = f"/apis/{GROUP}/{VERSION}/raterequests"
# Calls to the gateway and to the API server at the same time.
CALLS = 8
AWAY_PAUSE_S = (1.0, 30.0)

ASKED = Gauge("chart_rate_controller_asked", "Rates for pods that annotations and RateRequests ask for.")
STATES = Gauge("chart_rate_controller_pods", "Pods with a rate asked for, by the state of it.", ["state"])
AWAY = Counter("chart_rate_controller_away_total", "Rounds that ended because gateway or API server did not answer.")

_log = structlog.get_logger("chart.rate_controller")


class Controller:
    """Run by `run`; ``ready`` once the cluster was read and the gateway answered."""

    def __init__(self, settings: RateControllerSettings, api: ApiServer, gateway: GatewayClient, clock: Clock) -> None:
        self._settings, self._api, self._gateway, self._clock = settings, api, gateway, clock
        self._news = asyncio.Event()
        self._pods = Collection(api, PODS, of_pod, self._news.set)
        self._requests = Collection(api, REQUESTS, of_request, self._news.set, own="status")
        self._refused: dict[Key, Refusal] = {}
        # What was told of last, by whom it is about: an event is written when it changes.
        self._told: dict[Key, Outcome] = {}
        self._calls = asyncio.Semaphore(CALLS)
        self.ready = False

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        await runtime.run_together(self._pods.run(), self._requests.run(), self._rounds())

    async def _rounds(self) -> None:
        await self._pods.read.wait()
        await self._requests.read.wait()
        pause_s = AWAY_PAUSE_S[0]
        while True:
            self._news.clear()
            try:
                wait_s = await self.round()
                pause_s = AWAY_PAUSE_S[0]
                self.ready = True
            except (AwayError, KubernetesError) as error:
                _log.warning("a round ends early, trying again", reason=str(error), pause_s=pause_s)
                AWAY.inc()
                if isinstance(error, AwayError):
                    await self._tell_unreachable(str(error))
                wait_s, pause_s = pause_s, min(2 * pause_s, AWAY_PAUSE_S[1])
                await self._clock.sleep(wait_s)
                continue
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def round(self) -> float:
        """Compare and mend once; returns the seconds after which to do so again, if nothing happens before.

        Raises:
            AwayError: the gateway cannot be asked.
            KubernetesError: the API server cannot.
        """
        # Before anything is asked for: what has a finalizer is not forgotten.
        requests = [one for one in self._requests.objects.values() if await self._held(one)]
        asks, faults = asked(self._pods.objects.values(), requests)
        ASKED.set(len(asks) + len(faults))
        plan = decisions.plan(asks, await self._gateway.live(), self._settings.cluster_name)
        await self._carry_out(plan)
        self._refused = {key: one for key, one in self._refused.items() if asks.get(key) == one.ask}
        found = decisions.outcomes(asks, faults, plan.kept, self._refused)
        self._count(found.values())
        await self._tell(requests, found, [*asks.values(), *faults])
        if not decisions.settled(found.values()):
            return self._settings.settling_s
        again_s = (one.again_s - self._now_s() for one in self._refused.values())
        return max(self._settings.settling_s, min([*again_s, self._settings.resync_s]))

    async def _held(self, request: Object) -> bool:
        """Whether a RateRequest has our finalizer, which it is given here."""
        about = request["metadata"]
        held = about.get("finalizers") or []
        if FINALIZER in held or about.get("deletionTimestamp"):
            return True
        try:
            # With the uid the API server refuses to change one that was made anew under the same name.
            await self._patch(request, {"metadata": {"uid": about["uid"], "finalizers": [*held, FINALIZER]}})
        except KubernetesError as error:
            _log.info("a RateRequest is left for later", name=about["name"], reason=str(error))
            return False
        about["finalizers"] = [*held, FINALIZER]
        return True

    async def _carry_out(self, plan: Plan) -> None:
        async def release(one: Existing) -> None:
            try:
                await self._gateway.release(one)
            except RefusedError as error:
                _log.warning("a rate cannot be given back", request=one.id, reason=str(error))
                raise AwayError(str(error)) from error

        async def change(one: Existing, ask: Ask) -> None:
            plan.kept[ask.key] = await self._gateway.change(one, ask)

        async def create(ask: Ask) -> None:
            plan.kept[ask.key] = await self._gateway.create(ask)

        await self._together(release(one) for one in plan.release)
        await self._together(self._tried(ask, change(one, ask)) for one, ask in plan.change if self._may_ask(ask))
        await self._together(self._tried(ask, create(ask)) for ask in plan.create if self._may_ask(ask))

    def _may_ask(self, ask: Ask) -> bool:
        known = self._refused.get(ask.key)
        return known is None or known.ask != ask or known.again_s <= self._now_s()

    async def _tried(self, ask: Ask, call: Awaitable[None]) -> None:
        """One call; a refusal is remembered with the time of the next try."""
        try:
            await call
            self._refused.pop(ask.key, None)
        except RefusedError as error:
            known = self._refused.get(ask.key)
            tries = known.tries + 1 if known is not None and known.ask == ask else 1
            pause_s = min(self._settings.retry_first_s * 2 ** min(tries - 1, 16), self._settings.retry_last_s)
            self._refused[ask.key] = Refusal(ask, str(error), tries, self._now_s() + pause_s)

    async def _together(self, calls: Iterable[Awaitable[None]]) -> None:
        """Calls beside each other, as many as may be; all are made, then the first fault is raised."""

        async def one(call: Awaitable[None]) -> None:
            async with self._calls:
                await call

        for error in await asyncio.gather(*(one(call) for call in calls), return_exceptions=True):
            if isinstance(error, BaseException):
                raise error

    def _count(self, found: Iterable[Outcome]) -> None:
        counts: dict[str, int] = {}
        for one in found:
            counts[one.state] = counts.get(one.state, 0) + 1
        STATES.clear()
        for state, count in counts.items():
            STATES.labels(state).set(count)

    async def _tell(self, requests: list[Object], found: dict[Key, Outcome], about: list[Ask | Fault]) -> None:
        names = {one["metadata"]["uid"]: one["metadata"]["name"] for one in requests}
        now = _now()
        for one in about:
            outcome = found[one.key]
            if self._told.get(one.key) == outcome or not events.worth_telling(outcome):
                continue
            namespace, document = events.event(one, outcome, now, names)
            try:
                await events.tell(self._api, namespace, document)
            except KubernetesError as error:
                _log.info("an event is not taken", reason=str(error))
            self._told[one.key] = outcome
        self._told = {key: outcome for key, outcome in self._told.items() if key in found}
        await self._together(self._state(one, decisions.status(one, found, now)) for one in requests)

    async def _tell_unreachable(self, words: str) -> None:
        requests = list(self._requests.objects.values())
        try:
            await self._together(self._state(one, decisions.status(one, {}, _now(), words)) for one in requests)
        except KubernetesError as error:
            _log.warning("the state of RateRequests is not told", reason=str(error))

    async def _state(self, request: Object, status: Object) -> None:
        """Write the status of a RateRequest if it is another one; let one that is deleted go, once nothing is left."""
        about = request["metadata"]
        if about.get("deletionTimestamp"):
            unreachable = status["state"] == "Unknown"
            if FINALIZER in (about.get("finalizers") or []) and not unreachable:
                rest = [one for one in about["finalizers"] if one != FINALIZER]
                await self._patch(request, {"metadata": {"uid": about["uid"], "finalizers": rest}})
            return
        if request["status"] == status:
            return
        await self._patch(request, {"metadata": {"uid": about["uid"]}, "status": status}, "/status")
        request["status"] = status

    async def _patch(self, request: Object, change: Object, part: str = "") -> None:
        about = request["metadata"]
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{about['namespace']}/raterequests/{about['name']}{part}"
        try:
            await self._api.ask("PATCH", path, change)
        except NotThereError:
            # It is gone; the watch tells so too.
            return

    def _now_s(self) -> float:
        return self._clock.monotonic()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def remove_finalizers(api: ApiServer) -> int:
    """Let every RateRequest of the cluster go, when no controller is left that would; returns how many had ours.

    Raises:
        KubernetesError: the API server cannot be asked.
    """
    try:
        listed = await api.ask("GET", REQUESTS)
    except NotThereError:
        return 0
    held = [one for one in listed["items"] if FINALIZER in (one["metadata"].get("finalizers") or [])]
    for one in held:
        about = one["metadata"]
        rest = [name for name in about["finalizers"] if name != FINALIZER]
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{about['namespace']}/raterequests/{about['name']}"
        await api.ask("PATCH", path, {"metadata": {"finalizers": rest}})
    return len(held)
