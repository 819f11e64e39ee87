"""Receipts: what was granted and delivered, signed."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path

from chart.authority import accounts, receipts
from chart.authority.context import Anyone, Context, forbidden
from chart.authority.keys import unavailable
from chart.authority.keystore import KeyStoreUnavailable
from chart.authority.schemas import Receipt
from chart.common import audit
from chart.common.problems import ProblemError

router = APIRouter(prefix="/v1")


@router.get("/receipts/{flow}")
async def get_receipt(
    flow: Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")], authority: Context, who: Anyone
) -> Receipt:
    """For the flow's owner (the id of its rate request): a signed statement from the agents' counters."""
    if not who.local or (who.subject is None and not who.operator):
        raise forbidden("Receipts are for the owners of flows.")
    async with authority.pool.connection() as connection:
        account = await accounts.get(connection, flow)
    if account is None or (account.owner != who.subject and not who.operator):
        raise ProblemError(404, "Not found", f"There is no flow {flow}, or it is another's.")
    statement = receipts.statement(account, authority.settings.authority_domain, authority.clock.now_us())
    try:
        signed = await receipts.sign(statement, authority.store)
    except KeyStoreUnavailable as error:
        raise unavailable(error) from error
    async with authority.pool.connection() as connection, connection.transaction():
        detail = {"receipt": statement["receipt"], "delivered_bytes": statement["delivered_bytes"]}
        await audit.add(connection, who.actor, "receipt.issue", flow, detail)
    return Receipt(receipt=signed)


@router.get("/receipt-keys")
async def receipt_keys(authority: Context) -> dict[str, Any]:
    """Public: the keys that receipts are verified with (JWKS)."""
    try:
        return await authority.store.receipt_keys()
    except KeyStoreUnavailable as error:
        raise unavailable(error) from error
