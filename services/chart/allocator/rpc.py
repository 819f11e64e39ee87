"""gRPC of the allocator: the newest rates of the nodes that this replica works for."""

from __future__ import annotations

from typing import Any

from chart.allocator.streams import Allocator
from chart.common.rpc import Registration
from chart.v1 import allocator_pb2, allocator_pb2_grpc


class AllocatorServicer(allocator_pb2_grpc.AllocatorServicer):
    """Answers from memory."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator

    async def ListLinkRates(  # noqa: N802 - named by the interface
        self, request: allocator_pb2.ListLinkRatesRequest, context: Any
    ) -> allocator_pb2.ListLinkRatesResponse:
        """The last published record of one node, or of all."""
        nodes = [
            allocation.published
            for node, allocation in sorted(self._allocator.nodes.items())
            if allocation.published is not None and request.node in ("", node)
        ]
        return allocator_pb2.ListLinkRatesResponse(nodes=nodes)


def registration(allocator: Allocator) -> Registration:
    """What `chart.common.rpc.serve` needs."""
    name = allocator_pb2.DESCRIPTOR.services_by_name["Allocator"].full_name
    return name, allocator_pb2_grpc.add_AllocatorServicer_to_server, AllocatorServicer(allocator)
