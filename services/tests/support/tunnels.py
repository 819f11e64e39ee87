"""The service tunnels without its database: its real decisions and checks over a dictionary, for tests of others."""

from __future__ import annotations

import itertools
from typing import Any

from chart.common.rpc_errors import not_found
from chart.tunnels import validation
from chart.tunnels.service import TunnelControl, target_of
from chart.v1 import tunnel_report_pb2, tunnels_pb2, tunnels_pb2_grpc

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
