"""Receipts are verified offline: what is signed by the key is believed, and nothing else."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from chart_client.commands.receipt import TYPE, ReceiptError, app, verify_receipt

STATEMENT = {"iss": "spiffe://chart.local/service/authority", "sub": "alice", "flow": "F1", "delivered_bytes": 5}


def encode(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def signed(key: Ed25519PrivateKey, header: dict[str, str] | None = None, **change: object) -> str:
    head = {"alg": "EdDSA", "kid": "k1", "typ": TYPE, **(header or {})}
    message = f"{encode(json.dumps(head).encode())}.{encode(json.dumps({**STATEMENT, **change}).encode())}"
    return f"{message}.{encode(key.sign(message.encode()))}"


@pytest.fixture
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def jwks(key: Ed25519PrivateKey) -> dict[str, object]:
    return {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": encode(key.public_key().public_bytes_raw())}]}


def test_a_receipt_of_the_authority_is_believed(key: Ed25519PrivateKey) -> None:
    assert verify_receipt(signed(key), jwks(key)) == STATEMENT


def test_what_was_altered_or_signed_by_another_is_not(key: Ed25519PrivateKey) -> None:
    good = signed(key)
    head, _, signature = good.split(".")
    more = encode(json.dumps({**STATEMENT, "delivered_bytes": 6}).encode())
    none = encode(b'{"alg":"none","typ":"chart-receipt+jwt","kid":"k1"}')
    for wrong in (
        f"{head}.{more}.{signature}",
        f"{none}.{good.split('.')[1]}.",
        signed(Ed25519PrivateKey.generate()),
        signed(key, {"kid": "k2"}),
        signed(key, {"alg": "HS256"}),
        signed(key, {"typ": "JWT"}),
        "a.b",
        "",
        "!.!.!",
    ):
        with pytest.raises(ReceiptError):
            verify_receipt(wrong, jwks(key))


def test_the_command_says_whether_it_is_authentic(key: Ed25519PrivateKey, tmp_path: Path) -> None:
    keys, good, bad = tmp_path / "keys.json", tmp_path / "good.json", tmp_path / "bad.json"
    keys.write_text(json.dumps(jwks(key)))
    good.write_text(json.dumps({"receipt": signed(key)}))
    bad.write_text(json.dumps({"receipt": signed(Ed25519PrivateKey.generate())}))
    run = CliRunner().invoke
    found = run(app, ["verify", str(good), "--keys", str(keys), "--json"])
    assert (found.exit_code, json.loads(found.stdout)["statement"]) == (0, STATEMENT)
    assert run(app, ["verify", str(bad), "--keys", str(keys)]).exit_code == 1
    assert run(app, ["verify", str(tmp_path / "none"), "--keys", str(keys)]).exit_code == 1
