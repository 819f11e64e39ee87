"""Answers that are given again: what the gateway answered a POST with an Idempotency-Key, for 24 h.

Asking for a rate keeps its key in the transaction that commits the rate (`admissions`). Whatever else is posted claims
its key here first and leaves its answer afterwards. Who claimed a key and died leaves it free after a while.
"""

from __future__ import annotations

from typing import Any

from ulid import ULID

from chart.common.clock import Clock
from chart.common.database import Pool
from chart.common.rpc_errors import RefusalError, conflict, invalid
from chart.v1 import reservations_pb2 as pb

# Longer than any POST takes; only then a call whose answer never came is made again. A caller may say less.
CLAIM_US = 60_000_000
LONGEST = {"owner": 255, "operation": 1000, "key": 255}
LARGEST_ANSWER_BYTES = 1_000_000

_CLAIM = (
    "INSERT INTO kept_answer AS k (owner, operation, key, fingerprint, claim, claimed_until_us, created_at_us)"
    " VALUES (%(owner)s, %(operation)s, %(key)s, %(fingerprint)s, %(claim)s, %(until)s, %(now)s)"
    " ON CONFLICT (owner, operation, key) DO UPDATE SET fingerprint = excluded.fingerprint, claim = excluded.claim,"
    " claimed_until_us = excluded.claimed_until_us, created_at_us = excluded.created_at_us, answer = NULL"
    " WHERE k.created_at_us < %(expired)s"
    " OR (k.answer IS NULL AND k.claimed_until_us < %(now)s AND k.fingerprint = excluded.fingerprint) RETURNING claim"
)
_CLAIMED = " WHERE owner = %s AND operation = %s AND key = %s AND claim = %s AND answer IS NULL RETURNING 1"
_KEEP = "UPDATE kept_answer SET answer = %s" + _CLAIMED  # noqa: S608 - a constant
_GIVE_BACK = "DELETE FROM kept_answer" + _CLAIMED  # noqa: S608


def reused() -> RefusalError:
    """The key stands for something else."""
    return RefusalError(
        pb.Refusal(
            code="idempotency-key-reused",
            detail="this Idempotency-Key was used in the last 24 h for another request",
            field="idempotency_key",
            suggestions=["use a new key for a new request"],
        )
    )


class AnswerCalls:
    """Part of the servicer."""

    def __init__(self, pool: Pool, kept_us: int, clock: Clock) -> None:
        self._answers_pool = pool
        self._answers_kept_us = kept_us
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
        place = {"owner": request.owner, "operation": request.operation, "key": request.key}
        values = {
            **place,
            "fingerprint": request.fingerprint,
            "claim": claim,
            "until": now_us + (min(request.claim_us, CLAIM_US) if request.claim_us > 0 else CLAIM_US),
            "now": now_us,
            "expired": now_us - self._answers_kept_us,
        }
        async with self._answers_pool.connection() as connection:
            if await (await connection.execute(_CLAIM, values)).fetchone() is not None:
                return pb.ClaimAnswerResponse(claim=claim)
            found = await connection.execute(
                "SELECT fingerprint, answer FROM kept_answer WHERE owner = %(owner)s AND operation = %(operation)s"
                " AND key = %(key)s",
                place,
            )
            row = await found.fetchone()
        if row is not None and bytes(row["fingerprint"]) != request.fingerprint:
            raise reused()
        if row is None or row["answer"] is None:
            return pb.ClaimAnswerResponse()
        return pb.ClaimAnswerResponse(answer=pb.KeptAnswer.FromString(bytes(row["answer"])))

    async def KeepAnswer(  # noqa: N802
        self, request: pb.KeepAnswerRequest, context: Any
    ) -> pb.KeepAnswerResponse:
        """Leave the answer of a claimed key, or give the key back."""
        if len(request.answer.body) > LARGEST_ANSWER_BYTES:
            raise invalid("answer", f"at most {LARGEST_ANSWER_BYTES} bytes are kept")
        place = (request.owner, request.operation, request.key, request.claim)
        async with self._answers_pool.connection() as connection:
            if request.HasField("answer"):
                found = await connection.execute(_KEEP, (request.answer.SerializeToString(), *place))
            else:
                found = await connection.execute(_GIVE_BACK, place)
            if await found.fetchone() is None:
                raise conflict("the claim is another's by now")
        return pb.KeepAnswerResponse()
