"""gRPC of tunnels: each change is one transaction of its row and its audit row; what is live comes from memory."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format

from chart.common import audit, outbox, rpc
from chart.common.database import Pool
from chart.common.rpc import Registration
from chart.common.rpc_errors import not_found
from chart.tunnels import repository, validation
from chart.tunnels.streams import COMMAND, Tunnels
from chart.v1 import tunnels_pb2, tunnels_pb2_grpc
from chart.v1.tunnels_pb2 import TunnelSettings


class TunnelsServicer(tunnels_pb2_grpc.TunnelsServicer):
    """Answers chart.v1.Tunnels."""

    def __init__(self, pool: Pool, tunnels: Tunnels) -> None:
        self._pool = pool
        self._tunnels = tunnels

    async def ListTunnels(  # noqa: N802 - named by the interface
        self, request: tunnels_pb2.ListTunnelsRequest, context: Any
    ) -> tunnels_pb2.ListTunnelsResponse:
        """Every tunnel that reports here or that something is stated of."""
        shown = (self._tunnels.show(name, whole=False) for name in sorted(self._tunnels.tunnels))
        return tunnels_pb2.ListTunnelsResponse(tunnels=[one for one in shown if one is not None])

    async def GetTunnel(  # noqa: N802
        self, request: tunnels_pb2.GetTunnelRequest, context: Any
    ) -> tunnels_pb2.GetTunnelResponse:
        """One tunnel with the figures of its steps and its last periods."""
        shown = self._tunnels.show(request.tunnel, whole=True)
        if shown is None:
            raise not_found("tunnel", request.tunnel, sorted(self._tunnels.tunnels))
        return tunnels_pb2.GetTunnelResponse(tunnel=shown)

    async def PutTunnelSettings(  # noqa: N802
        self, request: tunnels_pb2.PutTunnelSettingsRequest, context: Any
    ) -> tunnels_pb2.PutTunnelSettingsResponse:
        """Set a tunnel's target and controller; it need not have reported yet."""
        stated = validation.settings(request.settings)
        async with self._pool.connection() as connection, connection.transaction():
            await repository.lock(connection, stated.tunnel)
            before = await repository.get(connection, stated.tunnel)
            if before is not None and _unnumbered(before) == stated:
                # Also the answer to a call that was repeated because its first answer got lost.
                return tunnels_pb2.PutTunnelSettingsResponse(settings=before)
            validation.check_revision(stated.tunnel, request.expected_revision, before.revision if before else None)
            stored = await repository.put(connection, stated)
            change = {"before": _json(before), "after": _json(stored)}
            await audit.add(connection, rpc.actor(context), "tunnel.put", stated.tunnel, change)
        self._tunnels.use(stated.tunnel, stored)
        return tunnels_pb2.PutTunnelSettingsResponse(settings=stored, created=before is None)

    async def DeleteTunnelSettings(  # noqa: N802
        self, request: tunnels_pb2.DeleteTunnelSettingsRequest, context: Any
    ) -> tunnels_pb2.DeleteTunnelSettingsResponse:
        """Control a tunnel no more: its command is withdrawn, and when the lease is over it goes down to one
        connection.
        """
        async with self._pool.connection() as connection, connection.transaction():
            await repository.lock(connection, request.tunnel)
            before = await repository.get(connection, request.tunnel)
            if before is None:
                known = await repository.names(connection)
                raise not_found("tunnel with settings", request.tunnel, known)
            await repository.delete(connection, request.tunnel)
            await audit.add(connection, rpc.actor(context), "tunnel.delete", request.tunnel, {"before": _json(before)})
            await outbox.add(connection, COMMAND, request.tunnel, None)
        self._tunnels.use(request.tunnel, None)
        return tunnels_pb2.DeleteTunnelSettingsResponse()


def _unnumbered(settings: TunnelSettings) -> TunnelSettings:
    copy = TunnelSettings()
    copy.CopyFrom(settings)
    copy.revision = 0
    return copy


def _json(settings: TunnelSettings | None) -> dict[str, Any] | None:
    return None if settings is None else json_format.MessageToDict(settings, preserving_proto_field_name=True)


def registration(servicer: TunnelsServicer) -> Registration:
    """What `chart.common.rpc.serve` needs."""
    name = tunnels_pb2.DESCRIPTOR.services_by_name["Tunnels"].full_name
    return name, tunnels_pb2_grpc.add_TunnelsServicer_to_server, servicer
