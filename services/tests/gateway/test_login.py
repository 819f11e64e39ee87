"""The browser login against a provider in this process; the one with a real Keycloak is in test_keycloak.py."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from pydantic import SecretStr

from chart.common.tokens import RemoteKeys
from chart.gateway import login as login_module
from chart.gateway.ended import GatewayVerifier
from chart.gateway.login import Attempt, Provider, attempt_of, local_path
from support.gateway import World, world
from support.oidc import CLIENT, ISSUER, SECRET, MemoryProvider

OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def provider() -> MemoryProvider:
    return MemoryProvider()


@pytest_asyncio.fixture
async def signing(provider: MemoryProvider, tmp_path: Path) -> AsyncIterator[World]:
    """A gateway whose logins go to the provider of this process."""
    settings = {"token_issuer": ISSUER, "token_jwks_url": f"{ISSUER}/certs", "oidc_client_id": CLIENT}
    async with world(tmp_path, **settings, oidc_client_secret=SECRET, public_url="http://gateway") as made:

        async def keys(_url: str) -> dict[str, Any]:
            return provider.jwks()

        made.gateway.provider = Provider(made.gateway.settings, provider.transport)
        made.gateway.verifier = GatewayVerifier(made.gateway.settings, RemoteKeys("", 300.0, keys))
        yield made


async def sign_in(place: World, provider: MemoryProvider) -> httpx.Response:
    """The gateway's answer to the browser that comes back from the provider."""
    begun = await place.client.get("/auth/login", params={"return_to": "/nodes"})
    assert begun.status_code == 302
    return await place.client.get(provider.sign_in(begun.headers["location"]))


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)", "",
     "/a\r\nSet-Cookie: x=y", "http:/evil"],
)  # fmt: skip
def test_after_the_login_the_browser_stays_here(wanted: str) -> None:
    assert local_path(wanted) == "/"


def test_pages_of_our_own_are_kept() -> None:
    assert local_path("/requests/1?tab=path#x") == "/requests/1?tab=path#x"


def test_an_attempt_survives_its_cookie_and_junk_does_not() -> None:
    made = Attempt("s", "v", "n", "/x")
    assert attempt_of(made.cookie()) == made
    unbound = Attempt("s", "v", "", "/x").cookie()
    for junk in (None, "", "x", base64.urlsafe_b64encode(b"[]").decode(), base64.urlsafe_b64encode(b"{}").decode()):
        assert attempt_of(junk) is None
    assert attempt_of(unbound) is None


async def test_without_a_provider_there_is_no_browser_login(place: World) -> None:
    offered = await place.client.get("/auth/sign-in")
    assert offered.json() == {"login_url": None, "development": True}
    for path in ("/auth/login", "/auth/callback?code=x&state=y"):
        assert (await place.client.get(path)).status_code == 404


async def test_a_login_is_bound_to_its_browser_by_state_nonce_and_pkce(
    signing: World, provider: MemoryProvider
) -> None:
    begun = await signing.client.get("/auth/login", params={"return_to": "/nodes"})
    address = urlsplit(begun.headers["location"])
    assert f"{address.scheme}://{address.netloc}{address.path}" == f"{ISSUER}/auth"
    query = {name: values[0] for name, values in parse_qs(address.query).items()}
    attempt = json.loads(base64.urlsafe_b64decode(signing.client.cookies["chart_login"]))
    digest = hashlib.sha256(attempt["verifier"].encode()).digest()
    assert query == {
        "response_type": "code",
        "client_id": CLIENT,
        "redirect_uri": "http://gateway/auth/callback",
        "scope": "openid",
        "state": attempt["state"],
        "nonce": attempt["nonce"],
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    assert len(attempt["verifier"]) >= 43  # RFC 7636 section 4.1
    done = await signing.client.get(provider.sign_in(begun.headers["location"]))
    assert (done.status_code, done.headers["location"]) == (303, "/nodes")
    assert provider.forms == [
        (
            "/token",
            {
                "grant_type": "authorization_code",
                "code": f"code-of-{query['code_challenge'][:8]}",
                "redirect_uri": "http://gateway/auth/callback",
                "code_verifier": attempt["verifier"],
                "client_id": CLIENT,
                "client_secret": SECRET,
            },
        )
    ]
    assert (await signing.client.get("/auth/me")).json()["roles"] == ["operator"]


async def test_a_session_goes_on_and_ends(signing: World, provider: MemoryProvider) -> None:
    await sign_in(signing, provider)
    old = signing.client.cookies["chart_refresh"]
    renewed = await signing.client.post("/auth/refresh", headers=OWN_PAGE)
    assert (renewed.status_code, renewed.json()["subject"]) == (200, "olga")
    place, form = provider.forms[-1]
    assert (place, form["grant_type"], form["refresh_token"]) == ("/token", "refresh_token", old)
    current = signing.client.cookies["chart_refresh"]
    assert current != old
    assert (await signing.client.post("/auth/logout", headers=OWN_PAGE)).status_code == 204
    secrets = {"client_id": CLIENT, "client_secret": SECRET}
    assert provider.forms[-1] == ("/logout", {"refresh_token": current, **secrets})
    assert (await signing.client.get("/auth/me")).status_code == 401


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("aud", "another-client"),
        ("aud", ["another-client", "a-third"]),
        ("azp", "another-client"),
        ("iss", "https://elsewhere.example"),
        ("exp", -60),
        ("iat", 600),
        ("nonce", "of-another-login"),
        *((name, None) for name in ("aud", "iss", "exp", "iat", "sub", "nonce")),
    ],
)
async def test_an_id_token_with_a_wrong_claim_is_refused(
    signing: World, provider: MemoryProvider, claim: str, value: object
) -> None:
    # Times are seconds from now.
    provider.claims = {claim: int(time.time()) + value if isinstance(value, int) else value}
    answer = await sign_in(signing, provider)
    assert (answer.status_code, answer.json()["title"]) == (401, "Not signed in")
    assert "chart_session" not in signing.client.cookies
    provider.claims = {}
    assert (await sign_in(signing, provider)).status_code == 303


async def test_an_audience_of_others_beside_us_needs_us_as_the_authorised_party(
    signing: World, provider: MemoryProvider
) -> None:
    provider.claims = {"aud": [CLIENT, "another-client"], "azp": "another-client"}
    assert (await sign_in(signing, provider)).status_code == 401
    provider.claims["azp"] = CLIENT
    assert (await sign_in(signing, provider)).status_code == 303


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS512"])
async def test_an_id_token_signed_otherwise_than_we_allow_is_refused(
    signing: World, provider: MemoryProvider, algorithm: str
) -> None:
    # The provider's metadata offer "none" and HS256.
    provider.algorithm = algorithm
    assert (await sign_in(signing, provider)).status_code == 401


async def test_an_id_token_of_a_forger_is_refused_and_so_is_none_at_all(
    signing: World, provider: MemoryProvider
) -> None:
    provider.forger = generate_private_key(65537, 2048)
    assert (await sign_in(signing, provider)).status_code == 401
    provider.forger, provider.without_id_token = None, True
    assert (await sign_in(signing, provider)).status_code == 401
    assert "chart_session" not in signing.client.cookies


async def test_a_new_key_of_the_provider_is_read_at_once(signing: World, provider: MemoryProvider) -> None:
    assert (await sign_in(signing, provider)).status_code == 303
    provider.key, provider.key_id = generate_private_key(65537, 2048), "second"
    cast("RemoteKeys", signing.gateway.verifier._keys)._read_at = float("-inf")
    assert (await sign_in(signing, provider)).status_code == 303


async def test_what_the_provider_refuses_is_401_and_its_absence_is_503(
    signing: World, provider: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.away = True
    assert (await signing.client.get("/auth/login")).status_code == 503
    provider.away, provider.refuses = False, True
    assert (await sign_in(signing, provider)).status_code == 401
    provider.refuses = False
    await sign_in(signing, provider)
    # Its metadata are held while it is away, but nothing can be exchanged.
    monkeypatch.setattr(login_module, "METADATA_CACHE_S", 0.0)
    provider.away = True
    begun = await signing.client.get("/auth/login")
    assert begun.status_code == 302
    back = await signing.client.get(provider.sign_in(begun.headers["location"]))
    assert back.status_code == 503
    assert "Retry-After" in back.headers
    assert (await signing.client.post("/auth/refresh", headers=OWN_PAGE)).status_code == 503
    assert (await signing.client.post("/auth/logout", headers=OWN_PAGE)).status_code == 204


async def test_metadata_of_another_issuer_are_not_taken(signing: World, provider: MemoryProvider) -> None:
    other = signing.gateway.settings.model_copy(update={"token_issuer": f"{ISSUER}/"})
    signing.gateway.provider = Provider(other, provider.transport)
    assert (await signing.client.get("/auth/login")).status_code == 503


async def test_a_public_client_says_its_name_and_no_secret(signing: World, provider: MemoryProvider) -> None:
    public = signing.gateway.settings.model_copy(update={"oidc_client_secret": SecretStr("")})
    signing.gateway.provider = Provider(public, provider.transport)
    assert (await sign_in(signing, provider)).status_code == 303
    assert (await signing.client.post("/auth/logout", headers=OWN_PAGE)).status_code == 204
    assert [place for place, _ in provider.forms] == ["/token", "/logout"]
    assert all(form["client_id"] == CLIENT and "client_secret" not in form for _, form in provider.forms)
