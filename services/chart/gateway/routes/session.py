"""/auth: the dashboard's session; /dev-issuer: tokens for development on one machine."""

from __future__ import annotations

import ipaddress
from typing import Any

from fastapi import APIRouter, Request, Response

from chart.common.problems import ProblemError
from chart.gateway.auth import SESSION_COOKIE, AnyRole, same_origin, verified
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import forbidden, responses
from chart.gateway.issuer import DevelopmentIssuer
from chart.gateway.schemas.session import LoginBody, Role, Session, Token, TokenBody

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


@router.post("/auth/logout", status_code=204, summary="Sign out", responses=responses(403))
async def logout(request: Request, response: Response) -> None:
    """Forgets the session's cookie."""
    _own_page(request)
    response.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="lax")


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
