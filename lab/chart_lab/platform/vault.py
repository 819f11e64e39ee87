"""A Vault server for tests and trials on this machine; what the authority needs in it: chart.maintenance.vault."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from chart.maintenance.vault import VaultUnavailableError
from chart_lab.platform.programs import Program
from chart_lab.platform.settings import PlatformSettings


def binary(settings: PlatformSettings) -> Path:
    """The program: the one on the PATH, or the one that `make vault` built.

    Raises:
        VaultUnavailableError: there is none.
    """
    found = shutil.which("vault")
    if found:
        return Path(found)
    built = settings.build_dir / "bin" / "vault"
    if not built.exists():
        msg = f"no vault on the PATH and none at {built}: run `make vault`"
        raise VaultUnavailableError(msg)
    return built


def program(settings: PlatformSettings, port: int) -> Program:
    """A server with file storage on loopback; it starts sealed."""
    home = settings.platform_dir / "vault"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / "data").mkdir(exist_ok=True, mode=0o700)
    configuration = {
        "storage": {"file": {"path": str(home / "data")}},
        "listener": {"tcp": {"address": f"127.0.0.1:{port}", "tls_disable": True}},
        "disable_mlock": True,
        "api_addr": f"http://127.0.0.1:{port}",
        "log_level": "warn",
    }
    (home / "config.json").write_text(json.dumps(configuration))
    return Program(
        name="vault",
        command=(str(binary(settings)), "server", f"-config={home / 'config.json'}"),
        stage=0,
        health=f"tcp:127.0.0.1:{port}",
    )
