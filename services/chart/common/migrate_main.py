"""`chart-migrate`: bring the database of an installation up to date; run before every installation and upgrade.

The environment says where: ``CHART_DATABASE_ADMIN_URL`` is the address of a role that may create roles and schemas.
``CHART_ROLE_PASSWORDS_DIR`` may name a folder with one file per role (registry, reservations ...) that holds its
password; where roles are managed elsewhere (an operator, an administrator) it is left out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psycopg
import sqlalchemy
import structlog
from psycopg import sql

from chart.common import telemetry
from chart.common.migrate import SERVICES, upgrade

ADMIN_URL = "CHART_DATABASE_ADMIN_URL"
PASSWORDS_DIR = "CHART_ROLE_PASSWORDS_DIR"

_log = structlog.get_logger("chart.migrate")


class MigrationSettingsError(ValueError):
    """Something is not stated or cannot be read; the message says what would be right."""


def read_passwords(directory: str) -> dict[str, str]:
    """Password by role; a role without a file keeps what it has.

    Raises:
        MigrationSettingsError: the folder cannot be read, or a file is empty.
    """
    passwords: dict[str, str] = {}
    for service in SERVICES if directory else ():
        path = Path(directory) / service
        if not path.exists():
            continue
        try:
            password = path.read_text(encoding="utf-8").strip()
        except OSError as error:
            msg = f"{PASSWORDS_DIR}: cannot read {path}: {error.strerror}"
            raise MigrationSettingsError(msg) from error
        if not password:
            msg = f"{PASSWORDS_DIR}: {path} is empty"
            raise MigrationSettingsError(msg)
        passwords[service] = password
    if directory and not passwords:
        msg = f"{PASSWORDS_DIR}: {directory} has no file named after a role ({', '.join(SERVICES)})"
        raise MigrationSettingsError(msg)
    return passwords


def set_passwords(admin_url: str, passwords: dict[str, str]) -> None:
    """Give roles their passwords; what is logged names roles only."""
    if not passwords:
        return
    with psycopg.connect(admin_url, connect_timeout=10) as connection:
        for role, password in passwords.items():
            connection.execute(
                sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(role), sql.Literal(password))
            )
    _log.info("passwords are set", roles=sorted(passwords))


def main() -> None:
    """Exit status: 0 done, 1 the database refused or does not answer, 2 settings."""
    telemetry.setup("migrate")
    url = os.environ.get(ADMIN_URL, "")
    try:
        if not url:
            msg = f"{ADMIN_URL} is missing: postgresql://ROLE:PASSWORD@HOST:5432/DATABASE, a role that may create roles"
            raise MigrationSettingsError(msg)
        passwords = read_passwords(os.environ.get(PASSWORDS_DIR, ""))
        upgrade(url)
        set_passwords(url, passwords)
    except MigrationSettingsError as error:
        sys.stderr.write(f"chart-migrate: {error}\n")
        sys.exit(2)
    except (sqlalchemy.exc.DBAPIError, psycopg.Error) as error:
        reason = getattr(error, "orig", None) or error
        sys.stderr.write(f"chart-migrate: {str(reason).strip()}\n")
        sys.exit(1)
