"""A small OpenID provider in this process, which signs whatever ID token a test wants; a real one is Keycloak's."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm

ISSUER = "https://login.example/realms/chart"
CLIENT = "chart-dashboard"
SECRET = "secret-of-the-dashboard-of-tests"


@dataclass
class MemoryProvider:
    """Answers the gateway's login as a transport; the browser's part is `sign_in`."""

    key: RSAPrivateKey = field(default_factory=lambda: generate_private_key(65537, 2048))
    key_id: str = "first"
    away: bool = False
    refuses: bool = False
    # Laid over the claims of the next ID tokens; None takes one away.
    claims: dict[str, Any] = field(default_factory=dict)
    # Signs the ID token in place of the published key.
    forger: RSAPrivateKey | None = None
    algorithm: str = "RS256"
    without_id_token: bool = False
    forms: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    nonce: str = ""

    @property
    def transport(self) -> httpx2.MockTransport:
        """For `chart.gateway.login.Provider`."""
        return httpx2.MockTransport(self._answer)

    def sign_in(self, location: str) -> str:
        """What the browser comes back with from where the gateway sent it: path and query of the callback."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        self.nonce = query["nonce"]
        return f"/auth/callback?code=code-of-{query['code_challenge'][:8]}&state={query['state']}"

    def id_token(self) -> str:
        """Signed; good unless the test said otherwise."""
        now = int(time.time())
        good = {"iss": ISSUER, "aud": CLIENT, "sub": "olga", "iat": now, "exp": now + 60, "nonce": self.nonce}
        claims = {name: value for name, value in {**good, **self.claims}.items() if value is not None}
        if self.algorithm == "none":
            return jwt.encode(claims, "", "none", headers={"kid": self.key_id})
        if self.algorithm.startswith("HS"):
            return jwt.encode(claims, SECRET, self.algorithm, headers={"kid": self.key_id})
        return jwt.encode(claims, self.forger or self.key, self.algorithm, headers={"kid": self.key_id})

    def access_token(self) -> str:
        """For the gateway itself; always good."""
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": "chart", "sub": "olga", "iat": now, "exp": now + 60, "roles": ["operator"]}
        return jwt.encode(claims, self.key, "RS256", headers={"kid": self.key_id})

    def jwks(self) -> dict[str, Any]:
        """The published keys."""
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": self.key_id, "use": "sig", "alg": "RS256"}]}

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if self.away:
            raise httpx2.ConnectError("the provider is away", request=request)
        place = str(request.url).removeprefix(ISSUER)
        if request.method == "POST":
            form = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
            self.forms.append((place, form))
        match place:
            case "/.well-known/openid-configuration":
                return httpx2.Response(
                    200,
                    json={
                        "issuer": ISSUER,
                        "authorization_endpoint": f"{ISSUER}/auth",
                        "token_endpoint": f"{ISSUER}/token",
                        "end_session_endpoint": f"{ISSUER}/logout",
                        "jwks_uri": f"{ISSUER}/certs",
                        "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
                    },
                )
            case "/certs":
                return httpx2.Response(200, json=self.jwks())
            case "/token" if self.refuses:
                return httpx2.Response(400, json={"error": "invalid_grant"})
            case "/token":
                tokens = {
                    "access_token": self.access_token(),
                    "refresh_token": f"refresh-{len(self.forms)}",
                    "token_type": "Bearer",
                    "expires_in": 60,
                    "refresh_expires_in": 600,
                }
                if not self.without_id_token:
                    tokens["id_token"] = self.id_token()
                return httpx2.Response(200, json=tokens)
            case "/logout":
                return httpx2.Response(204)
        return httpx2.Response(404)
