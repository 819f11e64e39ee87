"""Enrolments: one-time tokens, what became of each, and in words why one enrols nobody (any more).

A token is shown once and kept nowhere. A call that comes again with its Idempotency-Key gets the same enrolment with
another token, and the first one is worth nothing then.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, Literal

from ulid import ULID

from chart.authority import enrolment_repository
from chart.authority.context import Authority, invalid
from chart.authority.identity import Identity, IdentityError, moment, of_short
from chart.authority.schemas import Enrolment, EnrolmentBody
from chart.common import audit
from chart.common.database import Connection
from chart.common.problems import ProblemError

TOKEN_OCTETS = 32

State = Literal["open", "used", "expired", "withdrawn"]


def state_of(row: Mapping[str, Any], now_us: int) -> State:
    """The state of an enrolment."""
    if row["used_at_us"] is not None:
        return "used"
    if row["withdrawn_at_us"] is not None:
        return "withdrawn"
    return "open" if row["expires_at_us"] > now_us else "expired"


# Why a token enrols nobody, `refusal`.
REFUSALS = ("token-unknown", "token-used", "token-withdrawn", "token-expired", "token-of-another")


def refusal(
    row: Mapping[str, Any] | None, claimed: Identity | None, now_us: int, *, repeated: bool = False
) -> ProblemError | None:
    """Why a token does not enrol who comes with it, claiming to be somebody or not; None: it does. ``repeated``: it is
    who used it, once more.
    """
    if row is None:
        return _refused("token-unknown", "This one-time token is not known here.",
                        "Check that it was copied whole, and that it is of this authority.")  # fmt: skip
    whose, anew = row["identity"], "An operator can make another one: chart node enrol."
    match state_of(row, now_us):
        case "used" if not repeated:
            return _refused(
                "token-used", f"This one-time token enrolled {whose} before, at {moment(row['used_at_us'])}.", anew,
                f"If that was somebody else, revoke {whose} first.",
            )  # fmt: skip
        case "withdrawn":
            return _refused("token-withdrawn", f"This one-time token of {whose} was withdrawn by an operator.", anew)
        case "expired":
            return _refused(
                "token-expired", f"This one-time token of {whose} expired at {moment(row['expires_at_us'])}.", anew
            )
    if claimed is not None and claimed.short != whose:
        return _refused(
            "token-of-another", f"This one-time token is for {whose}, and {claimed.short} came with it.",
            f"Take the token of {claimed.short}; this one is still good for {whose}.",
        )  # fmt: skip
    return None


def _refused(kind: str, detail: str, *suggestions: str) -> ProblemError:
    return ProblemError(403, "Not enrolled", detail, field="token", suggestions=suggestions, kind=kind)


def identity_of(authority: Authority, text: str) -> Identity:
    """An identity of this domain that somebody wrote; raises a 422 problem when it is none."""
    try:
        return of_short(text, authority.settings.authority_domain)
    except IdentityError as error:
        raise invalid("identity", f"{error}.") from None


async def make(authority: Authority, body: EnrolmentBody, actor: str) -> Enrolment:
    """A one-time token for an identity; only its hash is kept."""
    wanted = identity_of(authority, body.identity).short
    token = secrets.token_urlsafe(TOKEN_OCTETS)
    now_us = authority.clock.now_us()
    repetition = _repetition(actor, body.repetition_key) if body.repetition_key is not None else None
    async with authority.pool.connection() as connection, connection.transaction():
        known = await enrolment_repository.of_repetition(connection, repetition) if repetition is not None else None
        if known is not None:
            return await _again(connection, known, wanted, body.life_s, token, actor)
        enrolment, expires_at_us = str(ULID()), now_us + body.life_s * 1_000_000
        await enrolment_repository.add(connection, enrolment, token, wanted, actor, now_us, expires_at_us, repetition)
        detail = {"enrolment": enrolment, "expires_at_us": expires_at_us}
        await audit.add(connection, actor, "enrolment.create", wanted, detail)
    return Enrolment(id=enrolment, token=token, identity=wanted, expires_at_us=expires_at_us)


def _repetition(actor: str, key: str) -> bytes:
    return hashlib.sha256(f"{actor}\0{key}".encode()).digest()


async def _again(
    connection: Connection, known: Mapping[str, Any], wanted: str, life_s: int, token: str, actor: str
) -> Enrolment:
    """The enrolment of the first call, with a token in place of the one that may not have arrived."""
    if known["identity"] != wanted or known["expires_at_us"] != known["created_at_us"] + life_s * 1_000_000:
        raise ProblemError(
            409, "Conflict", "The Idempotency-Key was used for another enrolment.", field="Idempotency-Key",
            suggestions=["Use a new key for every new enrolment."], kind="idempotency-key-reused",
        )  # fmt: skip
    if not await enrolment_repository.replace_token(connection, known["id"], token):
        raise ProblemError(
            409, "Conflict", f"The enrolment of this Idempotency-Key is over: {wanted} used its token, or it was"
            " withdrawn.", field="Idempotency-Key", suggestions=["Use a new key for a new enrolment."],
            kind="enrolment-over",
        )  # fmt: skip
    await audit.add(connection, actor, "enrolment.repeat", wanted, {"enrolment": known["id"]})
    return Enrolment(id=known["id"], token=token, identity=wanted, expires_at_us=known["expires_at_us"])


async def withdraw(authority: Authority, enrolment: str, actor: str) -> None:
    """Its token enrols nobody any more.

    Raises:
        ProblemError: 404 unknown, 409 the token was used already.
    """
    async with authority.pool.connection() as connection, connection.transaction():
        row = await enrolment_repository.get(connection, enrolment)
        if row is None:
            raise ProblemError(404, "Not found", f"There is no enrolment {enrolment}.")
        if row["used_at_us"] is not None:
            raise ProblemError(
                409, "Conflict", f"{row['identity']} used this token at {moment(row['used_at_us'])}.",
                suggestions=[f"Revoke {row['identity']} to take back what it was given."], kind="token-used",
            )  # fmt: skip
        await enrolment_repository.withdraw(connection, enrolment, authority.clock.now_us())
        await audit.add(connection, actor, "enrolment.withdraw", row["identity"], {"enrolment": enrolment})
