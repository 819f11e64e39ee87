"""gRPC of reservations: ask for a rate, hold, commit, change, release, preview, follow, list; paths and capacities."""

from __future__ import annotations

import functools
from collections.abc import Coroutine
from typing import Any

import structlog
from prometheus_client import Counter
from ulid import ULID

from chart.common import ownership, rpc, telemetry
from chart.common.clock import Clock
from chart.common.rpc import Registration
from chart.common.rpc_errors import RefusalError, conflict, invalid
from chart.reservations.decisions import engine, lifecycle, messages, quotas, rates, validation
from chart.reservations.decisions.admission import Granted, Refused
from chart.reservations.decisions.jobs import Alter, Create, IdempotencyKey, Step
from chart.reservations.decisions.quotas import Spending, Use
from chart.reservations.decisions.rates import Change
from chart.reservations.decisions.reservation import Reservation, Timing
from chart.reservations.edges.allowance_calls import AllowanceCalls
from chart.reservations.edges.answer_calls import AnswerCalls
from chart.reservations.edges.batches import Batches
from chart.reservations.edges.network_calls import NetworkCalls
from chart.reservations.edges.network_view import NetworkView
from chart.reservations.edges.watch import Watch
from chart.reservations.store import previews
from chart.reservations.store.allowances import Allowances
from chart.reservations.store.callbacks import Callbacks
from chart.reservations.store.idempotency import KeptAnswers
from chart.reservations.store.quotas import Quotas
from chart.reservations.store.repository import Filter, Repository
from chart.v1 import reservations_pb2 as pb
from chart.v1 import reservations_pb2_grpc
from chart.v1.rate_request_pb2 import Lifecycle, RateRequestSpecification
from chart.v1.tenant_pb2 import Caller

DEFAULT_PAGE = 50
LARGEST_PAGE = 500
LONGEST_KEY = 255
LONGEST_SEARCH = 200
LONGEST_WAIT_S = 30.0

ASKED = Counter("chart_reservations_requests_total", "Requests for a rate, by outcome", ["outcome"])
GRANTED, REPLAYED = ASKED.labels(outcome="granted"), ASKED.labels(outcome="replayed")

_log = structlog.get_logger("chart.reservations")


class ReservationsServicer(NetworkCalls, AnswerCalls, AllowanceCalls, reservations_pb2_grpc.ReservationsServicer):
    """Answers from topology, policy and the database."""

    def __init__(
        self,
        repository: Repository,
        batches: Batches,
        callbacks: Callbacks,
        view: NetworkView,
        timing: Timing,
        clock: Clock,
        watch: Watch,
    ) -> None:
        NetworkCalls.__init__(self, repository, view, clock)
        AnswerCalls.__init__(self, KeptAnswers(repository.pool, repository.idempotency_us), clock)
        AllowanceCalls.__init__(self, Allowances(repository.pool))
        self._quotas = Quotas(repository.pool)
        self._batches = batches
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
            checked = self._check(request.specification, request.owner, request.caller, now_us)
            key = None
            if request.idempotency_key:
                fingerprint = validation.body_hash(request.specification)
                key = IdempotencyKey(request.owner, request.idempotency_key, fingerprint)
            traceparent = telemetry.inject({}).get("traceparent", "")
            operator = request.caller.operator
            job = Create(str(ULID()), request.owner, checked, traceparent, self._timing, key, operator=operator)
            result = await self._batches.submit(job)
        except RefusalError as error:
            ASKED.labels(outcome=error.refusal.code).inc()
            _log.info("refused a request", code=error.refusal.code, reason=error.refusal.detail, owner=request.owner)
            raise
        (REPLAYED if result.replayed else GRANTED).inc()
        if result.replayed is not None:
            return pb.CreateRateRequestResponse(rate_request=result.replayed, replayed=True)
        assert result.request is not None
        answer = result.message or messages.rate_request(result.request)
        if telemetry.recorded() or result.decision.losers:
            # Of many at once only some: the audit has all of them.
            _log.info(
                "granted a request",
                **messages.logged(answer),
                instead_of=list(result.decision.losers),
            )
        return pb.CreateRateRequestResponse(rate_request=answer)

    async def PreviewRateRequest(  # noqa: N802
        self, request: pb.PreviewRateRequestRequest, context: Any
    ) -> pb.PreviewRateRequestResponse:
        """What CreateRateRequest would answer now."""
        now_us = self._clock.now_us()
        try:
            checked = self._check(request.specification, request.owner, request.caller, now_us)
            operator = request.caller.operator
            ask = (await self._quotas.check_new(request.owner, checked, now_us, operator=operator)).ask
        except validation.ContradictionError:
            raise
        except RefusalError as error:
            return pb.PreviewRateRequestResponse(granted=False, refusal=error.refusal)
        found = await previews.preview(self._repository.pool, self._view.network, ask, now_us, self._timing)
        return messages.preview(found.decision, found.windows, len(found.losers), found.waits_until_us)

    async def CommitRateRequest(  # noqa: N802
        self, request: pb.CommitRateRequestRequest, context: Any
    ) -> pb.CommitRateRequestResponse:
        """Commit a held request; one that is committed already stays as it is."""
        now_us = self._clock.now_us()
        await self._repository.get(request.id, request.owner)
        actor = request.owner or rpc.actor(context)
        step = Step(request.id, actor, lambda one: lifecycle.commit(one, now_us, self._timing), self._timing)
        committed = (await self._batches.submit(step)).request
        assert committed is not None
        if committed.lifecycle not in (Lifecycle.LIFECYCLE_RESERVED, Lifecycle.LIFECYCLE_ACTIVE):
            raise _ended(committed, "committed")
        return pb.CommitRateRequestResponse(rate_request=messages.rate_request(committed))

    async def ChangeRateRequest(  # noqa: N802
        self, request: pb.ChangeRateRequestRequest, context: Any
    ) -> pb.ChangeRateRequestResponse:
        """Change in service."""
        now_us = self._clock.now_us()
        before = await self._repository.get(request.id, request.owner)
        change = rates.change_of(request)

        def permitted(one: Reservation) -> None:
            self._check_change(one, change, request, now_us)

        if request.preview:
            permitted(before)
            spending = quotas.spending_of_change(change, before, operator=request.caller.operator)
            return await self._preview_change(before, rates.asked_anew(before, change), change, spending, now_us)

        actor = request.owner or rpc.actor(context)
        result = await self._batches.submit(
            Alter(request.id, actor, change, self._timing, permitted, request.caller.operator)
        )
        assert result.request is not None
        _log.info("changed a request", **messages.logged(result.request), actor=actor)
        answer = pb.ChangeRateRequestResponse(rate_request=messages.rate_request(result.request))
        if result.decision.granted is not None:
            preview = messages.preview(
                result.decision.granted, [], len(result.decision.losers), result.request.waits_until_us
            )
            answer.preview.CopyFrom(preview)
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
        return pb.GetRateRequestResponse(rate_request=messages.rate_request(reservation))

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
            rate_requests=[messages.rate_request(one) for one in found], next_cursor=cursor
        )

    async def ReleaseRateRequest(  # noqa: N802
        self, request: pb.ReleaseRateRequestRequest, context: Any
    ) -> pb.ReleaseRateRequestResponse:
        """Release a request; one that has ended is left unchanged."""
        now_us = self._clock.now_us()
        await self._repository.get(request.id, request.owner)
        actor = request.owner or rpc.actor(context)
        released_at = functools.partial(lifecycle.release, now_us=now_us, timing=self._timing)
        step = Step(request.id, actor, released_at, self._timing, starts=False)
        released = (await self._batches.submit(step)).request
        assert released is not None
        _log.info("released a request", request=request.id)
        return pb.ReleaseRateRequestResponse(rate_request=messages.rate_request(released))

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
        now_us = self._clock.now_us()
        actor = request.owner or rpc.actor(context)
        return pb.RetryCallbackResponse(callback=await self._callbacks.retry(request.id, request.owner, actor, now_us))

    async def GetCallbackSecret(  # noqa: N802
        self, request: pb.GetCallbackSecretRequest, context: Any
    ) -> pb.GetCallbackSecretResponse:
        """The secret that an application's notices are signed with."""
        return await self._callbacks.secret(
            request.owner, self._clock.now_us(), rotate=request.rotate, actor=rpc.actor(context)
        )

    async def PutQuota(self, request: pb.PutQuotaRequest, context: Any) -> pb.PutQuotaResponse:  # noqa: N802
        """Set the quota of an application."""
        quota, created = await self._quotas.put(
            quotas.checked(request.quota), request.expected_revision, rpc.actor(context)
        )
        return pb.PutQuotaResponse(quota=quotas.message(quota), created=created)

    async def DeleteQuota(self, request: pb.DeleteQuotaRequest, context: Any) -> pb.DeleteQuotaResponse:  # noqa: N802
        """Remove a quota."""
        await self._quotas.delete(request.owner, rpc.actor(context))
        return pb.DeleteQuotaResponse()

    async def ListQuotas(self, request: pb.ListQuotasRequest, context: Any) -> pb.ListQuotasResponse:  # noqa: N802
        """Every quota with what its owner has."""
        found, uses = await self._quotas.every()
        ordered = [found[owner] for owner in sorted(found)]
        return pb.ListQuotasResponse(
            quotas=[quotas.message(one) for one in ordered],
            uses=[
                pb.QuotaUse(requests=use.requests, total_bps=use.total_bps, held_bps=use.held_bps)
                for use in (uses.get(one.owner, Use()) for one in ordered)
            ],
        )

    def _check(
        self, specification: RateRequestSpecification, owner: str, caller: Caller, now_us: int
    ) -> validation.CheckedRequest:
        checked = validation.check(specification, self._view.network, now_us)
        validation.check_policy(checked.specification, self._view.max_guaranteed_bps(checked.ask.source_node))
        ends = ownership.ends_of(checked.selector, checked.ask.source_node, checked.ask.destination_node)
        self._view.ownership.check(owner, caller, ends)
        return checked

    def _check_change(
        self, one: Reservation, change: Change, request: pb.ChangeRateRequestRequest, now_us: int
    ) -> None:
        """Raise what stands against a change."""
        expected_revision = request.expected_revision
        if expected_revision and one.revision != expected_revision:
            raise conflict(f"the request has revision {one.revision}, not {expected_revision}")
        if not one.live or now_us >= one.end_us:
            raise _ended(one, "changed")
        ceiling_bps = self._view.max_guaranteed_bps(one.source_node)
        validation.check_changed(rates.asked_anew(one, change), change.of_rate, ceiling_bps, now_us)
        if quotas.spending_of_change(change, one) is not None:
            ends = ownership.ends_of(one.selector, one.source_node, one.destination_node)
            self._view.ownership.check(one.owner, request.caller, ends)

    async def _preview_change(
        self, before: Reservation, asked: Reservation, change: Change, spending: Spending | None, now_us: int
    ) -> pb.ChangeRateRequestResponse:
        if spending is not None:
            try:
                await self._quotas.check(spending, now_us)
            except RefusalError as error:
                refused = pb.PreviewRateRequestResponse(granted=False, refusal=error.refusal)
                return pb.ChangeRateRequestResponse(preview=refused)
        if not change.of_rate:
            return pb.ChangeRateRequestResponse(preview=messages.preview_unchanged(before))
        ask = engine.ask_for_change(before, asked, now_us)
        found = await previews.preview(self._repository.pool, self._view.network, ask, now_us, self._timing, before)
        if not ask.commits and isinstance(found.decision, Granted):
            return pb.ChangeRateRequestResponse(preview=messages.preview_unchanged(before))
        assert isinstance(found.decision, Refused) or found.decision.links
        answer = messages.preview(found.decision, found.windows, len(found.losers), found.waits_until_us)
        return pb.ChangeRateRequestResponse(preview=answer)


def _ended(one: Reservation, what: str) -> RefusalError:
    name = Lifecycle.Name(Lifecycle.ValueType(one.lifecycle)).removeprefix("LIFECYCLE_")
    refusal = pb.Refusal(
        code="request-ended",
        detail=f"the request is {name}{': ' + one.reason if one.reason else ''}; it cannot be {what}",
        suggestions=["create a new request; `chart request clone` copies its values"],
    )
    return RefusalError(refusal)


def registration(servicer: ReservationsServicer) -> Registration:
    """What `chart.common.rpc.serve` needs."""
    name = pb.DESCRIPTOR.services_by_name["Reservations"].full_name
    return name, reservations_pb2_grpc.add_ReservationsServicer_to_server, servicer
