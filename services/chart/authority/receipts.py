"""The statement of a receipt and its signature: a JWS (RFC 7515) with EdDSA (RFC 8037). The building is pure.

Brassil et al., The CHART System, section 1: the network must be able to certify that what was asked for was delivered.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from ulid import ULID

from chart.authority.accounts import Account
from chart.authority.keystore import KeyStore

TYPE = "chart-receipt+jwt"


def statement(account: Account, domain: str, now_us: int) -> dict[str, Any]:
    """What is said of a flow: ``sent_bytes`` counted by the sender, ``delivered_bytes`` acknowledged by receivers."""
    return {
        "iss": f"spiffe://{domain}/service/authority",
        "sub": account.owner,
        "iat": now_us // 1_000_000,
        "receipt": str(ULID()),
        "flow": account.request_id,
        "granted": account.granted,
        "nodes": [
            {
                "node": one.node,
                "sent_bytes": one.sent_bytes,
                "delivered_bytes": one.delivered_bytes,
                "counted_until_us": one.updated_at_us,
            }
            for one in account.nodes
        ],
        "sent_bytes": max((one.sent_bytes for one in account.nodes), default=0),
        "delivered_bytes": max((one.delivered_bytes for one in account.nodes), default=0),
    }


async def sign(said: dict[str, Any], store: KeyStore) -> str:
    """The statement as a compact JWS under the store's key of receipts.

    Raises:
        KeyStoreUnavailable: it cannot sign now.
    """
    keys = (await store.receipt_keys())["keys"]
    header = {"alg": "EdDSA", "kid": keys[-1]["kid"], "typ": TYPE}
    message = b".".join(_base64url(json.dumps(part, sort_keys=True, separators=(",", ":")).encode())
                        for part in (header, said))  # fmt: skip
    signature = await store.sign_receipt(message)
    if signature.key_id != header["kid"]:
        # The key was rotated in between.
        return await sign(said, store)
    return (message + b"." + _base64url(signature.value)).decode()


def _base64url(octets: bytes) -> bytes:
    return base64.urlsafe_b64encode(octets).rstrip(b"=")
