"""Browser login with an OpenID provider: authorisation code with PKCE (RFC 6749, RFC 7636, OpenID Connect Core).

Authlib speaks with the provider: discovery, code exchange, refresh, validation of the ID token. The gateway keeps
nothing: what must survive the way to the provider and back is in a cookie of ten minutes that only /auth sees, the
access token in the session's cookie, the refresh token in one that only /auth sees. All are HttpOnly.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2
import structlog
from authlib.integrations.httpx_client import OAuth2ClientAuth
from authlib.integrations.starlette_client import OAuth, OAuthError, StarletteOAuth2App
from joserfc.errors import JoseError

from chart.common.problems import ProblemError
from chart.common.tokens import accepted_algorithms
from chart.gateway.errors import away
from chart.gateway.settings import GatewaySettings

LOGIN_COOKIE = "chart_login"
REFRESH_COOKIE = "chart_refresh"
LOGIN_LIMIT_S = 600
METADATA_CACHE_S = 300.0
TIMEOUT_S = 5.0
# Of the provider's metadata (OpenID Connect Discovery section 3).
NEEDED = {"authorization_endpoint", "token_endpoint", "jwks_uri"}

_log = structlog.get_logger("chart.gateway.login")


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
    expires_in_s: int
    refresh_expires_in_s: int


def attempt_of(cookie: str | None) -> Attempt | None:
    """The login that a cookie remembers; None when it is missing or somebody made it up."""
    try:
        fields = json.loads(base64.urlsafe_b64decode((cookie or "").encode()))
        made = Attempt(**{name: str(fields[name]) for name in ("state", "verifier", "nonce", "return_to")})
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None
    return made if made.state and made.verifier and made.nonce else None


def local_path(wanted: str) -> str:
    """Where to go after the login: a path of our own, never another site."""
    parts = urlsplit(wanted.replace("\\", "/"))
    good = wanted.startswith("/") and not wanted.startswith("//") and not parts.scheme and not parts.netloc
    return wanted if good and "\\" not in wanted and wanted.isprintable() else "/"


class Provider:
    """The OpenID provider as a client of it sees it; ``transport`` stands for the network in tests."""

    def __init__(self, settings: GatewaySettings, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._settings = settings
        self._secret = settings.oidc_client_secret.get_secret_value()
        self._client_auth = "client_secret_post" if self._secret else "none"
        self._session = {
            "scope": "openid",
            "code_challenge_method": "S256",
            "token_endpoint_auth_method": self._client_auth,
            "timeout": TIMEOUT_S,
            "follow_redirects": False,
            "verify": httpx2.create_ssl_context(),
            "transport": transport,
        }
        self._app: StarletteOAuth2App | None = None
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()

    async def _described(self) -> StarletteOAuth2App:
        """Authlib's client with the provider's metadata and keys: read anew after five minutes, held in an outage."""
        async with self._lock:
            if self._app is None or time.monotonic() - self._read_at > METADATA_CACHE_S:
                app = OAuth().register(
                    "provider",
                    client_id=self._settings.oidc_client_id,
                    client_secret=self._secret or None,
                    server_metadata_url=f"{self._settings.token_issuer.rstrip('/')}/.well-known/openid-configuration",
                    client_kwargs=self._session,
                )
                try:
                    metadata = await app.load_server_metadata()
                except (httpx2.HTTPError, ValueError, TypeError) as error:
                    if self._app is None:
                        raise away("The identity provider") from error
                else:
                    if metadata.get("issuer") != self._settings.token_issuer or not metadata.keys() >= NEEDED:
                        raise away("The identity provider")
                    # Ours, whatever the provider offers: its list may have "none" and algorithms with a shared secret.
                    metadata["id_token_signing_alg_values_supported"] = accepted_algorithms(self._settings)
                    self._app, self._read_at = app, time.monotonic()
            return self._app

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends the browser back to."""
        return f"{self._settings.public_url.rstrip('/')}/auth/callback"

    async def begin(self, return_to: str) -> tuple[str, Attempt]:
        """The address to send the browser to, and what to remember."""
        made = await (await self._described()).create_authorization_url(self.redirect_uri)
        attempt = Attempt(made["state"], made["code_verifier"], made["nonce"], local_path(return_to))
        return made["url"], attempt

    async def finish(self, code: str, attempt: Attempt) -> Tokens:
        """Exchange the code; the ID token must be the provider's, for us, and answer this very login.

        Raises:
            ProblemError: 401 when the provider refuses or its ID token is not accepted, 503 when it is away.
        """
        app = await self._described()
        settings = self._settings
        with _provider_errors():
            found = await app.fetch_access_token(self.redirect_uri, code=code, code_verifier=attempt.verifier)
            claims = await app.parse_id_token(
                found,
                nonce=attempt.nonce,
                claims_options={
                    "iss": {"essential": True, "value": settings.token_issuer},
                    "aud": {"essential": True, "value": settings.oidc_client_id},
                },
                leeway=settings.token_leeway_s,
            )
        if claims is None:
            raise refused("the provider gave no ID token")
        return _tokens(found)

    async def refresh(self, token: str) -> Tokens:
        """New tokens for a refresh token. Raises as `finish`."""
        app = await self._described()
        with _provider_errors():
            return _tokens(await app.fetch_access_token(grant_type="refresh_token", refresh_token=token))

    async def end(self, refresh_token: str) -> None:
        """End the session at the provider; what fails is left to its expiry.

        The browser is not sent there (OpenID Connect RP-Initiated Logout): the refresh token names the session, which
        Keycloak and its like take at the same endpoint.
        """
        auth = OAuth2ClientAuth(self._settings.oidc_client_id, self._secret, self._client_auth)
        with suppress(httpx2.HTTPError, ProblemError, KeyError):
            app = await self._described()
            endpoint = app.server_metadata["end_session_endpoint"]
            await app.post(endpoint, data={"refresh_token": refresh_token}, auth=auth, withhold_token=True)


@contextmanager
def _provider_errors() -> Iterator[None]:
    """What Authlib raises, as the problem it is to who signs in."""
    try:
        yield
    except OAuthError as error:
        raise refused("the provider did not accept the login") from error
    except JoseError as error:
        _log.warning("the ID token of a login is not accepted", reason=str(error))
        raise refused("the provider's ID token is not valid") from error
    except (httpx2.HTTPError, ValueError) as error:
        raise away("The identity provider") from error


def _tokens(found: dict[str, Any]) -> Tokens:
    if not found.get("access_token"):
        raise refused("the provider did not accept the login")
    return Tokens(
        found["access_token"],
        found.get("refresh_token"),
        int(found.get("expires_in", 60)),
        int(found.get("refresh_expires_in", 0) or 0),
    )


def refused(reason: str) -> ProblemError:
    """401: the login did not succeed; the browser may begin anew."""
    return ProblemError(
        401, "Not signed in", f"The login did not succeed: {reason}.", suggestions=["Open /auth/login once more."]
    )
