"""gRPC of reservations: ask for a rate, hold, commit, change, release, preview, follow, list; paths and capacities."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import structlog
from prometheus_client import Counter
from ulid import ULID

from chart.common import rpc, telemetry
from chart.common.clock import Clock
from chart.common.rpc import Registration
from chart.common.rpc_errors import RefusalError, conflict, invalid
from chart.reservations import engine, quotas, rates, reading, service, validation
from chart.reservations.admission import FOREVER_US, Refused
from chart.reservations.admissions import Admissions
from chart.reservations.answers import AnswerCalls
from chart.reservations.callbacks import Callbacks
from chart.reservations.jobs import Alter, Create, IdempotencyKey, Step, spending_of
from chart.reservations.quotas import Spending, Use
from chart.reservations.rates import Change
from chart.reservations.repository import Filter, Repository
from chart.reservations.reservation import Reservation, Timing, wanted_bps
from chart.reservations.rpc_network import NetworkCalls
from chart.reservations.view import NetworkView
from chart.reservations.watch import Watch
from chart.v1 import reservations_pb2 as pb
from chart.v1 import reservations_pb2_grpc
from chart.v1.rate_request_pb2 import Lifecycle, RateRequestSpecification

DEFAULT_PAGE = 50
LARGEST_PAGE = 500
LONGEST_KEY = 255
LONGEST_SEARCH = 200
LONGEST_WAIT_S = 30.0

ASKED = Counter("chart_reservations_requests_total", "Requests for a rate, by outcome", ["outcome"])
GRANTED, REPLAYED = ASKED.labels(outcome="granted"), ASKED.labels(outcome="replayed")

_log = structlog.get_logger("chart.reservations")


class ReservationsServicer(NetworkCalls, AnswerCalls, reservations_pb2_grpc.ReservationsServicer):
    """Answers from topology, policy and the database."""

    def __init__(
        self,
        repository: Repository,
        admissions: Admissions,
        callbacks: Callbacks,
        view: NetworkView,
        timing: Timing,
        clock: Clock,
        watch: Watch,
    ) -> None:
        NetworkCalls.__init__(self, repository, view, clock)
        AnswerCalls.__init__(self, repository.pool, repository.idempotency_us, clock)
        self._admissions = admissions
        self._callbacks = callbacks
        self._timing = timing
        self._watch = watch

    async def CreateRateRequest(  # noqa: N802 - named by the interface
        self, request: pb.CreateRateRequestRequest, context: Any
    ) -> pb.CreateRateRequestResponse:
        """Admit and commit a request, or hold it."""
        now_us = self._clock.now_us()
        if len(request.idempotency_key) > LONGEST_KEY:
            raise invalid("idempotency_key", f"at most {LONGEST_KEY} characters")
        try:
            checked = self._check(request.specification, now_us)
            key = None
            if request.idempotency_key:
                fingerprint = validation.body_hash(request.specification)
                key = IdempotencyKey(request.owner, request.idempotency_key, fingerprint)
            traceparent = telemetry.inject({}).get("traceparent", "")
            job = Create(str(ULID()), request.owner, checked, traceparent, self._timing, key)
            result = await self._admissions.submit(job)
        except RefusalError as error:
            ASKED.labels(outcome=error.refusal.code).inc()
            _log.info("refused a request", code=error.refusal.code, reason=error.refusal.detail, owner=request.owner)
            raise
        (REPLAYED if result.replayed else GRANTED).inc()
        if result.replayed is not None:
            return pb.CreateRateRequestResponse(rate_request=result.replayed, replayed=True)
        assert result.request is not None
        answer = result.message or service.rate_request(result.request)
        if telemetry.recorded() or result.decision.losers:
            # Of many at once only some: the audit has all of them.
            _log.info(
                "granted a request",
                request=answer.id,
                bps=answer.granted_bps,
                path=list(answer.link_ids),
                instead_of=list(result.decision.losers),
            )
        return pb.CreateRateRequestResponse(rate_request=answer)

    async def PreviewRateRequest(  # noqa: N802
        self, request: pb.PreviewRateRequestRequest, context: Any
    ) -> pb.PreviewRateRequestResponse:
        """What CreateRateRequest would answer now."""
        now_us = self._clock.now_us()
        try:
            checked = self._check(request.specification, now_us)
            ask = checked.ask
            priority = checked.specification.preemption_priority
            await self._check_quota(Spending(request.owner, 1, ask.guaranteed_bps, priority, ask.end_us), now_us)
        except RefusalError as error:
            return pb.PreviewRateRequestResponse(granted=False, refusal=error.refusal)
        found = await reading.preview(self._repository.pool, self._view.network, ask, now_us)
        answer = service.preview(found.decision, found.windows, len(found.losers))
        if checked.ask.kind:
            answer.granted_bps = 0
        return answer

    async def CommitRateRequest(  # noqa: N802
        self, request: pb.CommitRateRequestRequest, context: Any
    ) -> pb.CommitRateRequestResponse:
        """Commit a held request; one that is committed already stays as it is."""
        now_us = self._clock.now_us()
        await self._repository.get(request.id, request.owner)
        actor = request.owner or rpc.actor(context)
        step = Step(request.id, actor, lambda one: service.commit(one, now_us, self._timing))
        committed = (await self._admissions.submit(step)).request
        assert committed is not None
        if committed.lifecycle not in (Lifecycle.LIFECYCLE_RESERVED, Lifecycle.LIFECYCLE_ACTIVE):
            raise _ended(committed, "committed")
        return pb.CommitRateRequestResponse(rate_request=service.rate_request(committed))

    async def ChangeRateRequest(  # noqa: N802
        self, request: pb.ChangeRateRequestRequest, context: Any
    ) -> pb.ChangeRateRequestResponse:
        """Change in service."""
        now_us = self._clock.now_us()
        before = await self._repository.get(request.id, request.owner)
        change = _change(request)
        self._check_change(before, change, request.expected_revision, now_us)
        asked = rates.asked_anew(before, change)
        if request.preview:
            return await self._preview_change(before, asked, change, now_us)

        def permitted(one: Reservation) -> None:
            self._check_change(one, change, request.expected_revision, now_us)

        actor = request.owner or rpc.actor(context)
        result = await self._admissions.submit(Alter(request.id, actor, change, self._timing, permitted))
        assert result.request is not None
        _log.info("changed a request", request=request.id, bps=result.request.granted_bps, actor=actor)
        answer = pb.ChangeRateRequestResponse(rate_request=service.rate_request(result.request))
        if result.decision.granted is not None:
            answer.preview.CopyFrom(service.preview(result.decision.granted, [], len(result.decision.losers)))
        return answer

    async def GetRateRequest(  # noqa: N802
        self, request: pb.GetRateRequestRequest, context: Any
    ) -> pb.GetRateRequestResponse:
        """One request; waits for its next revision if asked to."""

        def read() -> Coroutine[Any, Any, Reservation]:
            return self._repository.get(request.id, request.owner)

        wait_s = min(request.wait_us / 1e6, LONGEST_WAIT_S)
        if wait_s > 0:
            reservation = await self._watch.newer(read, request.id, request.known_revision, wait_s)
        else:
            reservation = await read()
        return pb.GetRateRequestResponse(rate_request=service.rate_request(reservation))

    async def ListRateRequests(  # noqa: N802
        self, request: pb.ListRateRequestsRequest, context: Any
    ) -> pb.ListRateRequestsResponse:
        """Requests, newest first, in pages."""
        size = min(request.page_size or DEFAULT_PAGE, LARGEST_PAGE)
        for name in ("cursor", "search", "link_id"):
            if "\x00" in getattr(request, name):
                raise invalid(name, "no NUL" if name != "cursor" else "not a cursor of an earlier page")
        if len(request.search) > LONGEST_SEARCH:
            raise invalid("search", f"at most {LONGEST_SEARCH} characters")
        wanted = Filter(
            request.owner,
            request.lifecycle,
            request.enforcement,
            request.service_state,
            request.callback_state,
            dict(request.tags),
            request.search,
            request.link_id,
            request.updated_since_us,
        )
        found, cursor = await self._repository.page(wanted, size, request.cursor)
        return pb.ListRateRequestsResponse(
            rate_requests=[service.rate_request(one) for one in found], next_cursor=cursor
        )

    async def ReleaseRateRequest(  # noqa: N802
        self, request: pb.ReleaseRateRequestRequest, context: Any
    ) -> pb.ReleaseRateRequestResponse:
        """Release a request; one that has ended is left unchanged."""
        now_us = self._clock.now_us()
        await self._repository.get(request.id, request.owner)
        actor = request.owner or rpc.actor(context)
        step = Step(request.id, actor, lambda one: service.release(one, now_us, self._timing))
        released = (await self._admissions.submit(step)).request
        assert released is not None
        _log.info("released a request", request=request.id)
        return pb.ReleaseRateRequestResponse(rate_request=service.rate_request(released))

    async def GetReceipt(self, request: pb.GetReceiptRequest, context: Any) -> pb.GetReceiptResponse:  # noqa: N802
        """What was granted and delivered."""
        receipt, complete = await self._repository.receipt(request.id, request.owner, self._clock.now_us())
        return pb.GetReceiptResponse(receipt=receipt, complete=complete)

    async def ListCallbacks(  # noqa: N802
        self, request: pb.ListCallbacksRequest, context: Any
    ) -> pb.ListCallbacksResponse:
        """Notices, newest first, in pages."""
        if request.request_id:
            await self._repository.get(request.request_id, request.owner)
        size = min(request.page_size or DEFAULT_PAGE, LARGEST_PAGE)
        found, cursor = await self._callbacks.page(
            request.request_id, request.owner, request.state, size, request.cursor
        )
        return pb.ListCallbacksResponse(callbacks=found, next_cursor=cursor)

    async def RetryCallback(  # noqa: N802
        self, request: pb.RetryCallbackRequest, context: Any
    ) -> pb.RetryCallbackResponse:
        """Send a notice again."""
        actor = request.owner or rpc.actor(context)
        return pb.RetryCallbackResponse(callback=await self._callbacks.retry(request.id, request.owner, actor))

    async def GetCallbackSecret(  # noqa: N802
        self, request: pb.GetCallbackSecretRequest, context: Any
    ) -> pb.GetCallbackSecretResponse:
        """The secret that an application's notices are signed with."""
        return await self._callbacks.secret(request.owner, rotate=request.rotate, actor=rpc.actor(context))

    async def PutQuota(self, request: pb.PutQuotaRequest, context: Any) -> pb.PutQuotaResponse:  # noqa: N802
        """Set the quota of an application."""
        quota, created = await self._repository.put_quota(
            quotas.checked(request.quota), request.expected_revision, rpc.actor(context)
        )
        return pb.PutQuotaResponse(quota=quotas.message(quota), created=created)

    async def DeleteQuota(self, request: pb.DeleteQuotaRequest, context: Any) -> pb.DeleteQuotaResponse:  # noqa: N802
        """Remove a quota."""
        await self._repository.delete_quota(request.owner, rpc.actor(context))
        return pb.DeleteQuotaResponse()

    async def ListQuotas(self, request: pb.ListQuotasRequest, context: Any) -> pb.ListQuotasResponse:  # noqa: N802
        """Every quota with what its owner has."""
        found, uses = await self._repository.quotas()
        ordered = [found[owner] for owner in sorted(found)]
        return pb.ListQuotasResponse(
            quotas=[quotas.message(one) for one in ordered],
            uses=[
                pb.QuotaUse(requests=use.requests, total_bps=use.total_bps)
                for use in (uses.get(one.owner, Use()) for one in ordered)
            ],
        )

    def _check(self, specification: RateRequestSpecification, now_us: int) -> validation.CheckedRequest:
        network = self._view.network
        checked = validation.check(specification, network, 0, now_us)
        ceiling_bps = self._view.max_guaranteed_bps(checked.ask.source_node)
        return validation.check(specification, network, ceiling_bps, now_us) if ceiling_bps else checked

    def _check_change(self, one: Reservation, change: Change, expected_revision: int, now_us: int) -> None:
        """Raise what stands against a change."""
        if expected_revision and one.revision != expected_revision:
            raise conflict(f"the request has revision {one.revision}, not {expected_revision}")
        if not one.live or now_us >= one.end_us:
            raise _ended(one, "changed")
        ceiling_bps = self._view.max_guaranteed_bps(one.source_node)
        validation.check_changed(rates.asked_anew(one, change), change.of_rate, ceiling_bps, now_us)

    async def _check_quota(self, spending: Spending, now_us: int) -> None:
        owner = spending.owner
        async with self._repository.pool.connection() as connection:
            known = await reading.quotas_of(connection, [owner])
            quota = quotas.of(owner, known)
            if quota is None:
                return
            use = (await reading.uses_of(connection, [owner])).get(owner, Use())
        quotas.check(quota, use, spending, now_us)

    async def _preview_change(
        self, before: Reservation, asked: Reservation, change: Change, now_us: int
    ) -> pb.ChangeRateRequestResponse:
        spending = spending_of(change, before)
        if spending is not None:
            try:
                await self._check_quota(spending, now_us)
            except RefusalError as error:
                refused = pb.PreviewRateRequestResponse(granted=False, refusal=error.refusal)
                return pb.ChangeRateRequestResponse(preview=refused)
        if not change.of_rate or not wanted_bps(asked.specification):
            return pb.ChangeRateRequestResponse(
                preview=pb.PreviewRateRequestResponse(granted=True, granted_bps=before.granted_bps)
            )
        ask = engine.ask_for_change(before, asked, now_us)
        found = await reading.preview(
            self._repository.pool, self._view.network, ask, now_us, before.id, before.commitments
        )
        assert isinstance(found.decision, Refused) or found.decision.links
        answer = service.preview(found.decision, found.windows, len(found.losers))
        return pb.ChangeRateRequestResponse(preview=answer)


def _ended(one: Reservation, what: str) -> RefusalError:
    name = Lifecycle.Name(Lifecycle.ValueType(one.lifecycle)).removeprefix("LIFECYCLE_")
    refusal = pb.Refusal(
        code="request-ended",
        detail=f"the request is {name}{': ' + one.reason if one.reason else ''}; it cannot be {what}",
        suggestions=["create a new request; `chart request clone` copies its values"],
    )
    return RefusalError(refusal)


def _change(request: pb.ChangeRateRequestRequest) -> Change:
    """What is set in a call."""

    def stated(name: str) -> Any:
        return getattr(request, name) if request.HasField(name) else None  # type: ignore[arg-type]  # one of its fields

    end_us = stated("end_us")
    return Change(
        stated("guaranteed_bps"),
        stated("minimum_bps"),
        stated("maximum_bps"),
        FOREVER_US if end_us == 0 else end_us,
        stated("preemption_priority"),
        stated("description"),
        stated("callback_url"),
        dict(request.tags.tags) if request.HasField("tags") else None,
    )


def registration(servicer: ReservationsServicer) -> Registration:
    """What `chart.common.rpc.serve` needs."""
    name = pb.DESCRIPTOR.services_by_name["Reservations"].full_name
    return name, reservations_pb2_grpc.add_ReservationsServicer_to_server, servicer
