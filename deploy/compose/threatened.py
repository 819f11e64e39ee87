"""What the compose test tries against authority and broker of the installation: trials of `make threat-test` that need
no more than its addresses and the certificates of its services (tests/threats/installed.py).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from installation import COMPOSE, ROOT, ComposeTestError, Installation

LIMIT_S = 900.0
# Of the gateway's container, by the names that a development authority gives them.
FILES = {
    "authority/ca.pem": "/etc/chart/identity/authority.pem",
    "authority/identities/service-gateway.pem": "/etc/chart/identity/service.pem",
    "authority/identities/service-gateway.key": "/etc/chart/identity/service.key",
    "authority/identities/service-records.pem": "/etc/chart/identity/records.pem",
    "authority/identities/service-records.key": "/etc/chart/identity/records.key",
}


def figures(installation: Installation, details: Path) -> list[dict[str, Any]]:
    """The trials' figures; ``details`` is written with what was tried.

    Raises:
        ComposeTestError: a trial could not be made, or a goal is missed.
    """
    with tempfile.TemporaryDirectory(prefix="chart-threats-") as name:
        folder = Path(name)
        for own, file in FILES.items():
            path = folder / own
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(installation.compose("exec", "-T", "gateway", "cat", file, limit_s=60))
        report = folder / "report.json"
        options = {
            "--folder": name,
            "--report": str(report),
            "--authority": installation.authority,
            "--kafka": installation.bootstrap,
            "--issuer-keys": f"{installation.keycloak}/realms/chart/protocol/openid-connect/certs",
            "--logs": f"{COMPOSE} logs --no-color",
        }
        done = subprocess.run(
            [sys.executable, "-m", "threats.installed", *(word for option in options.items() for word in option)],
            cwd=ROOT / "tests",
            env={**installation.environment, "CHART_TOKEN": installation.operator()},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        told = json.loads(report.read_text(encoding="utf-8")) if report.exists() else None
    if told is None:
        msg = f"a trial against the installation could not be made: {done.stderr.strip()[-2000:]}"
        raise ComposeTestError(msg)
    details.write_text(json.dumps(told["notes"], indent=1) + "\n", encoding="utf-8")
    if done.returncode:
        msg = f"what must not be believed was, or too late: {told['figures']}; see {details}"
        raise ComposeTestError(msg)
    return list(told["figures"])
