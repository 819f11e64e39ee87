"""A token issuer for one machine, in place of an identity provider; it refuses to exist in production.

Its Ed25519 key lies in the state directory, readable by its owner only, so that tokens outlive a restart.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jwt
import structlog
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm
from ulid import ULID

from chart.gateway.settings import GatewaySettings

ALGORITHM = "EdDSA"

_log = structlog.get_logger("chart.gateway")


class NotInProductionError(RuntimeError):
    """The development issuer was asked for in production."""


class DevelopmentIssuer:
    """Gives a token with any role to whoever reaches it. For development on loopback only."""

    def __init__(self, settings: GatewaySettings) -> None:
        if not settings.development:
            msg = "the development issuer must not run in production: set CHART_TOKEN_ISSUER and CHART_TOKEN_JWKS_URL"
            raise NotInProductionError(msg)
        self._settings = settings
        self._private = _load_or_create(settings.state_dir / "gateway" / "dev-issuer.key")
        public = self._private.public_key()
        raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self._key_id = hashlib.sha256(raw).hexdigest()[:16]
        described = json.loads(OKPAlgorithm.to_jwk(public))
        self._jwk: dict[str, Any] = {**described, "kid": self._key_id, "use": "sig", "alg": ALGORITHM}
        self._verifying = jwt.PyJWK(self._jwk, algorithm=ALGORITHM)

    async def key(self, key_id: str | None) -> jwt.PyJWK | None:
        """The public key of this id; None when the issuer has none."""
        return self._verifying if key_id == self._key_id else None

    def issue(self, subject: str, roles: Sequence[str]) -> tuple[str, int]:
        """A token and its lifetime in seconds."""
        now = int(time.time())
        lifetime_s = self._settings.dev_token_lifetime_s
        claims = {
            "iss": self._settings.token_issuer,
            "aud": self._settings.token_audience,
            "sub": subject,
            "roles": list(dict.fromkeys(roles)),
            "iat": now,
            "exp": now + lifetime_s,
            "jti": str(ULID()),
        }
        return jwt.encode(claims, self._private, algorithm=ALGORITHM, headers={"kid": self._key_id}), lifetime_s

    def jwks(self) -> dict[str, Any]:
        """The public keys (RFC 7517)."""
        return {"keys": [self._jwk]}

    def configuration(self, base_url: str) -> dict[str, Any]:
        """OpenID provider metadata, as far as it applies."""
        return {
            "issuer": self._settings.token_issuer,
            "jwks_uri": f"{base_url}/dev-issuer/jwks",
            "token_endpoint": f"{base_url}/dev-issuer/token",
            "id_token_signing_alg_values_supported": [ALGORITHM],
            "subject_types_supported": ["public"],
            "response_types_supported": ["token"],
        }


def _load_or_create(path: Path) -> Ed25519PrivateKey:
    """The key in this file; made when missing. Two starting at once end up with the same one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        pem = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        draft = path.with_suffix(f".{os.getpid()}.new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
        try:
            os.link(draft, path)
            _log.info("made a key for the development issuer", path=str(path))
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        msg = f"{path} holds another kind of key than Ed25519; remove it to have a new one made"
        raise TypeError(msg)
    return key
