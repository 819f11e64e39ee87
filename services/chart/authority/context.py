"""What the routes work with, and who calls: made once per process, reached through the application's state."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Annotated

from fastapi import Depends, Header, Request

from chart.authority.broker_rights import BrokerRights
from chart.authority.changes import Changes
from chart.authority.identity import Identity, Proof
from chart.authority.keys import Keys
from chart.authority.keystore import KeyStore
from chart.authority.kubernetes import Kubernetes
from chart.authority.settings import AuthoritySettings
from chart.authority.tenants import Owners
from chart.authority.tls import PEER_CERTIFICATE
from chart.authority.trust import Trust, not_authenticated
from chart.common.clock import Clock
from chart.common.database import Pool
from chart.common.platform_settings import PlatformView
from chart.common.problems import ProblemError
from chart.common.tokens import IssuerAwayError, Principal, TokenError, TokenVerifier

GATEWAY = "service/gateway"
MAX_BUCKETS = 10_000


@dataclass
class Buckets:
    """Token buckets by name, the least used forgotten first."""

    per_s: float
    burst: int
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, name: str) -> bool:
        """Use a token; False when there is none."""
        now = time.monotonic()
        tokens, at = self._buckets.get(name, (float(self.burst), now))
        tokens = min(float(self.burst), tokens + (now - at) * self.per_s)
        good = tokens >= 1
        self._buckets[name] = (tokens - 1 if good else tokens, now)
        self._buckets.move_to_end(name)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return good


@dataclass
class Authority:
    """Everything behind the routes."""

    settings: AuthoritySettings
    clock: Clock
    pool: Pool
    store: KeyStore
    trust: Trust
    keys: Keys
    changes: Changes
    verifier: TokenVerifier
    reports: Buckets
    rights: BrokerRights
    owners: Owners = field(default_factory=Owners)
    # What operators set for the whole platform; goes before the settings.
    platform: PlatformView = field(default_factory=PlatformView)
    # The cluster that it runs in, if any.
    kubernetes: Kubernetes | None = None


@dataclass(frozen=True)
class Caller:
    """Who calls. ``principal`` is the person or application that the gateway calls for."""

    proof: Proof
    own_domain: str
    address: str | None
    principal: Principal | None
    operator: bool

    @property
    def identity(self) -> Identity:
        """The certificate's."""
        return self.proof.identity

    @property
    def local(self) -> bool:
        """Whether this domain issued the certificate."""
        return self.identity.domain == self.own_domain

    @property
    def element(self) -> str | None:
        """Name of the element in tables of pairs: of a node, with its domain when it is a neighbour's."""
        if self.identity.kind != "node":
            return None
        return self.identity.name if self.local else f"{self.identity.name}@{self.identity.domain}"

    @property
    def actor(self) -> str:
        """Who stands in the audit."""
        return self.principal.subject if self.principal is not None else self.identity.short

    @property
    def subject(self) -> str | None:
        """The person or application that owns what is made; None for nodes and services."""
        if self.principal is not None:
            return self.principal.subject
        return self.identity.name if self.identity.kind == "user" and self.local else None


def of(request: Request) -> Authority:
    """What `main` put into the application's state."""
    authority: Authority = request.app.state.authority
    return authority


async def _of(request: Request) -> Authority:
    # Not `of` itself: the framework would call a plain function in another thread.
    return of(request)


Context = Annotated[Authority, Depends(_of)]


def peer(authority: Authority, request: Request, principal: Principal | None = None) -> Caller:
    """The verified peer; ``principal`` for whom the gateway speaks.

    Raises:
        ProblemError: as `Trust.check`.
    """
    proof = authority.trust.check(request.scope.get(PEER_CERTIFICATE))
    own = authority.settings.authority_domain
    address = request.client.host if request.client else None
    operator = proof.identity.domain == own and proof.identity.short in authority.settings.authority_operators
    operator = operator or (principal is not None and principal.acts_for_all)
    return Caller(proof, own, address, principal, operator)


async def caller(
    request: Request,
    authority: Context,
    authorization: Annotated[str | None, Header(max_length=9000)] = None,
    chart_client_address: Annotated[str | None, Header(max_length=45)] = None,
) -> Caller:
    """Dependency: the verified peer, and the token of the person it calls for when the peer is the gateway."""
    found = peer(authority, request)
    if not found.local or found.identity.short != GATEWAY:
        return found
    principal = await _principal(authority, authorization) if authorization is not None else None
    return replace(peer(authority, request, principal), address=chart_client_address)


async def _principal(authority: Authority, authorization: str) -> Principal:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise not_authenticated("The Authorization header must be: Bearer and a token.")
    try:
        return await authority.verifier.verify(token.strip())
    except TokenError as error:
        raise not_authenticated(f"The forwarded token is not accepted: {error}.") from None
    except IssuerAwayError:
        raise ProblemError(
            503, "Service unavailable", "The token issuer cannot be reached, so the token cannot be checked.",
            suggestions=["Try again in 2 s."],
        ) from None  # fmt: skip


Anyone = Annotated[Caller, Depends(caller)]


def forbidden(detail: str) -> ProblemError:
    """403: known, but may not."""
    return ProblemError(403, "Forbidden", detail)


def invalid(field: str, detail: str) -> ProblemError:
    """422: a value that is not accepted."""
    return ProblemError(422, "Invalid value", detail, field=field, kind="invalid-value")


async def _operator(found: Anyone) -> Caller:
    if not found.operator:
        raise forbidden(f"{found.actor} is no operator.")
    return found


async def _element(found: Anyone) -> Caller:
    if found.element is None:
        raise forbidden(f"{found.identity.short} is no node.")
    return found


Operator = Annotated[Caller, Depends(_operator)]
Element = Annotated[Caller, Depends(_element)]
