"""The services behind the gateway, over gRPC; their errors become problem documents."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

from grpc import ChannelConnectivity, aio

from chart.common import rpc
from chart.common.problems import ProblemError
from chart.common.rpc_tls import node_credentials
from chart.common.tokens import Principal
from chart.gateway.errors import away
from chart.gateway.settings import GatewaySettings
from chart.v1 import archive_pb2_grpc, registry_pb2_grpc, reservations_pb2_grpc, tenant_pb2, tunnels_pb2_grpc

# Fields of the interface definitions -> fields of the REST body.
FIELDS = {
    "preemption_priority": "priority",
    "max_priority_plus_one": "max_priority",
    "horizon_us": "horizon_s",
    "link_id": "link",
    "owner": "application",
    "start_us": "start",
    "end_us": "end",
    "duration_us": "duration_s",
    "valid_until_us": "valid_until",
    "selector.protocol": "protocol",
    "selector.source_prefix": "source",
    "selector.destination_prefix": "destination",
    "selector.source_port": "source_port",
    "selector.destination_port": "destination_port",
    "selector.dscp_plus_one": "dscp",
    "selector.cgroup_id": "cgroup_id",
    "expected_revision": "If-Match",
    "idempotency_key": "Idempotency-Key",
    "page_size": "limit",
    "tunnel": "id",
}


# Channels to what is reached by address; beyond them the one that was not used for the longest time is closed.
OTHERS_MAX = 200
OTHERS_GRACE_S = 40.0


class Backends:
    """Channels to registry, reservations, archiver and tunnels; connects when first used."""

    def __init__(self, settings: GatewaySettings) -> None:
        deadline_s = settings.backend_deadline_s
        self._deadline_s = deadline_s
        self._pod_files = settings.pod_files if settings.pods_over_tls else None
        # By address; of pods over TLS also by node and by when our certificate changed.
        self._others: dict[tuple[str, ...], aio.Channel] = {}
        self._closing: list[asyncio.Future[None]] = []
        self._channels: dict[str, aio.Channel] = {
            "registry": rpc.channel(settings.registry_target, deadline_s=deadline_s),
            "reservations": rpc.channel(settings.reservations_target, deadline_s=deadline_s),
            "archiver": rpc.channel(settings.archiver_target, deadline_s=deadline_s),
            "tunnels": rpc.channel(settings.tunnels_target, deadline_s=deadline_s),
        }
        # The generated stubs work on both kinds of channel; their annotations for the asynchronous one differ.
        self.registry = cast(
            "registry_pb2_grpc.RegistryAsyncStub", _stub(registry_pb2_grpc.RegistryStub, self, "registry")
        )
        self.reservations = cast(
            "reservations_pb2_grpc.ReservationsAsyncStub",
            _stub(reservations_pb2_grpc.ReservationsStub, self, "reservations"),
        )
        self.archive = cast("archive_pb2_grpc.ArchiveAsyncStub", _stub(archive_pb2_grpc.ArchiveStub, self, "archiver"))
        self.tunnels = cast("tunnels_pb2_grpc.TunnelsAsyncStub", _stub(tunnels_pb2_grpc.TunnelsStub, self, "tunnels"))

    def reach(self, target: str) -> aio.Channel:
        """A channel to "host:port" that is not needed for being ready: inference."""
        return self._known((target,), lambda: rpc.channel(target, deadline_s=self._deadline_s))

    def reach_pod(self, node: str, target: str) -> aio.Channel:
        """A channel to the sensor pod of a node at "host:port".

        Raises:
            ProblemError: 503, our certificate is not there.
        """
        files = self._pod_files
        if files is None:
            return self.reach(target)
        try:
            kind = (target, node, str(files.changed_ns))
            return self._known(
                kind, lambda: rpc.channel(target, deadline_s=self._deadline_s, node=node_credentials(files, node))
            )
        except (OSError, ValueError) as error:
            raise away("The gateway's certificate, which sensor pods ask for,") from error

    def _known(self, kind: tuple[str, ...], make: Callable[[], aio.Channel]) -> aio.Channel:
        channel = self._others.pop(kind, None) or make()
        self._others[kind] = channel  # the last used is the last in order
        if len(self._others) > OTHERS_MAX:
            oldest = next(iter(self._others))
            self._closing.append(asyncio.ensure_future(self._others.pop(oldest).close(OTHERS_GRACE_S)))
            self._closing = [task for task in self._closing if not task.done()]
        return channel

    def channel(self, name: str) -> aio.Channel:
        """The channel to one service."""
        return self._channels[name]

    @property
    def names(self) -> list[str]:
        """Services that are needed; without tunnels only /v1/tunnels is away."""
        return [name for name in self._channels if name != "tunnels"]

    async def check(self, name: str) -> None:
        """Return when the service's channel is connected; wait for it (the caller limits how long)."""
        channel = self._channels[name]
        while (state := channel.get_state(try_to_connect=True)) != ChannelConnectivity.READY:
            await channel.wait_for_state_change(state)

    async def close(self) -> None:
        """Close all channels."""
        for channel in (*self._channels.values(), *self._others.values()):
            await channel.close(None)


def _stub(kind: Any, backends: Backends, name: str) -> Any:
    return kind(backends.channel(name))


def acting(subject: str) -> tuple[tuple[str, str], ...]:
    """Metadata that tells a service who a change is made for; it stands in the audit."""
    return ((rpc.ACTOR_METADATA, subject.encode("unicode_escape").decode()),)


def caller_of(principal: Principal) -> tenant_pb2.Caller:
    """What a service needs to know of a token in order to say what belongs to it."""
    return tenant_pb2.Caller(
        tenant=principal.tenant,
        client=principal.client,
        operator=principal.acts_for_all,
        addresses=principal.addresses,
    )


@contextlib.contextmanager
def problems(service: str) -> Iterator[None]:
    """Turn errors of a call into problem documents; what a service refuses names the field of the REST body."""
    try:
        with rpc.refusals():
            yield
    except (aio.AioRpcError, rpc.RefusalError) as error:
        problem = rpc.problem_of(error)
        if problem.status in (503, 504):
            raise away(f"The service {service}") from error
        if problem.status in (500, 502):
            raise ProblemError(
                500, "Internal error", f"The service {service} reported an internal error; see its log."
            ) from error
        if problem.field is not None:
            problem.field = FIELDS.get(problem.field, problem.field.removeprefix("selector."))
        raise problem from error
