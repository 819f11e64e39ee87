"""Next hops: destination prefix to next element, element ids, and reports that heal the table."""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
from typing import Annotated

import structlog
from fastapi import APIRouter, Query
from prometheus_client import Counter

from chart.authority import hops, keys, repository
from chart.authority.certificates import invalid
from chart.authority.context import Authority, Context, Element, Operator
from chart.authority.schemas import ElementId, NextHop, NextHopBody, NextHops, Report, ReportBody
from chart.common import audit, qos
from chart.common.problems import ProblemError

# What reports taught is forgotten again, so that a wrong or outdated lesson does not last.
LEARNT_S = 3600
LEARNT_MAX = 1024

REPORTS = Counter("chart_authority_reports_total", "Reports of next hops", ["result"])

router = APIRouter(prefix="/v1")
_log = structlog.get_logger("chart.authority")

Since = Annotated[int, Query(ge=0, le=2**62, description="The revision of the last answer; 0: everything.")]
Wait = Annotated[float | None, Query(ge=0, le=55, description="Seconds to wait for a change; the server has a limit.")]


@router.get("/next-hops")
async def get_next_hops(authority: Context, who: Element, since: Since = 0, wait_s: Wait = None) -> NextHops:
    """The caller's own next hops and all element ids that changed since a revision; waits for a change."""
    assert who.element is not None
    await wait_for_change(authority, since, wait_s)
    async with authority.pool.connection() as connection, connection.transaction():
        revision, forgotten = await repository.revision(connection)
        full = since == 0 or since < forgotten or since > revision
        start = 0 if full else since
        rows = await hops.of_element(connection, who.element, start)
        senders = await hops.senders_to(connection, who.element)
        elements = await repository.elements(connection, start) if who.local else []
    found = [NextHop(**row) for row in rows if not (full and row["next_element"] is None)]
    return NextHops(
        revision=revision,
        full=full,
        next_hops=found,
        elements=[ElementId(**one) for one in elements if not (full and one["id"] is None)],
        senders=senders,
    )


async def wait_for_change(authority: Authority, since: int, wait_s: float | None) -> None:
    """Long poll: nothing to wait for on the first call."""
    limit_s = authority.settings.authority_long_poll_s
    if since:
        await authority.changes.wait(since, limit_s if wait_s is None else min(wait_s, limit_s))


@router.put("/next-hops", status_code=204)
async def put_next_hop(body: NextHopBody, authority: Context, operator: Operator) -> None:
    """An operator's entry; it stands until the operator takes it back."""
    prefix = str(body.prefix)
    shim_address = str(body.shim_address) if body.shim_address is not None else None
    async with authority.pool.connection() as connection, connection.transaction():
        revision = await repository.next_revision(connection)
        if body.next_element is not None:
            await hops.put(
                connection, body.element, prefix, body.next_element, "operator", revision, shim_address=shim_address
            )
        elif not await hops.remove(connection, body.element, prefix, authority.clock.now_us(), revision):
            raise ProblemError(404, "Not found", f"{body.element} has no next hop for {prefix}.")
        detail = {"prefix": prefix, "next_element": body.next_element, "shim_address": shim_address}
        await audit.add(connection, operator.actor, "next-hop.put", body.element, detail)


@router.post("/next-hops/reports")
async def report(body: ReportBody, authority: Context, who: Element) -> Report:
    """A signal named S and failed here. If it verifies under S's key for another receiver, S sends to the wrong one:
    its table gets a host route to the caller, and S learns at its next poll. Anything else changes nothing.
    """
    assert who.element is not None
    if not authority.reports.take(who.element):
        REPORTS.labels("limited").inc()
        raise ProblemError(429, "Too many reports", f"{who.element} reports too often.",
                           suggestions=["Report one signal of each sender, and wait a second."])  # fmt: skip
    parsed, packet = _parse(body)
    signal, flow = parsed.signal, parsed.flow
    now_us = authority.clock.now_us()
    async with authority.pool.connection() as connection:
        sender = await repository.element_of_id(connection, signal.sender)
        receivers = await keys.receivers_of(connection, sender, now_us) if sender is not None else []
    meant_for = await _meant_for(authority, sender, receivers, parsed) if sender is not None else None
    if sender is None or meant_for is None or meant_for[0] == who.element:
        return await _refused(authority, who.element, sender, packet)
    receiver, generation = meant_for
    width = 32 if flow.family == 4 else 128
    prefix = f"{flow.destination}/{width}"
    async with authority.pool.connection() as connection, connection.transaction():
        new = await hops.note_report(connection, sender, receiver, generation, signal.sequence, now_us)
        changed = new and who.element in receivers
        if changed:
            if await hops.count(connection, sender, "report") >= LEARNT_MAX:
                raise ProblemError(429, "Too many reports", f"{sender} has learnt {LEARNT_MAX} next hops already.")
            revision = await repository.next_revision(connection)
            changed = await hops.put(
                connection, sender, prefix, who.element, "report", revision, expires_at_us=now_us + LEARNT_S * 1_000_000
            )
        await audit.add(
            connection, who.identity.short, "next-hop.report", sender,
            {"prefix": prefix, "was": receiver, "now": who.element, "replayed": not new,
             "neighbour": who.element in receivers},
        )  # fmt: skip
    REPORTS.labels("healed" if changed else "replayed").inc()
    _log.info("a report was checked", sender=sender, receiver=who.element, was=receiver, changed=changed)
    return Report(changed=changed, sender=sender, prefix=prefix if changed else None)


def _parse(body: ReportBody) -> tuple[qos.Parsed, bytes]:
    try:
        packet = base64.b64decode(body.packet, validate=True)
        parse = {"ipv4": qos.parse_ipv4, "ipv6": qos.parse_ipv6, "shim": qos.parse_shim}[body.carrier]
        return parse(packet), packet
    except (binascii.Error, qos.QosError, IndexError, ipaddress.AddressValueError) as error:
        REPORTS.labels("unreadable").inc()
        raise invalid("packet", f"The packet carries no signal that can be read: {error}.") from None


async def _meant_for(
    authority: Authority, sender: str, receivers: list[str], parsed: qos.Parsed
) -> tuple[str, int] | None:
    """The receiver under whose key a signal of the sender verifies, and the generation."""
    for receiver in receivers:
        for held in await authority.keys.of_pair(sender, receiver):
            if held.epoch.wire == parsed.signal.epoch and parsed.signal.verify(parsed.flow, held.key):
                return receiver, held.epoch.generation
    return None


async def _refused(authority: Authority, reporter: str, sender: str | None, packet: bytes) -> Report:
    """Nothing changes, but it stands in the audit: junk that names a neighbour is an attack, or a fault."""
    async with authority.pool.connection() as connection, connection.transaction():
        await audit.add(
            connection, f"node/{reporter}", "next-hop.report-refused", sender or "unknown",
            {"packet_sha256": hashlib.sha256(packet).hexdigest(), "octets": len(packet)},
        )  # fmt: skip
    REPORTS.labels("refused").inc()
    return Report(changed=False, sender=None, prefix=None)
