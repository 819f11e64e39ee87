"""Who asks, and what they may: bearer tokens (chart.common.tokens, in a cluster service accounts' too) or the
dashboard's session cookie.

Roles: viewer (reads), application (its own requests), operator and admin (everything).
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import APIKeyCookie, HTTPBearer

from chart.common.tokens import ROLES, IssuerAwayError, Principal, TokenError, TokenVerifier
from chart.gateway.costs import cost_of
from chart.gateway.errors import GatewayError, away, forbidden, unauthorised
from chart.gateway.service_accounts import acting
from chart.gateway.shared_limits import SharedLimiter

SESSION_COOKIE = "chart_session"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


async def verified(verifier: TokenVerifier, token: str) -> Principal:
    """The principal of a token; raises a 401 problem that says what is wrong with it, 503 without its issuer."""
    try:
        return await verifier.verify(token)
    except TokenError as error:
        raise unauthorised(str(error)) from None
    except IssuerAwayError as error:
        raise away("The token issuer") from error


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
    limiter: SharedLimiter = request.app.state.gateway.limiter
    try:
        found = await _identify(request, request.app.state.gateway.verifier)
    except GatewayError as problem:
        if problem.status in (401, 403):
            limiter.alone.take(f"address:{request.client.host if request.client else ''}")
        raise
    route = getattr(request.scope.get("route"), "path", "")
    cost = cost_of(request.method, route, request.query_params.get("limit"))
    request.state.allowance = await limiter.take(f"subject:{found.subject}", cost)
    return found


def token_of(request: Request) -> str:
    """The token that a request came with, of its header or of its session; empty when there is none."""
    scheme, _, token = (request.headers.get("authorization") or "").partition(" ")
    return token.strip() if scheme else request.cookies.get(SESSION_COOKIE, "")


async def _identify(request: Request, verifier: TokenVerifier) -> Principal:
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise unauthorised("the Authorization header must be: Bearer and a token")
        return acting(await verified(verifier, token.strip()), request.headers)
    cookie = request.cookies.get(SESSION_COOKIE)
    if not cookie:
        raise unauthorised("this needs a token or a session", invalid=False)
    if request.method not in SAFE_METHODS and not same_origin(request):
        raise forbidden("a session may only be used from the dashboard's own page")
    return await verified(verifier, cookie)


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
