"""A real Vault for tests, set up as the platform's tool does it, and an environment without it that says why."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from chart.maintenance.vault import VaultKeys, VaultUnavailableError, administrator, configure, initialise
from chart_lab.platform import vault
from chart_lab.platform.settings import PlatformSettings
from support.processes import ServerProcess, free_ports


class VaultServer:
    """One server on a free port of loopback; sealed and opened at will."""

    def __init__(self, directory: Path, domain: str = "chart.local") -> None:
        (port,) = free_ports(1)
        self.address = f"http://127.0.0.1:{port}"
        program = vault.program(PlatformSettings(state_dir=directory), port)
        self._process = ServerProcess("vault", program.command, directory / "vault.log", signal.SIGTERM)
        self.log = directory / "vault.log"
        self._domain = domain
        self.administrator = administrator(self.address)
        self.role_id = self.secret_id = ""
        self.keys = VaultKeys("", "")

    def launch(self) -> None:
        """Start as it comes: without any state, or sealed."""
        self._process.start(self._answers)

    def start(self) -> None:
        """Start, initialise, open and set up."""
        self.launch()
        self.keys = initialise(self.administrator)
        self.unseal()
        self.role_id, self.secret_id = configure(self.administrator, self._domain, life="4s")

    def settings(self) -> dict[str, Any]:
        """What the authority is told."""
        return {
            "authority_key_store": "vault",
            "vault_address": self.address,
            "vault_role_id": self.role_id,
            "vault_secret_id": self.secret_id,
        }

    def seal(self) -> None:
        self.administrator.sys.seal()

    def unseal(self) -> None:
        self.administrator.sys.submit_unseal_key(self.keys.unseal)

    def pause(self) -> None:
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def stop(self) -> None:
        self.administrator.adapter.close()
        self._process.stop()

    def _answers(self) -> bool:
        try:
            # 501: not initialised, 503: sealed; both are answers.
            return httpx.get(f"{self.address}/v1/sys/health", timeout=1, trust_env=False).status_code > 0
        except httpx.HTTPError:
            return False


def launch_or_skip(directory: Path) -> VaultServer:
    """A Vault without any state; the test is skipped, with the reason, where there is none."""
    return _server_or_skip(directory, VaultServer.launch)


def start_or_skip(directory: Path) -> VaultServer:
    """A running Vault; the test is skipped, with the reason, where there is none."""
    return _server_or_skip(directory, VaultServer.start)


def _server_or_skip(directory: Path, start: Callable[[VaultServer], None]) -> VaultServer:
    try:
        server = VaultServer(directory)
    except VaultUnavailableError as error:
        pytest.skip(f"the tests against a real Vault need one: {error}")
    start(server)
    return server
