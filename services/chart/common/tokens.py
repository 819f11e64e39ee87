"""OIDC access tokens (RFC 6750, RFC 7519, RFC 9068): who they speak for; used by the gateway and by the authority.

Checked every time: signature with an algorithm of the allow-list under a key of the issuer, issuer, audience,
authorised party, expiry. Roles: viewer (reads), application (its own requests), operator and admin (everything).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import httpx
import jwt

Role = Literal["viewer", "application", "operator", "admin"]
ROLES: frozenset[str] = frozenset(get_args(Role))
# Unknown key ids make the key set be read again, but not more often than this.
JWKS_REFRESH_MIN_S = 10.0
TOKEN_LIMIT_BYTES = 8192
# Names the tenant that the token belongs to; without it the tenants' lists of members say so.
TENANT_CLAIM = "tenant"


class TokenError(Exception):
    """The token is not accepted; the words may be shown to who sent it."""


class IssuerAwayError(Exception):
    """The issuer's keys cannot be read and none are held."""


class TokenSettings(Protocol):
    """What a verifier is told; settings of services have these fields."""

    token_issuer: str
    token_audience: str
    token_algorithms: tuple[str, ...]
    token_authorised_parties: tuple[str, ...]
    token_leeway_s: int


@dataclass(frozen=True)
class Principal:
    """Who asks."""

    subject: str
    roles: frozenset[str]
    expires_at: int
    # The client that the token was given to (azp, or client_id of RFC 9068), and the tenant that it names.
    client: str = ""
    tenant: str = ""
    # A controller of the cluster may ask for a namespace; addresses of the pods that it asks for (gateway).
    controls: bool = False
    addresses: tuple[str, ...] = ()

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
        """The public key of this id; None when the issuer has none.

        Raises:
            IssuerAwayError: the issuer cannot be reached and nothing is cached.
        """
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
                raise IssuerAwayError(self.url) from error
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


def accepted_algorithms(settings: TokenSettings) -> list[str]:
    """The allow-list of signature algorithms; never "none" nor one with a shared secret, whatever the settings say."""
    return [name for name in settings.token_algorithms if name != "none" and not name.startswith("HS")]


class TokenVerifier:
    """Checks tokens against one issuer."""

    def __init__(self, settings: TokenSettings, keys: KeySource) -> None:
        self._settings = settings
        self._keys = keys
        self._algorithms = accepted_algorithms(settings)

    async def verify(self, token: str) -> Principal:
        """The principal of a token.

        Raises:
            TokenError: what is wrong with it.
            IssuerAwayError: it cannot be checked now.
        """
        if len(token) > TOKEN_LIMIT_BYTES:
            raise TokenError("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise TokenError("the token cannot be read") from None
        algorithm = header.get("alg")
        if algorithm not in self._algorithms:
            raise TokenError("the token is signed with an algorithm that is not accepted")
        key_id = header.get("kid")
        key = await self._keys.key(key_id if isinstance(key_id, str) else None)
        if key is None:
            raise TokenError("the token is signed with a key that the issuer does not have")
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
            raise TokenError("the token has expired") from None
        except jwt.InvalidAudienceError:
            raise TokenError("the token is for another audience") from None
        except jwt.InvalidIssuerError:
            raise TokenError("the token is from another issuer") from None
        except jwt.MissingRequiredClaimError as error:
            raise TokenError(f"the token lacks the claim {error.claim}") from None
        except jwt.InvalidSignatureError:
            raise TokenError("the token's signature is wrong") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise TokenError("the token is not valid") from None

    def _principal(self, claims: dict[str, Any]) -> Principal:
        parties = self._settings.token_authorised_parties
        if parties and claims.get("azp") not in parties:
            raise TokenError("the token was given to another client")
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= 128:
            raise TokenError("the token names no subject")
        client = _text(claims, "azp") or _text(claims, "client_id")
        return Principal(subject, roles_of(claims), int(claims["exp"]), client, _text(claims, TENANT_CLAIM))


def _text(claims: Mapping[str, Any], name: str) -> str:
    """A claim that is a short text; what is another thing counts as missing, but for the tenant.

    Raises:
        TokenError: the tenant is stated in a way that cannot be read: the token would count as another tenant's.
    """
    value = claims.get(name, "")
    if isinstance(value, str) and len(value) <= 128:
        return value
    if name == TENANT_CLAIM:
        raise TokenError(f"the claim {name} must be the id of one tenant")
    return ""
