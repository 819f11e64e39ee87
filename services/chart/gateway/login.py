"""Browser login with an OpenID provider: authorisation code with PKCE (RFC 6749, RFC 7636, OpenID Connect Core).

The gateway keeps nothing: what must survive the way to the provider and back is in a cookie of ten minutes that only
/auth sees, the access token in the session's cookie, the refresh token in one that only /auth sees. All are HttpOnly.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx

from chart.common.problems import ProblemError
from chart.gateway.errors import away
from chart.gateway.settings import GatewaySettings

LOGIN_COOKIE = "chart_login"
REFRESH_COOKIE = "chart_refresh"
LOGIN_LIMIT_S = 600
METADATA_CACHE_S = 300.0
TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Attempt:
    """What a login remembers while the browser is with the provider."""

    state: str
    verifier: str
    nonce: str
    return_to: str

    def cookie(self) -> str:
        """As it stands in the cookie."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()


@dataclass(frozen=True)
class Tokens:
    """What the provider gave."""

    access: str
    refresh: str | None
    id_token: str | None
    expires_in_s: int
    refresh_expires_in_s: int


def attempt_of(cookie: str | None) -> Attempt | None:
    """The login that a cookie remembers; None when it is missing or somebody made it up."""
    try:
        fields = json.loads(base64.urlsafe_b64decode((cookie or "").encode()))
        made = Attempt(**{name: str(fields[name]) for name in ("state", "verifier", "nonce", "return_to")})
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None
    return made if made.state and made.verifier else None


def local_path(wanted: str) -> str:
    """Where to go after the login: a path of our own, never another site."""
    parts = urlsplit(wanted.replace("\\", "/"))
    good = wanted.startswith("/") and not wanted.startswith("//") and not parts.scheme and not parts.netloc
    return wanted if good and "\\" not in wanted and wanted.isprintable() else "/"


def challenge(verifier: str) -> str:
    """PKCE S256."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


class Provider:
    """The OpenID provider as a client of it sees it."""

    def __init__(self, settings: GatewaySettings, client: httpx.AsyncClient | None = None) -> None:
        self._settings = settings
        self._client = client or httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False)
        self._metadata: dict[str, Any] = {}
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.aclose()

    async def _endpoint(self, name: str) -> str:
        async with self._lock:
            if time.monotonic() - self._read_at > METADATA_CACHE_S:
                url = f"{self._settings.token_issuer.rstrip('/')}/.well-known/openid-configuration"
                try:
                    answer = await self._client.get(url)
                    answer.raise_for_status()
                    found = answer.json()
                except (httpx.HTTPError, ValueError) as error:
                    if not self._metadata:
                        raise away("The identity provider") from error
                else:
                    if found.get("issuer") != self._settings.token_issuer:
                        raise away("The identity provider")
                    self._metadata, self._read_at = found, time.monotonic()
        return str(self._metadata[name])

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends the browser back to."""
        return f"{self._settings.public_url.rstrip('/')}/auth/callback"

    async def begin(self, return_to: str) -> tuple[str, Attempt]:
        """The address to send the browser to, and what to remember."""
        attempt = Attempt(
            secrets.token_urlsafe(24), secrets.token_urlsafe(48), secrets.token_urlsafe(16), local_path(return_to)
        )
        query = {
            "response_type": "code",
            "client_id": self._settings.oidc_client_id,
            "redirect_uri": self.redirect_uri,
            "scope": "openid",
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge(attempt.verifier),
            "code_challenge_method": "S256",
        }
        return f"{await self._endpoint('authorization_endpoint')}?{urlencode(query)}", attempt

    async def finish(self, code: str, attempt: Attempt) -> Tokens:
        """Exchange the code; the ID token must answer this very login.

        Raises:
            ProblemError: 401 when the provider refuses or answers another login, 503 when it is away.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": attempt.verifier,
        }
        tokens = await self._tokens(form)
        # It came from the provider itself over its own connection: of the ID token only the nonce is needed.
        if not hmac.compare_digest(_nonce(tokens.id_token), attempt.nonce):
            raise refused("the provider answered another login")
        return tokens

    async def refresh(self, token: str) -> Tokens:
        """New tokens for a refresh token. Raises as `finish`."""
        return await self._tokens({"grant_type": "refresh_token", "refresh_token": token})

    async def end(self, refresh_token: str) -> None:
        """End the session at the provider; what fails is left to its expiry."""
        form = {"client_id": self._settings.oidc_client_id, "refresh_token": refresh_token}
        try:
            await self._client.post(await self._endpoint("end_session_endpoint"), data=form | self._secret())
        except (httpx.HTTPError, ProblemError, KeyError):
            return

    def _secret(self) -> dict[str, str]:
        secret = self._settings.oidc_client_secret.get_secret_value()
        return {"client_secret": secret} if secret else {}

    async def _tokens(self, form: dict[str, str]) -> Tokens:
        try:
            answer = await self._client.post(
                await self._endpoint("token_endpoint"),
                data={"client_id": self._settings.oidc_client_id, **form, **self._secret()},
            )
            found = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise away("The identity provider") from error
        if answer.status_code >= 500:
            raise away("The identity provider")
        if answer.is_error or "access_token" not in found:
            raise refused("the provider did not accept the login")
        return Tokens(
            found["access_token"],
            found.get("refresh_token"),
            found.get("id_token"),
            int(found.get("expires_in", 60)),
            int(found.get("refresh_expires_in", 0) or 0),
        )


def refused(reason: str) -> ProblemError:
    """401: the login did not succeed; the browser may begin anew."""
    return ProblemError(
        401, "Not signed in", f"The login did not succeed: {reason}.", suggestions=["Open /auth/login once more."]
    )


def _nonce(id_token: str | None) -> str:
    try:
        payload = (id_token or "").split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return str(claims.get("nonce", ""))
    except (IndexError, ValueError, binascii.Error, AttributeError):
        return ""
