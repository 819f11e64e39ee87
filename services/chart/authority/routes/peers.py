"""Neighbouring domains, entered by hand on both sides."""

from __future__ import annotations

import hashlib
from typing import Annotated

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from fastapi import APIRouter, Path

from chart.authority import repository
from chart.authority.context import Context, Operator, invalid
from chart.authority.schemas import Peer, PeerBody
from chart.common import audit
from chart.common.problems import ProblemError

router = APIRouter(prefix="/v1")

Domain = Annotated[str, Path(pattern=r"^[a-z0-9]([a-z0-9.-]{0,98}[a-z0-9])?$")]


@router.get("/peers")
async def list_peers(authority: Context, _operator: Operator) -> list[Peer]:
    """Neighbouring domains."""
    async with authority.pool.connection() as connection:
        rows = await repository.peers(connection)
    return [_peer(row["domain"], row["url"], row["ca_pem"], row["pairs"]) for row in rows]


@router.put("/peers/{domain}")
async def put_peer(domain: Domain, body: PeerBody, authority: Context, operator: Operator) -> Peer:
    """Enter a neighbour by hand; it counts when the neighbour enters us too. Each pair has one end on either side."""
    own = authority.settings.authority_domain
    if domain == own:
        raise invalid("domain", f"{own} is this domain itself.")
    try:
        authorities = x509.load_pem_x509_certificates(body.ca_pem.encode())
        basic = authorities[0].extensions.get_extension_for_class(x509.BasicConstraints).value
    except (ValueError, x509.ExtensionNotFound):
        raise invalid("ca_pem", "ca_pem is not a certificate of an authority, PEM.") from None
    if len(authorities) != 1 or not basic.ca:
        raise invalid("ca_pem", "ca_pem must hold one certificate, that of the neighbour's authority.")
    for sender, receiver in body.pairs:
        if [sender.endswith(f"@{domain}"), receiver.endswith(f"@{domain}")].count(True) != 1 or (
            "@" in sender and "@" in receiver
        ):
            raise invalid("pairs", f"{sender} > {receiver}: one end must be ours (name), one theirs (name@{domain}).")
    pem = authorities[0].public_bytes(serialization.Encoding.PEM).decode()
    async with authority.pool.connection() as connection, connection.transaction():
        revision = await repository.next_revision(connection)
        await repository.put_peer(connection, domain, body.url, pem, [list(pair) for pair in body.pairs], revision)
        await audit.add(connection, operator.actor, "peer.put", domain, {"url": body.url, "pairs": body.pairs})
    await authority.trust.refresh()
    return _peer(domain, body.url, pem, [list(pair) for pair in body.pairs])


@router.delete("/peers/{domain}", status_code=204)
async def delete_peer(domain: Domain, authority: Context, operator: Operator) -> None:
    """Its certificates are believed no more."""
    async with authority.pool.connection() as connection, connection.transaction():
        await repository.next_revision(connection)
        if not await repository.remove_peer(connection, domain):
            raise ProblemError(404, "Not found", f"{domain} is no peer.")
        await audit.add(connection, operator.actor, "peer.delete", domain, {})
    await authority.trust.refresh()


def _peer(domain: str, url: str, pem: str, pairs: list[list[str]]) -> Peer:
    der = x509.load_pem_x509_certificate(pem.encode()).public_bytes(serialization.Encoding.DER)
    digest = hashlib.sha256(der).hexdigest()
    return Peer(domain=domain, url=url, pairs=[(a, b) for a, b in pairs], ca_sha256=digest)
