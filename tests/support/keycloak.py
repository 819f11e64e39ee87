"""A real Keycloak for tests, with the project's realm; skipped, with the reason, where it was not fetched."""

from __future__ import annotations

import signal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from chart_lab.platform import keycloak
from chart_lab.platform.settings import PlatformSettings
from support.processes import ServerProcess, free_ports

SECRETS = keycloak.KeycloakSecrets(
    "administrator-of-tests", "dashboard-secret-of-tests", "application-secret-of-tests", "operations-secret-of-tests"
)


class KeycloakServer:
    """One server on a free port of loopback."""

    def __init__(self, directory: Path, public_url: str) -> None:
        self.port, _ = free_ports(2)
        program = keycloak.program(PlatformSettings(state_dir=directory), self.port, public_url, SECRETS)
        environment = [f"{name}={value}" for name, value in program.environment.items()]
        self._process = ServerProcess(
            "keycloak", ("env", *environment, *program.command), directory / "keycloak.log", signal.SIGTERM
        )
        self.issuer = keycloak.issuer(self.port)
        self._health = program.health

    def start(self) -> None:
        self._process.start(self._answers, limit_s=220)

    def stop(self) -> None:
        self._process.stop()

    def _answers(self) -> bool:
        try:
            return httpx.get(self._health, timeout=2, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def administrator(self) -> httpx.Client:
        """Keycloak's own administration interface."""
        base = self.issuer.rsplit("/realms/", 1)[0]
        form = {
            "grant_type": "password", "client_id": "admin-cli", "username": "administrator",
            "password": SECRETS.administrator,
        }  # fmt: skip
        answer = httpx.post(f"{base}/realms/master/protocol/openid-connect/token", data=form, trust_env=False)
        answer.raise_for_status()
        headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
        return httpx.Client(base_url=f"{base}/admin/realms/chart", headers=headers, trust_env=False)

    def add_user(self, name: str, password: str, role: str) -> None:
        """A person with a role."""
        with self.administrator() as client:
            user: dict[str, Any] = {
                "username": name, "enabled": True, "email": f"{name}@example.org", "firstName": name,
                "lastName": "Tester", "emailVerified": True,
                "credentials": [{"type": "password", "value": password, "temporary": False}],
            }  # fmt: skip
            made = client.post("/users", json=user)
            made.raise_for_status()
            identity = made.headers["Location"].rsplit("/", 1)[1]
            described = client.get(f"/roles/{role}").json()
            client.post(f"/users/{identity}/role-mappings/realm", json=[described]).raise_for_status()

    def client_credentials(self, client_id: str = "chart-example-application", secret: str = "") -> httpx.Response:
        """What an application does."""
        form = {
            "grant_type": "client_credentials", "client_id": client_id,
            "client_secret": secret or SECRETS.application,
        }  # fmt: skip
        return httpx.post(f"{self.issuer}/protocol/openid-connect/token", data=form, trust_env=False)


class _Form(HTMLParser):
    action = ""
    said = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "form" and values.get("id") == "kc-form-login":
            self.action = values.get("action") or ""

    def handle_data(self, data: str) -> None:
        self.said += f"{data.strip()} " if data.strip() else ""


def sign_in(browser: httpx.Client, url: str, name: str, password: str) -> str:
    """Fill in the provider's page; returns where it sends the browser then."""
    page = browser.get(url)
    for cookie in browser.cookies.jar:
        # To browsers loopback is a secure place, to httpx it is not: it would keep these to itself.
        cookie.secure = False
    form = _Form()
    form.feed(page.text)
    assert form.action, page.text[:500]
    answer = browser.post(form.action, data={"username": name, "password": password})
    refusal = _Form()
    refusal.feed(answer.text)
    assert answer.status_code == 302, refusal.said
    return answer.headers["Location"]


def start_or_skip(directory: Path, public_url: str) -> KeycloakServer:
    """A running Keycloak; the test is skipped, with the reason, where there is none."""
    try:
        server = KeycloakServer(directory, public_url)
    except keycloak.KeycloakUnavailableError as error:
        pytest.skip(f"the tests against a real Keycloak need one: {error}")
    server.start()
    return server
