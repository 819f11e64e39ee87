"""A real chart-tunnel under the real service over Kafka: each of the three killed with -9, and what becomes of m.

Both ends run over loopback in the machine's own namespace; their devices have no addresses and carry nothing, so the
number of connections is stated (controller none).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart.common import rpc
from chart.common.streams import KafkaBroker
from chart.v1 import tunnels_pb2, tunnels_pb2_grpc
from chart.v1.tunnel_command_pb2 import TunnelController
from support.tunnels import TunnelsProcess
from support.waiting import eventually
from tunnel_program.ends import End

pytestmark = pytest.mark.contract

CONNECTIONS = 6


class Pair:
    """Both ends."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.name = f"c{secrets.token_hex(3)}"
        where = f"127.0.0.1:{20000 + secrets.randbelow(10000)}"
        self.destination = End("destination", directory, ["--listen", where, "--tun", f"chd-{self.name}"])
        names = ["--tunnel", self.name, "--node", f"{self.name}-west", "--peer-node", f"{self.name}-east"]
        options = ["--destination", where, "--tun", f"cho-{self.name}", "--broker", bootstrap, "--period-ms", "100"]
        self.origin = End("origin", directory, [*options, *names])

    def established(self, count: int) -> bool:
        return self.origin.established() == count


async def decay(pair: Pair) -> tuple[list[int], float]:
    """The numbers of connections wanted, each once, until there is one; and for how long the first was."""
    seen: list[int] = []
    started_s = time.monotonic()
    held_s = 0.0
    while not seen or seen[-1] != 1:
        assert time.monotonic() - started_s < 10, f"m went {seen} and no further"
        connections = pair.origin.get()["connections"]
        if not seen or seen[-1] != connections["wanted"]:
            held_s = held_s or (time.monotonic() - started_s if seen else 0.0)
            seen.append(connections["wanted"])
        await asyncio.sleep(0.01)
    return seen, held_s


def kill(end: End) -> None:
    assert end.process is not None
    end.process.kill()
    end.process.wait(10)


@pytest.fixture
def pair(kafka_bootstrap: str, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(kafka_bootstrap, tmp_path)
    with made.destination, made.origin:
        yield made


async def test_whoever_is_killed_m_comes_back(service: TunnelsProcess, pair: Pair, kafka_bootstrap: str) -> None:
    channel = rpc.channel(service.target)
    stub = tunnels_pb2_grpc.TunnelsStub(channel)
    broker = KafkaBroker(kafka_bootstrap)
    stated = tunnels_pb2.TunnelSettings(
        tunnel=pair.name, controller=TunnelController.TUNNEL_CONTROLLER_NONE, connections=CONNECTIONS
    )
    try:
        await stub.PutTunnelSettings(tunnels_pb2.PutTunnelSettingsRequest(settings=stated))
        await eventually(lambda: pair.established(CONNECTIONS), 20)
        service.process.kill()
        wanted, held_s = await decay(pair)
        # m holds for what is left of the lease of a second, then it halves down to one.
        assert held_s > 0.4
        assert wanted == [CONNECTIONS, 3, 1]
        await eventually(lambda: pair.established(1), 10)
        await asyncio.to_thread(service.start)
        await eventually(lambda: pair.established(CONNECTIONS), 20)
        kill(pair.origin)
        await asyncio.to_thread(pair.origin.start)
        await eventually(lambda: pair.established(CONNECTIONS), 20)
        kill(pair.destination)
        await eventually(lambda: pair.established(0), 10)

        async def is_told() -> bool:
            found = (await stub.GetTunnel(tunnels_pb2.GetTunnelRequest(tunnel=pair.name))).tunnel
            return "destination reports nothing" in found.reason

        await eventually(is_told, 10)
        await asyncio.to_thread(pair.destination.start)
        await eventually(lambda: pair.established(CONNECTIONS), 20)
    finally:
        await channel.close(None)
        await broker.publish("chart.tunnel-command.v1", pair.name, None)
        await broker.close()
