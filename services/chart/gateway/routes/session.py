"""/auth: the dashboard's session; /dev-issuer: tokens for development on one machine."""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from chart.common.problems import ProblemError
from chart.common.tokens import IssuerAwayError, TokenError
from chart.gateway.auth import SESSION_COOKIE, AnyRole, same_origin, verified
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import forbidden, responses
from chart.gateway.issuer import DevelopmentIssuer
from chart.gateway.login import (
    LOGIN_COOKIE,
    LOGIN_LIMIT_S,
    REFRESH_COOKIE,
    Provider,
    Tokens,
    attempt_of,
    local_path,
    refused,
)
from chart.gateway.schemas.session import LoginBody, Role, Session, SignIn, Token, TokenBody

router = APIRouter(tags=["session"], responses=responses(422, 429, 500))
development = APIRouter(tags=["development"], responses=responses(422, 429, 500))


def _issuer(gateway: Gateway) -> DevelopmentIssuer:
    if gateway.issuer is None:
        raise ProblemError(404, "Not found", "There is no development issuer in production.")
    return gateway.issuer


def _own_page(request: Request) -> None:
    """Refuse other web pages: by origin, and by a public host name that was made to point here (DNS rebinding)."""
    if not same_origin(request):
        raise forbidden("this may only be used from the dashboard's own page")


def _local_name(request: Request) -> None:
    host = request.url.hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if "." in host.rstrip("."):
            raise forbidden("the development issuer answers under an address or a local name only") from None


def _session(subject: str, roles: frozenset[str], expires_at: int) -> Session:
    order: list[Role] = ["viewer", "application", "operator", "admin"]
    return Session(subject=subject, roles=[role for role in order if role in roles], expires_at=expires_at)


@router.get("/auth/me", summary="Who is signed in", responses=responses(401, 403, 503))
async def me(principal: AnyRole) -> Session:
    """The subject and roles of the session or token."""
    return _session(principal.subject, principal.roles, principal.expires_at)


@router.get("/auth/sign-in", summary="How to sign in")
async def sign_in(gateway: Context) -> SignIn:
    """What the dashboard offers to who is not signed in."""
    login_url = "/auth/login" if gateway.provider is not None else None
    return SignIn(login_url=login_url, development=gateway.issuer is not None)


def _provider(gateway: Gateway) -> Provider:
    if gateway.provider is None:
        raise ProblemError(404, "Not found", "No identity provider is configured: set CHART_OIDC_CLIENT_ID.")
    return gateway.provider


@router.get(
    "/auth/login",
    status_code=302,
    response_class=Response,
    summary="Sign in with the identity provider",
    responses={**responses(404, 503), 302: {"description": "To the provider."}},
)
async def login(gateway: Context, return_to: Annotated[str, Query(max_length=500)] = "/") -> Response:
    """Sends the browser to the provider (authorisation code with PKCE) and remembers the attempt for ten minutes."""
    url, attempt = await _provider(gateway).begin(return_to)
    response = RedirectResponse(url, 302, headers={"Cache-Control": "no-store"})
    _set(response, gateway, LOGIN_COOKIE, attempt.cookie(), LOGIN_LIMIT_S, "/auth")
    return response


@router.get(
    "/auth/callback",
    status_code=303,
    response_class=Response,
    summary="Back from the identity provider",
    responses={**responses(401, 404, 503), 303: {"description": "To the page that was wanted."}},
)
async def callback(
    request: Request,
    gateway: Context,
    code: Annotated[str, Query(max_length=4096)] = "",
    state: Annotated[str, Query(max_length=256)] = "",
) -> Response:
    """Exchanges the code and sets the session's cookie: HttpOnly, SameSite=Lax."""
    provider = _provider(gateway)
    attempt = attempt_of(request.cookies.get(LOGIN_COOKIE))
    if attempt is None or not code or not hmac.compare_digest(attempt.state.encode(), state.encode()):
        raise refused("it was not begun in this browser, or too long ago")
    tokens = await provider.finish(code, attempt)
    await verified(gateway.verifier, tokens.access)
    response = RedirectResponse(local_path(attempt.return_to), 303, headers={"Cache-Control": "no-store"})
    _keep(response, gateway, tokens)
    response.delete_cookie(LOGIN_COOKIE, path="/auth", httponly=True, samesite="lax")
    return response


@router.post("/auth/refresh", summary="Go on with the session", responses=responses(401, 403, 404, 503))
async def refresh(request: Request, response: Response, gateway: Context) -> Session:
    """New tokens for those of a browser session; call it before `expires_at`."""
    _own_page(request)
    token = request.cookies.get(REFRESH_COOKIE)
    if not token:
        raise refused("there is no session to go on with")
    tokens = await _provider(gateway).refresh(token)
    principal = await verified(gateway.verifier, tokens.access)
    _keep(response, gateway, tokens)
    response.headers["Cache-Control"] = "no-store"
    return _session(principal.subject, principal.roles, principal.expires_at)


def _keep(response: Response, gateway: Gateway, tokens: Tokens) -> None:
    _set(response, gateway, SESSION_COOKIE, tokens.access, tokens.expires_in_s, "/")
    if tokens.refresh is not None:
        _set(response, gateway, REFRESH_COOKIE, tokens.refresh, tokens.refresh_expires_in_s or 3600, "/auth")


def _set(response: Response, gateway: Gateway, name: str, value: str, life_s: int, path: str) -> None:
    secure = gateway.settings.public_url.startswith("https:")
    response.set_cookie(name, value, max_age=life_s, path=path, httponly=True, samesite="lax", secure=secure)


@router.post("/auth/logout", status_code=204, summary="Sign out", responses=responses(403))
async def logout(request: Request, response: Response, gateway: Context) -> None:
    """Ends the session, here and at the provider; event streams of it close."""
    _own_page(request)
    token = request.cookies.get(REFRESH_COOKIE)
    if session := request.cookies.get(SESSION_COOKIE):
        # A token that is no longer good has nothing that could be ended.
        with contextlib.suppress(TokenError, IssuerAwayError):
            gateway.verifier.signed_out.add(session, (await gateway.verifier.verify(session)).expires_at)
    if gateway.provider is not None and token:
        await gateway.provider.end(token)
    response.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="lax")
    response.delete_cookie(REFRESH_COOKIE, path="/auth", httponly=True, samesite="lax")


@development.post("/auth/dev-login", summary="Sign in with a role", responses=responses(400, 403, 413))
async def dev_login(body: LoginBody, request: Request, response: Response, gateway: Context) -> Session:
    """Only on a development platform. Sets the session's cookie: HttpOnly, SameSite=Lax."""
    _own_page(request)
    _local_name(request)
    issuer = _issuer(gateway)
    token, lifetime_s = issuer.issue(f"dev-{body.role}", [body.role])
    response.set_cookie(
        SESSION_COOKIE,
        token,
        max_age=lifetime_s,
        path="/",
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    principal = await verified(gateway.verifier, token)
    return _session(principal.subject, principal.roles, principal.expires_at)


@development.post("/dev-issuer/token", summary="Get a token", responses=responses(400, 403, 413))
async def token(body: TokenBody, request: Request, response: Response, gateway: Context) -> Token:
    """Only on a development platform."""
    _own_page(request)
    _local_name(request)
    access_token, lifetime_s = _issuer(gateway).issue(body.subject, body.roles)
    response.headers["Cache-Control"] = "no-store"
    return Token(access_token=access_token, expires_in=lifetime_s)


@development.get("/dev-issuer/jwks", summary="Public keys")
async def jwks(gateway: Context) -> dict[str, Any]:
    """RFC 7517."""
    return _issuer(gateway).jwks()


@development.get("/dev-issuer/.well-known/openid-configuration", summary="Issuer metadata")
async def configuration(request: Request, gateway: Context) -> dict[str, Any]:
    """OpenID provider metadata, as far as it applies."""
    return _issuer(gateway).configuration(str(request.base_url).rstrip("/"))
