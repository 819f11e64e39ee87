"""Issuing and revoking: the transaction around the key store."""

from __future__ import annotations

from typing import Any

import structlog
from cryptography import x509
from prometheus_client import Counter

from chart.authority import enrolment_repository, enrolments, keys, repository, service_accounts
from chart.authority.context import Authority, invalid
from chart.authority.identity import (
    Identity,
    IdentityError,
    Proof,
    check_request,
    key_digest,
    microseconds,
    moment,
    of_short,
    serial_of,
)
from chart.authority.keystore import KeyStoreUnavailable
from chart.authority.schemas import Certificate, RevocationBody
from chart.authority.service_accounts import Account
from chart.authority.trust import is_revoked
from chart.common import audit
from chart.common.counters import from_zero
from chart.common.database import Connection
from chart.common.problems import ProblemError

REFUSED = Counter("chart_authority_refused_enrolments_total", "One-time tokens that enrolled nobody", ["reason"])
from_zero(REFUSED, enrolments.REFUSALS)

_log = structlog.get_logger("chart.authority")


async def issue(
    authority: Authority, csr: str, *, token: str | None, holder: Proof | None, claimed: Identity | None = None,
    account: Account | None = None,
) -> Certificate:  # fmt: skip
    """A certificate for the identity of a one-time token, of a service account, or anew for the holder of a good one.

    ``claimed``: who comes with the token says to be; a token of somebody else is refused then, and stays good.

    Raises:
        ProblemError: 401 without either, 403 a token that is not good, 422 a bad request, 503 without the store.
    """
    try:
        request = check_request(csr)
    except IdentityError as error:
        raise invalid("csr", str(error)) from None
    now_us = authority.clock.now_us()
    digest = key_digest(request)
    domain = authority.settings.authority_domain
    async with authority.pool.connection() as connection, connection.transaction():
        used: str | None = None
        repeated = False
        if token is not None:
            enrolment = await enrolment_repository.of_token(connection, token)
            repeated = await _is_repeated(connection, enrolment, digest, now_us)
            problem = enrolments.refusal(enrolment, claimed, now_us, repeated=repeated)
            if problem is not None:
                REFUSED.labels(reason=problem.kind).inc()
                _log.warning("a one-time token enrols nobody", reason=problem.kind, detail=problem.detail)
                raise problem
            assert enrolment is not None
            identity, used = of_short(enrolment["identity"], domain), enrolment["id"]
        elif account is not None:
            identity = account.identity
            used = await _leave_to_return(connection, identity, now_us)
        elif holder is not None and holder.identity.domain == domain:
            # Another replica may have revoked it since this one looked; a renewal must not undo that.
            if await repository.is_revoked(connection, holder.identity.short, holder.serial):
                raise is_revoked(holder)
            identity = holder.identity
        else:
            raise ProblemError(
                401, "Not authenticated", "This needs a one-time token, or a certificate of this domain to renew.",
                field="token",
            )  # fmt: skip
        # A known element that renews changes nothing that others follow.
        known = (token is None or repeated) and await repository.is_active(connection, identity.short)
        number: int | None
        if known:
            number = await repository.element_id(connection, identity.short)
        else:
            revision = await repository.next_revision(connection)
            number = await repository.enrol(
                connection, identity.short, element=identity.kind == "node", revision=revision
            )
        try:
            issued = await authority.store.issue(
                request,
                identity.uri,
                life_s=authority.settings.authority_certificate_life_s,
                names=(identity.server_name,) if identity.kind == "node" else (),
            )
        except KeyStoreUnavailable as error:
            raise keys.unavailable(error) from error
        certificate = x509.load_pem_x509_certificate(issued.pem.encode())
        serial, not_after_us = serial_of(certificate), microseconds(certificate.not_valid_after_utc)
        await repository.add_certificate(connection, serial, identity.short, now_us, not_after_us)
        if used is not None:
            await enrolment_repository.use(connection, used, now_us, serial, digest)
        await audit.add(
            connection,
            identity.short,
            "certificate.issue",
            identity.short,
            {"serial": serial, "not_after_us": not_after_us, "by_token": token is not None}
            | ({"service_account": account.name} if account is not None else {}),
        )
    if not known:
        # Who was revoked and is enrolled again is believed at once, at least by this replica.
        await authority.trust.refresh()
        if identity.kind == "node" and not await authority.rights.settled():
            _log.warning("enrolled, but the broker does not know it yet", identity=identity.short)
    return Certificate(
        certificate=issued.pem,
        authority=issued.authority_pem,
        identity=identity.uri,
        serial=serial,
        not_after_us=not_after_us,
        renew_at_us=(now_us + not_after_us) // 2,
        element_id=number,
    )


async def _is_repeated(connection: Connection, enrolment: dict[str, Any] | None, digest: bytes, now_us: int) -> bool:
    """Whether who used a token comes with it again, because no answer arrived: with the same key, while the token would
    be good, and not revoked since.
    """
    if enrolment is None or enrolment["key_digest"] != digest or enrolment["expires_at_us"] <= now_us:
        return False
    return not await repository.is_revoked(connection, enrolment["identity"], enrolment["serial"])


async def _leave_to_return(connection: Connection, identity: Identity, now_us: int) -> str | None:
    """Of an identity that was revoked the enrolment that an operator made since: it is used up by the return.

    Raises:
        ProblemError: 403, it was revoked and nobody lets it return.
    """
    revoked_at_us = await repository.revoked_at_us(connection, identity.short)
    if revoked_at_us is None:
        return None
    found = await enrolment_repository.open_since(connection, identity.short, revoked_at_us, now_us)
    if found is None:
        raise service_accounts.refused(
            "identity-revoked",
            f"{identity.short} was revoked at {moment(revoked_at_us)} and may not return by itself.",
            f"An operator lets it: chart identity enrol {identity.short}.",
        )
    return found


async def revoke(authority: Authority, body: RevocationBody, actor: str) -> None:
    """Revoke; of a node also its keys end at once, and the others learn that its element id is gone.

    Raises:
        ProblemError: 404 unknown, 422 nothing named.
    """
    now_us = authority.clock.now_us()
    if (body.identity is None) == (body.serial is None):
        raise invalid("identity", "State identity or serial, one of them.")
    async with authority.pool.connection() as connection, connection.transaction():
        revision = await repository.next_revision(connection)
        if body.identity is not None:
            found = await repository.revoke_identity(connection, body.identity, now_us, body.reason, revision)
            subject = body.identity if found else None
        else:
            subject = await repository.revoke_serial(connection, body.serial or "", now_us, body.reason)
        if subject is None:
            named = f"to {body.identity}" if body.identity is not None else f"with the serial number {body.serial}"
            raise ProblemError(
                404, "Not found", f"No certificate was ever issued {named}.",
                field="identity" if body.identity is not None else "serial",
                suggestions=["chart identity list shows who has one."], kind="unknown-identity",
            )  # fmt: skip
        ended = 0
        if body.identity is not None and subject.startswith("node/"):
            ended = await keys.end_keys_of(connection, subject.removeprefix("node/"), now_us)
        await audit.add(
            connection, actor, "certificate.revoke", subject,
            {"serial": body.serial, "reason": body.reason, "ended_keys": ended},
        )  # fmt: skip
    if subject.startswith("node/"):
        authority.keys.forget_node(subject.removeprefix("node/"))
        await authority.rights.settled()
    await authority.trust.refresh()
