"""Who asks, and what they may: bearer tokens (RFC 6750, RFC 7519, OIDC) or the dashboard's session cookie.

Checked on every request: signature with an algorithm of the allow-list under a key of the issuer, issuer, audience,
authorised party, expiry. Roles: viewer (reads), application (its own requests), operator and admin (everything).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, get_args

import httpx
import jwt
from fastapi import Depends, Request
from fastapi.security import APIKeyCookie, HTTPBearer

from chart.gateway.errors import GatewayError, away, forbidden, unauthorised
from chart.gateway.limits import RateLimiter
from chart.gateway.schemas.session import Role
from chart.gateway.settings import GatewaySettings

SESSION_COOKIE = "chart_session"
ROLES: frozenset[str] = frozenset(get_args(Role))
# Unknown key ids make the key set be read again, but not more often than this.
JWKS_REFRESH_MIN_S = 10.0
TOKEN_LIMIT_BYTES = 8192
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Principal:
    """Who asks."""

    subject: str
    roles: frozenset[str]
    expires_at: int

    def has(self, *roles: str) -> bool:
        """Whether one of the roles is held."""
        return not self.roles.isdisjoint(roles)

    @property
    def sees_all(self) -> bool:
        """Whether the requests of every application may be read."""
        return self.has("viewer", "operator", "admin")

    @property
    def acts_for_all(self) -> bool:
        """Whether the requests of every application may be changed."""
        return self.has("operator", "admin")


class KeySource(Protocol):
    """Where public keys of the issuer come from."""

    async def key(self, key_id: str | None) -> jwt.PyJWK | None:
        """The key of this id; None when the issuer has none."""
        ...


@dataclass
class RemoteKeys:
    """Keys of an issuer's JWKS document, cached; an unknown key id reads it again (key rotation)."""

    url: str
    cache_s: float
    fetch: Callable[[str], Coroutine[Any, Any, dict[str, Any]]] | None = None
    _keys: dict[str | None, jwt.PyJWK] = field(default_factory=dict)
    _read_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def key(self, key_id: str | None) -> jwt.PyJWK | None:
        """See `KeySource`. Raises a 503 problem when the issuer cannot be reached and nothing is cached."""
        age_s = time.monotonic() - self._read_at
        if age_s > self.cache_s or (key_id not in self._keys and age_s > JWKS_REFRESH_MIN_S):
            async with self._lock:
                if time.monotonic() - self._read_at > JWKS_REFRESH_MIN_S:
                    await self._read()
        return self._keys.get(key_id)

    async def _read(self) -> None:
        try:
            document = await (self.fetch or _fetch_json)(self.url)
            self._keys = {key.key_id: key for key in jwt.PyJWKSet.from_dict(document).keys}
        except (httpx.HTTPError, ValueError, jwt.PyJWTError) as error:
            if not self._keys:
                raise away("The token issuer") from error
        self._read_at = time.monotonic()


async def _fetch_json(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=5, follow_redirects=False) as client:
        response = await client.get(url)
        response.raise_for_status()
        document: dict[str, Any] = response.json()
        return document


def roles_of(claims: Mapping[str, Any]) -> frozenset[str]:
    """Roles in a token: claim ``roles``, or Keycloak's ``realm_access.roles``; unknown names are ignored."""
    realm = claims.get("realm_access")
    named: list[Any] = []
    for found in (claims.get("roles"), realm.get("roles") if isinstance(realm, dict) else None):
        if isinstance(found, list):
            named.extend(found)
    return frozenset(role for role in named if isinstance(role, str)) & ROLES


class TokenVerifier:
    """Checks tokens against one issuer."""

    def __init__(self, settings: GatewaySettings, keys: KeySource) -> None:
        self._settings = settings
        self._keys = keys
        self._algorithms = [name for name in settings.token_algorithms if name != "none" and not name.startswith("HS")]

    async def verify(self, token: str) -> Principal:
        """The principal of a token; raises a 401 problem that says what is wrong with it."""
        if len(token) > TOKEN_LIMIT_BYTES:
            raise unauthorised("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise unauthorised("the token cannot be read") from None
        algorithm = header.get("alg")
        if algorithm not in self._algorithms:
            raise unauthorised("the token is signed with an algorithm that is not accepted")
        key_id = header.get("kid")
        key = await self._keys.key(key_id if isinstance(key_id, str) else None)
        if key is None:
            raise unauthorised("the token is signed with a key that the issuer does not have")
        return self._principal(self._claims(token, key, algorithm))

    def _claims(self, token: str, key: jwt.PyJWK, algorithm: str) -> dict[str, Any]:
        settings = self._settings
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=settings.token_issuer,
                audience=settings.token_audience,
                leeway=settings.token_leeway_s,
                options={"require": ["exp", "iat", "sub", "aud", "iss"]},
            )
        except jwt.ExpiredSignatureError:
            raise unauthorised("the token has expired") from None
        except jwt.InvalidAudienceError:
            raise unauthorised("the token is for another audience") from None
        except jwt.InvalidIssuerError:
            raise unauthorised("the token is from another issuer") from None
        except jwt.MissingRequiredClaimError as error:
            raise unauthorised(f"the token lacks the claim {error.claim}") from None
        except jwt.InvalidSignatureError:
            raise unauthorised("the token's signature is wrong") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise unauthorised("the token is not valid") from None

    def _principal(self, claims: dict[str, Any]) -> Principal:
        parties = self._settings.token_authorised_parties
        if parties and claims.get("azp") not in parties:
            raise unauthorised("the token was given to another client")
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= 128:
            raise unauthorised("the token names no subject")
        return Principal(subject, roles_of(claims), int(claims["exp"]))


bearer_scheme = HTTPBearer(
    auto_error=False, scheme_name="bearer", bearerFormat="JWT", description="OIDC access token with role claims."
)
cookie_scheme = APIKeyCookie(
    name=SESSION_COOKIE, auto_error=False, scheme_name="session", description="The dashboard's session."
)


def same_origin(request: Request) -> bool:
    """Whether a browser says that our own page sent this (CSRF: SameSite=Lax alone lets subdomains through)."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or origin == f"{request.url.scheme}://{request.url.netloc}"


async def authenticate(request: Request) -> Principal:
    """The principal of this request; raises a 401, 403 or 429 problem. Who cannot say who it is counts by address."""
    limiter: RateLimiter = request.app.state.gateway.limiter
    try:
        found = await _identify(request, request.app.state.gateway.verifier)
    except GatewayError as problem:
        if problem.status in (401, 403):
            limiter.take(f"address:{request.client.host if request.client else ''}")
        raise
    request.state.allowance = limiter.take(f"subject:{found.subject}")
    return found


async def _identify(request: Request, verifier: TokenVerifier) -> Principal:
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise unauthorised("the Authorization header must be: Bearer and a token")
        return await verifier.verify(token.strip())
    cookie = request.cookies.get(SESSION_COOKIE)
    if not cookie:
        raise unauthorised("this needs a token or a session", invalid=False)
    if request.method not in SAFE_METHODS and not same_origin(request):
        raise forbidden("a session may only be used from the dashboard's own page")
    return await verifier.verify(cookie)


async def principal(
    request: Request,
    _bearer: Annotated[object, Depends(bearer_scheme)],
    _cookie: Annotated[object, Depends(cookie_scheme)],
) -> Principal:
    """Dependency: any known principal with at least one role."""
    found = await authenticate(request)
    if not found.roles:
        raise forbidden("the token has no role of CHART", roles=sorted(ROLES))
    return found


AnyRole = Annotated[Principal, Depends(principal)]


def require(*roles: str) -> Any:
    """Dependency: a principal with one of these roles."""

    async def check(found: AnyRole) -> Principal:
        if not found.has(*roles):
            raise forbidden(f"{' and '.join(sorted(found.roles))} may not do this", roles=roles)
        return found

    return Depends(check)


Asker = Annotated[Principal, require("application", "operator", "admin")]
Operator = Annotated[Principal, require("operator", "admin")]
