"""gRPC of reservations: ask for a rate, preview, follow, list, release."""

from __future__ import annotations

from typing import Any

import structlog
from prometheus_client import Counter
from ulid import ULID

from chart.common import rpc, telemetry
from chart.common.clock import Clock, SystemClock
from chart.common.rpc import Registration
from chart.common.rpc_errors import RefusalError, invalid
from chart.reservations import admission, service, validation
from chart.reservations.admission import Commitment, Refused
from chart.reservations.repository import IdempotencyKey, Repository
from chart.reservations.service import Outcome, Timing
from chart.reservations.streams import NetworkView
from chart.v1 import reservations_pb2 as pb
from chart.v1 import reservations_pb2_grpc
from chart.v1.rate_request_pb2 import RateRequestSpecification

DEFAULT_PAGE = 50
LARGEST_PAGE = 500
LONGEST_KEY = 255

ASKED = Counter("chart_reservations_requests_total", "Requests for a rate, by outcome", ["outcome"])

_log = structlog.get_logger("chart.reservations")


class ReservationsServicer(reservations_pb2_grpc.ReservationsServicer):
    """Answers from topology, policy and the database."""

    def __init__(self, repository: Repository, view: NetworkView, timing: Timing, clock: Clock | None = None) -> None:
        self._repository = repository
        self._view = view
        self._timing = timing
        self._clock = clock or SystemClock()

    async def CreateRateRequest(  # noqa: N802 - named by the interface
        self, request: pb.CreateRateRequestRequest, context: Any
    ) -> pb.CreateRateRequestResponse:
        """Admit and commit a request."""
        now_us = self._clock.now_us()
        if len(request.idempotency_key) > LONGEST_KEY:
            raise invalid("idempotency_key", f"at most {LONGEST_KEY} characters")
        network = self._view.network
        try:
            checked = self._check(request.specification, now_us)
            # A request without a guarantee commits nothing, so it need not wait for anybody.
            locked = admission.candidate_link_ids(network, checked.ask) if checked.ask.guaranteed_bps else []
            identity = str(ULID())
            traceparent = telemetry.inject({}).get("traceparent", "")

            def decide(commitments: dict[str, list[Commitment]]) -> Outcome:
                decision = admission.admit(network, commitments, checked.ask)
                if isinstance(decision, Refused):
                    raise service.refusal_error(decision)
                return service.create(identity, request.owner, checked, decision, now_us, traceparent, self._timing)

            key = None
            if request.idempotency_key:
                fingerprint = validation.body_hash(request.specification)
                key = IdempotencyKey(request.owner, request.idempotency_key, fingerprint)
            answer, replayed = await self._repository.create(locked, decide, key, now_us)
        except RefusalError as error:
            ASKED.labels(outcome=error.refusal.code).inc()
            _log.info("refused a request", code=error.refusal.code, reason=error.refusal.detail, owner=request.owner)
            raise
        ASKED.labels(outcome="replayed" if replayed else "granted").inc()
        if not replayed:
            _log.info("granted a request", request=answer.id, bps=answer.granted_bps, path=list(answer.link_ids))
        return pb.CreateRateRequestResponse(rate_request=answer, replayed=replayed)

    async def PreviewRateRequest(  # noqa: N802
        self, request: pb.PreviewRateRequestRequest, context: Any
    ) -> pb.PreviewRateRequestResponse:
        """What CreateRateRequest would answer now."""
        now_us = self._clock.now_us()
        network = self._view.network
        try:
            checked = self._check(request.specification, now_us)
        except RefusalError as error:
            return pb.PreviewRateRequestResponse(granted=False, refusal=error.refusal)
        links = admission.candidate_link_ids(network, checked.ask)
        commitments = await self._repository.commitments(links, now_us)
        return service.preview(admission.admit(network, commitments, checked.ask))

    async def GetRateRequest(  # noqa: N802
        self, request: pb.GetRateRequestRequest, context: Any
    ) -> pb.GetRateRequestResponse:
        """One request."""
        reservation = await self._repository.get(request.id, request.owner)
        return pb.GetRateRequestResponse(rate_request=service.rate_request(reservation))

    async def ListRateRequests(  # noqa: N802
        self, request: pb.ListRateRequestsRequest, context: Any
    ) -> pb.ListRateRequestsResponse:
        """Requests, newest first, in pages."""
        size = min(request.page_size or DEFAULT_PAGE, LARGEST_PAGE)
        if "\x00" in request.cursor:
            raise invalid("cursor", "not a cursor of an earlier page")
        found, cursor = await self._repository.page(request.owner, request.lifecycle, size, request.cursor)
        return pb.ListRateRequestsResponse(
            rate_requests=[service.rate_request(one) for one in found], next_cursor=cursor
        )

    async def ReleaseRateRequest(  # noqa: N802
        self, request: pb.ReleaseRateRequestRequest, context: Any
    ) -> pb.ReleaseRateRequestResponse:
        """Give a rate back; a request that has ended stays as it is."""
        now_us = self._clock.now_us()
        actor = request.owner or rpc.actor(context)
        released = await self._repository.change(
            request.id, request.owner, actor, lambda one: service.release(one, now_us, self._timing)
        )
        _log.info("released a request", request=request.id)
        return pb.ReleaseRateRequestResponse(rate_request=service.rate_request(released))

    def _check(self, specification: RateRequestSpecification, now_us: int) -> validation.CheckedRequest:
        network = self._view.network
        checked = validation.check(specification, network, 0, now_us)
        ceiling_bps = self._view.max_guaranteed_bps(checked.ask.source_node)
        return validation.check(specification, network, ceiling_bps, now_us) if ceiling_bps else checked


def registration(servicer: ReservationsServicer) -> Registration:
    """What `chart.common.rpc.serve` needs."""
    name = pb.DESCRIPTOR.services_by_name["Reservations"].full_name
    return name, reservations_pb2_grpc.add_ReservationsServicer_to_server, servicer
