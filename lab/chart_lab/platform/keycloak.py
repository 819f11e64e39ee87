"""Keycloak for tests and trials on this machine: its published distribution with the project's realm, on loopback."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from chart.common.places import repository_root
from chart_lab.platform.programs import Program
from chart_lab.platform.settings import PlatformSettings


class KeycloakUnavailableError(RuntimeError):
    """Keycloak cannot be run here; the message says what to do."""


@dataclass(frozen=True)
class KeycloakSecrets:
    """What the realm's clients and its administrator log in with."""

    administrator: str
    dashboard: str
    application: str
    operations: str


def home(settings: PlatformSettings) -> Path:
    """Folder of the distribution.

    Raises:
        KeycloakUnavailableError: it was not fetched, or there is no Java.
    """
    folder = settings.build_dir / "keycloak"
    if not (folder / "bin" / "kc.sh").exists():
        msg = f"no Keycloak in {folder}: run `make keycloak`"
        raise KeycloakUnavailableError(msg)
    if shutil.which("java") is None:
        msg = "java is not on the PATH: install a JDK (17 or newer)"
        raise KeycloakUnavailableError(msg)
    return folder


def issuer(port: int) -> str:
    """The realm's issuer: CHART_TOKEN_ISSUER of whoever checks its tokens."""
    return f"http://127.0.0.1:{port}/realms/chart"


def program(settings: PlatformSettings, port: int, public_url: str, secrets: KeycloakSecrets) -> Program:
    """A server in development mode with the realm imported; state in memory."""
    distribution = home(settings)
    # Keycloak imports from below its own folder only; everything else it keeps in memory.
    imports = distribution / "data" / "import"
    imports.mkdir(parents=True, exist_ok=True)
    shutil.copy(repository_root() / "deploy" / "keycloak" / "realm.json", imports / "chart-realm.json")
    return Program(
        name="keycloak",
        command=(
            str(distribution / "bin" / "kc.sh"),
            "start-dev",
            *(f"--http-port={port}", "--http-host=127.0.0.1", f"--hostname=http://127.0.0.1:{port}"),
            *("--import-realm", "--health-enabled=false", "--log-level=warn", "--cache=local"),
            *("--db=dev-mem", f"--http-management-port={port + 1}"),
        ),
        stage=0,
        health=f"http://127.0.0.1:{port}/realms/chart/.well-known/openid-configuration",
        environment={
            "KC_BOOTSTRAP_ADMIN_USERNAME": "administrator",
            "KC_BOOTSTRAP_ADMIN_PASSWORD": secrets.administrator,
            "CHART_DASHBOARD_SECRET": secrets.dashboard,
            "CHART_APPLICATION_SECRET": secrets.application,
            "CHART_OPERATIONS_SECRET": secrets.operations,
            "CHART_PUBLIC_URL": public_url,
            "JAVA_OPTS_KC_HEAP": "-Xms64m -Xmx400m",
        },
    )
