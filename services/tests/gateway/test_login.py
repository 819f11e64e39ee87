"""Parts of the browser login that are decided without a provider; the login itself is in test_keycloak.py."""

from __future__ import annotations

import base64

import pytest

from chart.gateway.login import Attempt, attempt_of, challenge, local_path
from support.gateway import World


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
    for junk in (None, "", "x", base64.urlsafe_b64encode(b"[]").decode(), base64.urlsafe_b64encode(b"{}").decode()):
        assert attempt_of(junk) is None


def test_the_challenge_is_that_of_rfc_7636() -> None:
    # Appendix B of the RFC.
    assert challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


async def test_without_a_provider_there_is_no_browser_login(place: World) -> None:
    offered = await place.client.get("/auth/sign-in")
    assert offered.json() == {"login_url": None, "development": True}
    for path in ("/auth/login", "/auth/callback?code=x&state=y"):
        assert (await place.client.get(path)).status_code == 404
