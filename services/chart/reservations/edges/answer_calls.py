"""Answers that are given again: what the gateway answered a POST with an Idempotency-Key, for 24 h.

Asking for a rate keeps its key in the transaction that commits the rate (`edges.batches`). Whatever else is posted
claims its key here first and leaves its answer afterwards. Who claimed a key and died leaves it free after a while.
"""

from __future__ import annotations

from typing import Any

from ulid import ULID

from chart.common.clock import Clock
from chart.common.rpc_errors import conflict, invalid
from chart.reservations.decisions.messages import reused
from chart.reservations.store.idempotency import KeptAnswers, Place
from chart.v1 import reservations_pb2 as pb

# Longer than any POST takes; only then a call whose answer never came is made again. A caller may say less.
CLAIM_US = 60_000_000
LONGEST = {"owner": 255, "operation": 1000, "key": 255}
LARGEST_ANSWER_BYTES = 1_000_000


class AnswerCalls:
    """Part of the servicer."""

    def __init__(self, answers: KeptAnswers, clock: Clock) -> None:
        self._answers = answers
        self._answers_clock = clock

    async def ClaimAnswer(  # noqa: N802 - named by the interface
        self, request: pb.ClaimAnswerRequest, context: Any
    ) -> pb.ClaimAnswerResponse:
        """The kept answer of a key, or the right to make it."""
        for name, most in LONGEST.items():
            if not 0 < len(getattr(request, name)) <= most or "\x00" in getattr(request, name):
                raise invalid(name, f"1 to {most} characters, no NUL")
        now_us = self._answers_clock.now_us()
        claim = str(ULID())
        until_us = now_us + (min(request.claim_us, CLAIM_US) if request.claim_us > 0 else CLAIM_US)
        claimed, fingerprint, answer = await self._answers.claim(
            _place(request), request.fingerprint, claim, now_us, until_us
        )
        if claimed:
            return pb.ClaimAnswerResponse(claim=claim)
        if fingerprint != request.fingerprint:
            raise reused()
        if answer is None:
            return pb.ClaimAnswerResponse()
        return pb.ClaimAnswerResponse(answer=pb.KeptAnswer.FromString(answer))

    async def KeepAnswer(  # noqa: N802
        self, request: pb.KeepAnswerRequest, context: Any
    ) -> pb.KeepAnswerResponse:
        """Leave the answer of a claimed key, or give the key back."""
        if len(request.answer.body) > LARGEST_ANSWER_BYTES:
            raise invalid("answer", f"at most {LARGEST_ANSWER_BYTES} bytes are kept")
        answer = request.answer.SerializeToString() if request.HasField("answer") else None
        if not await self._answers.keep(_place(request), request.claim, answer):
            raise conflict("the claim is another's by now")
        return pb.KeepAnswerResponse()


def _place(request: pb.ClaimAnswerRequest | pb.KeepAnswerRequest) -> Place:
    return Place(request.owner, request.operation, request.key)
