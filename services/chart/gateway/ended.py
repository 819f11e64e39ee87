"""Tokens that ended before their time: signed out here, or revoked at the identity provider (RFC 7662).

A token is good until it expires, wherever it is checked by its signature alone. Two things end it earlier: the sign-out
of its session at this gateway, and the provider's word. The provider is asked for event streams only, which outlive
the check at their beginning: to ask it for every request would make it a part of every request.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict

import httpx
import structlog

from chart.common.kubernetes import ApiServer
from chart.common.tokens import (
    TOKEN_LIMIT_BYTES,
    IssuerAwayError,
    KeySource,
    Principal,
    TokenError,
    TokenVerifier,
)
from chart.gateway import service_accounts
from chart.gateway.settings import GatewaySettings

SIGNED_OUT_MAX = 100_000
TIMEOUT_S = 2.0
# Streams of one token ask together.
ANSWER_KEPT_S = 2.0
ANSWERS_MAX = 10_000

_log = structlog.get_logger("chart.gateway.ended")


def _name(token: str) -> bytes:
    """What is remembered of a token: nothing that could be used."""
    return hashlib.sha256(token.encode()).digest()


class SignedOut:
    """Tokens whose sessions were ended here, until they expire; the oldest are forgotten first."""

    def __init__(self, most: int = SIGNED_OUT_MAX) -> None:
        self._most = most
        self._until: OrderedDict[bytes, int] = OrderedDict()

    def add(self, token: str, expires_at: int) -> None:
        """End a token that is good until `expires_at` (seconds since the epoch)."""
        now = time.time()
        while self._until and (len(self._until) >= self._most or next(iter(self._until.values())) < now):
            self._until.popitem(last=False)
        self._until[_name(token)] = expires_at

    def __contains__(self, token: str) -> bool:
        return _name(token) in self._until


class GatewayVerifier(TokenVerifier):
    """Checks tokens, those that were signed out here too, and in a cluster those of its service accounts."""

    def __init__(self, settings: GatewaySettings, keys: KeySource) -> None:
        super().__init__(settings, keys)
        self.signed_out = SignedOut()
        self._accounts: service_accounts.ServiceAccounts | None = None
        if settings.kubernetes_url:
            api = ApiServer(settings.kubernetes_url, settings.kubernetes_ca_file, settings.kubernetes_token_file)
            self._accounts = service_accounts.ServiceAccounts(settings, api)

    async def verify(self, token: str) -> Principal:
        """The principal of a token.

        Raises:
            TokenError: what is wrong with it.
            IssuerAwayError: it cannot be checked now.
        """
        if self._accounts is not None and len(token) <= TOKEN_LIMIT_BYTES and service_accounts.is_one(token):
            return await self._accounts.verify(token)
        principal = await super().verify(token)
        if token in self.signed_out:
            raise TokenError("the session was signed out")
        return principal


class Introspection:
    """Asks the provider whether a token still counts, as the confidential client that logs in."""

    def __init__(self, settings: GatewaySettings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._url = settings.token_introspection_url
        self._credentials = httpx.BasicAuth(settings.oidc_client_id, settings.oidc_client_secret.get_secret_value())
        self._transport = transport
        self._answers: OrderedDict[bytes, tuple[float, asyncio.Task[bool]]] = OrderedDict()

    async def refuse(self, token: str) -> None:
        """Ask.

        Raises:
            TokenError: the provider says that the token is over.
            IssuerAwayError: it does not answer.
        """
        if self._url and not await self._active(token):
            raise TokenError("the token was revoked")

    async def _active(self, token: str) -> bool:
        name, now = _name(token), time.monotonic()
        known = self._answers.get(name)
        if known is None or now - known[0] > ANSWER_KEPT_S:
            known = now, asyncio.create_task(self._ask(token))
            self._answers[name] = known
            self._answers.move_to_end(name)
            if len(self._answers) > ANSWERS_MAX:
                self._answers.popitem(last=False)
        return await asyncio.shield(known[1])

    async def _ask(self, token: str) -> bool:
        try:
            async with httpx.AsyncClient(
                timeout=TIMEOUT_S, auth=self._credentials, trust_env=False, transport=self._transport
            ) as client:
                answer = await client.post(self._url, data={"token": token, "token_type_hint": "access_token"})
                answer.raise_for_status()
                active = answer.json()["active"]
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            _log.warning("the provider does not say whether a token was revoked", reason=str(error))
            raise IssuerAwayError(self._url) from error
        return active is True
