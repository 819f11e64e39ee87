"""The gateway with a real Keycloak: client credentials, browser login with PKCE, tokens that must not be taken."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio

from chart.gateway.service import key_source
from chart.gateway.settings import GatewaySettings
from support.gateway import World, world
from support.keycloak import SECRETS, KeycloakServer, sign_in, start_or_skip

# Slow: its start takes minutes on a busy machine.
pytestmark = [pytest.mark.contract, pytest.mark.slow, pytest.mark.timeout(300)]

PUBLIC_URL = "http://gateway"
GOOD = {"source": "alpha", "destination": "delta", "guaranteed_bps": 1_000_000}


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeycloakServer]:
    server = start_or_skip(tmp_path_factory.mktemp("keycloak"), PUBLIC_URL)
    try:
        server.add_user("olga", "of the operators", "operator")
        server.add_user("victor", "who only looks", "viewer")
        yield server
    finally:
        server.stop()


def settings(provider: KeycloakServer) -> dict[str, object]:
    return {
        "token_issuer": provider.issuer,
        "token_jwks_url": f"{provider.issuer}/protocol/openid-connect/certs",
        "token_authorised_parties": ("chart-dashboard", "chart-example-application"),
        "oidc_client_id": "chart-dashboard",
        "oidc_client_secret": SECRETS.dashboard,
        "public_url": PUBLIC_URL,
    }


@pytest_asyncio.fixture
async def place(provider: KeycloakServer, tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path, **settings(provider)) as made:
        yield made


async def login(
    place: World, provider: KeycloakServer, name: str, password: str, path: str = "/nodes"
) -> httpx.Response:
    """As a browser would; returns the gateway's answer to the provider's redirection."""
    begun = await place.client.get("/auth/login", params={"return_to": "/nodes"})
    assert begun.status_code == 302
    cookie = begun.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    query = parse_qs(urlsplit(begun.headers["location"]).query)
    assert query["code_challenge_method"] == ["S256"]
    with httpx.Client(trust_env=False) as person:
        back = sign_in(person, begun.headers["location"], name, password)
    assert back.startswith(f"{PUBLIC_URL}/auth/callback?")
    return await place.client.get(back)


async def test_a_person_signs_in_with_the_browser(place: World, provider: KeycloakServer) -> None:
    assert (await place.client.get("/auth/sign-in")).json() == {"login_url": "/auth/login", "development": False}
    done = await login(place, provider, "olga", "of the operators")
    assert (done.status_code, done.headers["location"]) == (303, "/nodes")
    assert "eyJ" not in done.text
    cookies = done.headers.get_list("set-cookie")
    assert all("HttpOnly" in one for one in cookies)
    who = (await place.client.get("/auth/me")).json()
    assert who["roles"] == ["operator"]
    # A session goes on, and its old refresh token is worth nothing then.
    old = place.client.cookies["chart_refresh"]
    renewed = await place.client.post("/auth/refresh", headers={"Sec-Fetch-Site": "same-origin"})
    assert renewed.status_code == 200
    assert renewed.json()["subject"] == who["subject"]
    assert place.client.cookies["chart_refresh"] != old
    # From another page the session may not be used to change anything.
    other = await place.client.post("/v1/rate-requests", json=GOOD, headers={"Sec-Fetch-Site": "cross-site"})
    assert other.status_code == 403
    ended = await place.client.post("/auth/logout", headers={"Sec-Fetch-Site": "same-origin"})
    assert ended.status_code == 204
    assert (await place.client.get("/auth/me")).status_code == 401


async def test_a_viewer_stays_a_viewer(place: World, provider: KeycloakServer) -> None:
    await login(place, provider, "victor", "who only looks")
    assert (await place.client.get("/v1/rate-requests")).status_code == 200
    asked = await place.client.post("/v1/rate-requests", json=GOOD, headers={"Sec-Fetch-Site": "same-origin"})
    assert asked.status_code == 403


async def test_a_login_that_was_not_begun_here_is_refused(place: World, provider: KeycloakServer) -> None:
    begun = await place.client.get("/auth/login")
    with httpx.Client(trust_env=False) as person:
        back = sign_in(person, begun.headers["location"], "olga", "of the operators")
    query = parse_qs(urlsplit(back).query)
    forged = f"/auth/callback?code={query['code'][0]}&state=mine"
    assert (await place.client.get(forged)).status_code == 401
    place.client.cookies.clear()
    assert (await place.client.get(back)).status_code == 401
    # With another login's verifier the provider itself refuses the code.
    await place.client.get("/auth/login")
    attempt = json.loads(base64.urlsafe_b64decode(place.client.cookies["chart_login"]))
    crossed = f"/auth/callback?code={query['code'][0]}&state={attempt['state']}"
    assert (await place.client.get(crossed)).status_code == 401


async def test_an_application_with_client_credentials_owns_what_it_asks_for(
    place: World, provider: KeycloakServer
) -> None:
    answer = provider.client_credentials()
    assert answer.status_code == 200
    headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    made = await place.client.post("/v1/rate-requests", json=GOOD, headers=headers)
    assert made.status_code == 201, made.text
    claims = json.loads(base64.urlsafe_b64decode(answer.json()["access_token"].split(".")[1] + "=="))
    assert made.json()["owner"] == claims["sub"]
    assert (await place.client.put("/v1/nodes/x", json={}, headers=headers)).status_code == 403
    assert provider.client_credentials(secret="wrong").status_code == 401


async def test_tokens_of_the_provider_that_are_not_for_us(
    place: World, provider: KeycloakServer, tmp_path: Path
) -> None:
    token = provider.client_credentials().json()["access_token"]
    for change in ({"token_audience": "other"}, {"token_authorised_parties": ("chart-dashboard",)}):
        async with world(tmp_path / next(iter(change)), **{**settings(provider), **change}) as other:
            answer = await other.client.get("/v1/nodes", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 401
    head, body, signature = token.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    for forged in (f"{none}.{body}.", f"{head}.{body}.{signature[:-4]}AAAA", f"{head}.{body}."):
        answer = await place.client.get("/v1/nodes", headers={"Authorization": f"Bearer {forged}"})
        assert answer.status_code == 401
    # With a provider there is no development issuer, also in development.
    assert (await place.client.post("/dev-issuer/token", json={"subject": "x", "roles": ["admin"]})).status_code in (
        404,
        405,
    )
    _, issuer = key_source(GatewaySettings(**settings(provider)))  # type: ignore[arg-type]
    assert issuer is None
