"""The service tunnels for tests: as a process, and without its database, its real decisions over a dictionary."""

from __future__ import annotations

import itertools
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from chart.common.rpc_errors import not_found
from chart.tunnels import validation
from chart.tunnels.service import TunnelControl, target_of
from chart.v1 import tunnel_report_pb2, tunnels_pb2, tunnels_pb2_grpc
from support.processes import ServerProcess, free_ports, listens

NOW_US = 1_780_000_000_000_000
LEASE_US = 10_000_000


class MemoryTunnels(tunnels_pb2_grpc.TunnelsServicer):
    """Tunnels of one replica."""

    def __init__(self) -> None:
        self.tunnels: dict[str, TunnelControl] = {}
        self._revisions = itertools.count(1)

    def report(self, report: tunnel_report_pb2.TunnelReport) -> None:
        """A report as from the stream."""
        control = self.tunnels.setdefault(report.tunnel, TunnelControl(report.tunnel))
        target = target_of(control.settings, None, NOW_US) if control.settings else control.target
        control.take(report, target, 0, NOW_US, LEASE_US)

    async def ListTunnels(self, request: Any, context: Any) -> Any:  # noqa: N802
        shown = [self.tunnels[name].show(NOW_US, LEASE_US, whole=False) for name in sorted(self.tunnels)]
        return tunnels_pb2.ListTunnelsResponse(tunnels=shown)

    async def GetTunnel(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.tunnel not in self.tunnels:
            raise not_found("tunnel", request.tunnel, sorted(self.tunnels))
        return tunnels_pb2.GetTunnelResponse(tunnel=self.tunnels[request.tunnel].show(NOW_US, LEASE_US, whole=True))

    async def PutTunnelSettings(self, request: Any, context: Any) -> Any:  # noqa: N802
        stated = validation.settings(request.settings)
        control = self.tunnels.get(stated.tunnel)
        before = control.settings if control else None
        validation.check_revision(stated.tunnel, request.expected_revision, before.revision if before else None)
        stated.revision = next(self._revisions)
        self.tunnels.setdefault(stated.tunnel, TunnelControl(stated.tunnel)).use(stated)
        return tunnels_pb2.PutTunnelSettingsResponse(settings=stated, created=before is None)

    async def DeleteTunnelSettings(self, request: Any, context: Any) -> Any:  # noqa: N802
        control = self.tunnels.get(request.tunnel)
        if control is None or control.settings is None:
            raise not_found("tunnel with settings", request.tunnel)
        control.use(None)
        return tunnels_pb2.DeleteTunnelSettingsResponse()


class TunnelsProcess:
    """chart-tunnels on free ports; leases last a second."""

    def __init__(self, directory: Path, kafka_bootstrap: str, database_url: str) -> None:
        grpc_port, self._http_port = free_ports(2)
        self.target = f"127.0.0.1:{grpc_port}"
        settings = {
            "PATH": os.environ["PATH"],
            "CHART_KAFKA_BOOTSTRAP": kafka_bootstrap,
            "CHART_DATABASE_URL": database_url,
            "CHART_STATE_DIR": str(directory),
            "CHART_GRPC_LISTEN": self.target,
            "CHART_HTTP_LISTEN": f"127.0.0.1:{self._http_port}",
            "CHART_TUNNELS_GROUP": f"tunnels-{directory.name}",
            "CHART_TUNNEL_SETTINGS_PERIOD_S": "0.2",
            "CHART_TUNNEL_LEASE_US": "1000000",
        }
        environment = (f"{key}={value}" for key, value in settings.items())
        command = ("env", "-i", *environment, sys.executable, "-m", "chart.tunnels.main")
        self.process = ServerProcess("tunnels", command, directory / "tunnels.log")

    def start(self) -> None:
        """Start it, or start it again, and wait until it is ready."""

        def ready() -> bool:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/readyz", timeout=2) as answer:
                    return bool(answer.status == 200) and listens(self.target)
            except (urllib.error.URLError, OSError):
                return False

        self.process.start(ready)
