"""`chart receipt`: signed statements of what was granted and delivered; verified offline."""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from chart_client.commands.common import JsonOption, ServerOption, TokenOption, console, out, print_json, session
from chart_client.transport import DEFAULT_SERVER

TYPE = "chart-receipt+jwt"
MAX_OCTETS = 1_000_000

app = typer.Typer(help="Signed receipts of what was granted and delivered.", no_args_is_help=True)

KeysOption = Annotated[
    Path,
    typer.Option("--keys", envvar="CHART_RECEIPT_KEYS", help="Public keys (JWKS) as `chart receipt keys` saved them."),
]
DEFAULT_KEYS = Path("~/.config/chart/receipt-keys.json")


class ReceiptError(ValueError):
    """A receipt is not authentic; the message says why."""


def verify_receipt(receipt: str, keys: dict[str, Any]) -> dict[str, Any]:
    """The statement of a receipt (compact JWS, EdDSA) whose signature fits one of the keys (JWKS).

    Raises:
        ReceiptError: it does not, or it is no receipt.
    """
    parts = receipt.strip().split(".")
    if len(parts) != 3:
        raise ReceiptError("not a receipt: a signed receipt has three parts joined by dots")
    try:
        header, statement, signature = (_decode(part) for part in parts)
        said, claims = json.loads(header), json.loads(statement)
    except (ValueError, binascii.Error):
        raise ReceiptError("not a receipt: it cannot be decoded") from None
    if not isinstance(said, dict) or said.get("alg") != "EdDSA" or said.get("typ") != TYPE or "crit" in said:
        raise ReceiptError(f"not a receipt: its header must have alg EdDSA and typ {TYPE}")
    key = next((one for one in keys.get("keys", []) if one.get("kid") == said.get("kid")), None)
    if key is None or key.get("kty") != "OKP" or key.get("crv") != "Ed25519":
        raise ReceiptError(f"none of the keys is {said.get('kid')!r}: was it signed by another domain?")
    try:
        public = Ed25519PublicKey.from_public_bytes(_decode(key["x"]))
        public.verify(signature, f"{parts[0]}.{parts[1]}".encode())
    except (InvalidSignature, ValueError):
        raise ReceiptError(
            "the signature does not verify: the receipt was altered or signed by another authority"
        ) from None
    if not isinstance(claims, dict):
        raise ReceiptError("the receipt has no content")
    return claims


def _decode(part: str) -> bytes:
    return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="What `chart receipt get` wrote.")],
    keys: KeysOption = DEFAULT_KEYS,
    as_json: JsonOption = False,
) -> None:
    """Check a receipt offline. Exit status 1 when it is not authentic."""
    try:
        text = _read(file)
        receipt = json.loads(text)["receipt"] if text.lstrip().startswith("{") else text
        said = verify_receipt(receipt, json.loads(_read(keys.expanduser())))
    except (ReceiptError, OSError, ValueError, KeyError, TypeError) as error:
        if as_json:
            print_json({"valid": False, "reason": str(error)})
        console.print("[red]not authentic:[/red] ", str(error), sep="")
        raise typer.Exit(1) from None
    if as_json:
        print_json({"valid": True, "statement": said})
        return
    granted = said.get("granted", {})
    out.print("[green]authentic[/green]", said.get("iss", ""))
    out.print(f"flow {said.get('flow')} of {said.get('sub')}: {granted.get('guaranteed_bps', 0) / 1e6:g} Mb/s granted,")
    out.print(f"{said.get('sent_bytes', 0):,} octets sent, {said.get('delivered_bytes', 0):,} delivered")


@app.command()
def get(
    flow: Annotated[str, typer.Argument(help="Id of the rate request.")],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write to.")] = None,
) -> None:
    """Fetch the signed receipt of a rate request."""
    with session(server, token) as client:
        found = client.signed_receipts.get(flow)
    _write(output, json.dumps({"receipt": found}))


@app.command("keys")
def save_keys(
    server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", output: KeysOption = DEFAULT_KEYS
) -> None:
    """Save the public keys that receipts are verified with; do it once, over a connection that you trust."""
    with session(server, token) as client:
        found = client.signed_receipts.keys()
    _write(output.expanduser(), json.dumps(found))


def _read(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(MAX_OCTETS).decode()


def _write(output: Path | None, text: str) -> None:
    if output is None:
        typer.echo(text)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text + "\n")
