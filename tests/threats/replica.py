"""A replica of the authority as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from chart.authority.settings import AuthoritySettings
from support.authority import Place
from support.waiting import eventually


class Replica:
    """One `chart-authority` as a process with its log."""

    def __init__(self, settings: AuthoritySettings, log: Path) -> None:
        self.settings = settings
        self.log = log
        environment = {
            "PATH": os.environ["PATH"],
            "CHART_KAFKA_BOOTSTRAP": "local:",
            "CHART_DATABASE_URL": settings.database_url,
            "CHART_STATE_DIR": str(settings.state_dir),
            "CHART_AUTHORITY_LISTEN": settings.authority_listen,
            "CHART_HTTP_LISTEN": settings.http_listen,
            "CHART_AUTHORITY_KEY_LIFE_S": str(settings.authority_key_life_s),
            "CHART_AUTHORITY_KEY_LEAD_S": str(settings.authority_key_lead_s),
            "CHART_TOKEN_JWKS_URL": settings.token_jwks_url,
            "CHART_LOG_LEVEL": "debug",
        }
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [str(Path(sys.executable).parent / "chart-authority")], env=environment, stdout=file, stderr=file
            )
        self.place = Place(settings, settings.state_dir, f"https://{settings.authority_listen}")

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.settings.authority_listen.split(":")
        return host, int(port)

    async def ready(self) -> None:
        async def answers() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(self.log.read_text()[-2000:])
            if not self.place.has("user-operator"):
                return False
            try:
                return (await self.place.operator.get("/v1/elements")).status_code == 200
            except httpx.HTTPError:
                return False

        await eventually(answers, 30)

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(20)
