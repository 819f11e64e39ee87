"""Tokens that must not be believed, requests that want to break something, clients that hold a connection."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from support.authority import OtherAuthority, Place
from support.waiting import eventually
from threats.impostors import Findings

ISSUER, AUDIENCE = "urn:chart:dev-issuer", "chart"
# Longer than the authority waits before it asks an issuer for keys that it does not know.
ROTATION_LIMIT_S = 20


class Issuer:
    """An identity provider as the authority sees it: keys under an address. It changes its key."""

    def __init__(self) -> None:
        self._keys = [("first", Ed25519PrivateKey.generate())]
        self.revoked: set[str] = set()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(issuer.jwks()).encode())

            def do_POST(self) -> None:
                """Whether a token still counts (RFC 7662)."""
                asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
                token = parse_qs(asked)["token"][0]
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"active": token not in issuer.revoked}).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def jwks(self) -> dict[str, Any]:
        key_id, key = self._keys[-1]
        return {"keys": [{**json.loads(OKPAlgorithm.to_jwk(key.public_key())), "kid": key_id, "alg": "EdDSA"}]}

    def revoke(self, token: str) -> None:
        """Say from now on that a token is over."""
        self.revoked.add(token)

    def rotate(self) -> None:
        self._keys.append(("second", Ed25519PrivateKey.generate()))

    def token(self, *, age: int = 1, key: Ed25519PrivateKey | None = None, **change: Any) -> str:
        """A token of an administrator; ``age`` 1: under the newest key, 2: under the one before."""
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "m", "roles": ["admin"], "iat": now, "exp": now + 60, **change}
        key_id, own = self._keys[-age]
        given = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(given, key or own, algorithm="EdDSA", headers={"kid": key_id})

    def forged(self) -> dict[str, str]:
        """Each with one fault."""
        past = int(time.time()) - 60
        public = self.jwks()["keys"][0]["x"].encode().ljust(64)
        return {
            **altered(self.token(), public),
            "key of another": self.token(key=Ed25519PrivateKey.generate()),
            "wrong audience": self.token(aud="other"),
            "no audience": self.token(aud=None),
            "wrong issuer": self.token(iss="https://elsewhere.example"),
            "expired": self.token(exp=past),
            "without end": self.token(exp=None),
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _octets(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def altered(token: str, public: bytes) -> dict[str, str]:
    """What anybody can make of a good token and the public key of who issued it, each with one fault."""
    head, body, signature = token.split(".")
    claims = json.loads(_octets(body))
    unsigned = f"{_part({'alg': 'HS256'})}.{body}"
    # By hand: libraries refuse to do that with a public key.
    code = hmac.digest(public, unsigned.encode(), "sha256")
    return {
        "algorithm none": f"{_part({'alg': 'none'})}.{body}.",
        "no signature": f"{head}.{body}.",
        "altered": f"{head}.{_part({**claims, 'sub': 'someone-else'})}.{signature}",
        "public key as secret": f"{unsigned}.{base64.urlsafe_b64encode(code).rstrip(b'=').decode()}",
        "no token": "x.y.z",
    }


async def _enrols(client: httpx.AsyncClient, token: str) -> bool:
    """Whether a token makes its bearer an operator."""
    answer = await client.post(
        "/v1/enrolments", json={"identity": "node/x"}, headers={"Authorization": f"Bearer {token}"}
    )
    return answer.is_success


async def tokens(place: Place, issuer: Issuer) -> tuple[Findings, set[str]]:
    """What the gateway would never forward, with the gateway's own certificate; then a key that the issuer gave up.

    Returns what came of it and the tokens, which are secrets.
    """
    found = Findings()
    gateway = place.client(place.local("service-gateway"))
    node = await place.node("bearer")
    seen = {"good": issuer.token(), **issuer.forged()}
    found.good_refused += not await _enrols(gateway, seen["good"])
    old = issuer.token()
    issuer.rotate()
    fresh = issuer.token()

    async def taken() -> bool:
        return await _enrols(gateway, fresh)

    await eventually(taken, ROTATION_LIMIT_S)
    forged = {**{name: token for name, token in seen.items() if name != "good"}, "an old key": old}
    await _try(found, gateway, forged)
    # Only the gateway may speak for people.
    await _try(found, node, {"a good token, by a node": seen["good"]})
    return found, {*seen.values(), old, fresh}


async def bearer(place: Place, good: str, forged: dict[str, str]) -> Findings:
    """Tokens in place of one of another provider's that is good, with the gateway's own certificate, and that one by a
    node.
    """
    gateway = place.client(place.local("service-gateway"))
    found = Findings(good_refused=not await _enrols(gateway, good))
    await _try(found, gateway, forged)
    await _try(found, await place.node("bearer"), {"a good token, by a node": good})
    return found


async def _try(found: Findings, client: httpx.AsyncClient, tokens: dict[str, str]) -> None:
    for name, token in tokens.items():
        found.tried += 1
        if await _enrols(client, token):
            found.accepted.append(name)


async def strangers(place: Place, folder: Path) -> Findings:
    """No certificate, and one of another authority that names a node of ours."""
    found = Findings()
    other = OtherAuthority().issue(folder, "spiffe://chart.local/node/alpha")
    for name, files in (("no certificate", None), ("another authority", other)):
        found.tried += 1
        try:
            answer = await place.client(files).get("/v1/keys/alpha/bravo")
        except httpx.HTTPError:
            continue
        if answer.is_success:
            found.accepted.append(name)
    return found


async def expired_authorisation(place: Place, node: httpx.AsyncClient) -> Findings:
    """An authorisation whose time is over is told to no element any more."""
    user = place.client(await place.enrol("user/brief"))
    made = await user.post("/v1/authorisations", json={"duration_s": 1})
    made.raise_for_status()

    async def listed() -> bool:
        answer = (await node.get("/v1/authorisations")).json()["authorisations"]
        return any(one["id"] == made.json()["id"] and not one["removed"] for one in answer)

    found = Findings(tried=1, good_refused=not await listed())

    async def over() -> bool:
        return not await listed()

    try:
        await eventually(over, 5)
    except AssertionError:
        found.accepted.append("expired authorisation")
    return found


async def requests(place: Place) -> Findings:
    """SQL and header injection with an operator's rights, and bodies and heads that are too large."""
    found = Findings()
    operator = place.operator
    await place.node("bystander")
    before = (await operator.get("/v1/elements")).json()
    sql = "' OR '1'='1'; DROP TABLE audit; --"
    for method, path, body in (
        ("POST", "/v1/revocations", {"identity": f"node/bystander{sql}"}),
        ("POST", "/v1/revocations", {"identity": f"x{sql}", "reason": sql}),
        ("POST", "/v1/enrolments", {"identity": f"node/x{sql}"}),
        ("PUT", "/v1/next-hops", {"element": f"a{sql}", "prefix": "0.0.0.0/0", "next_element": None}),
        ("DELETE", f"/v1/authorisations/x{sql}", None),
        ("GET", f"/v1/keys/alpha/bravo{sql}", None),
        ("GET", "/v1/next-hops?since=1%20OR%201=1", None),
        ("POST", "/v1/certificates", {"csr": "A" * 200_000}),
        ("POST", "/v1/enrolments", {"identity": "node/" + "x" * 60_000}),
    ):
        found.tried += 1
        answer = await operator.request(method, path, json=body)
        if answer.is_success or answer.status_code == 500:
            found.accepted.append(f"{method} {path[:40]}: {answer.status_code}")
    for name, head in (
        ("a line in a header", b"GET /v1/elements HTTP/1.1\r\nHost: x\r\nX: a\n\rSet-Cookie: b\r\n\r\n"),
        ("two lengths", b"POST /v1/enrolments HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}"),
        ("length and chunks", b"POST /v1/enrolments HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                              b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("a head without end", b"GET /v1/elements HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 1_000_000),
    ):  # fmt: skip
        found.tried += 1
        if b"HTTP/1.1 20" in await _raw(place, head, 5):
            found.accepted.append(name)
    found.good_refused += (await operator.get("/v1/elements")).json() != before
    return found


@asynccontextmanager
async def _connection(place: Place) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = place.settings.authority_listen.split(":")
    context = place.context(place.local(place.operators))
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="127.0.0.1")
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _raw(place: Place, octets: bytes, limit_s: float) -> bytes:
    """What comes back until the other side closes; raises TimeoutError when it does not."""
    async with _connection(place) as (reader, writer):
        try:
            writer.write(octets)
            await writer.drain()
            async with asyncio.timeout(limit_s):
                return await reader.read(4096)
        except (ConnectionError, asyncio.IncompleteReadError):
            return b""


async def slow(place: Place) -> Findings:
    """Clients that send a part and then nothing: their connections end."""
    found = Findings()
    begun = b"POST /v1/enrolments HTTP/1.1\r\nHost: x\r\n"
    parts = {"nothing": b"", "half a head": begun, "no body": begun + b"Content-Length: 100\r\n\r\n{"}
    limit_s = place.settings.authority_head_limit_s + 10

    async def one(name: str, part: bytes) -> None:
        found.tried += 1
        try:
            if b"HTTP/1.1 20" in await _raw(place, part, limit_s):
                found.accepted.append(name)
        except TimeoutError:
            found.accepted.append(f"{name}: still connected after {limit_s:g} s")

    await asyncio.gather(*(one(*part) for part in parts.items()))
    return found
