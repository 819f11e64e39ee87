"""Reading keys over mutual TLS as nodes do, from a process of its own, so that the measured is not who measures.

`read_keys` reads without pause in this process. `measure` runs this file: at a given rate (open loop: each read has its
moment, and its time counts from there, also when it had to wait for a connection), or without pause.
"""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import uvloop


class Refused(Exception):  # noqa: N818 - a finding
    """Another status than 200."""


GONE = (OSError, TimeoutError, Refused)


class Wire(asyncio.Protocol):
    """A connection to a replica, for one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._octets = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over."""
        # Not every loop's transport is a subclass of asyncio's.
        self.transport = cast("asyncio.Transport", transport)

    def ask(self, head: bytes) -> asyncio.Future[bytes]:
        """The whole answer, when it is there."""
        assert self.transport is not None
        self._octets, self.answer = b"", asyncio.get_running_loop().create_future()
        self.transport.write(head)
        return self.answer

    def data_received(self, data: bytes) -> None:
        """An answer, or a part of it."""
        self._octets += data
        head, end, body = self._octets.partition(b"\r\n\r\n")
        if not end or self.answer.done():
            return
        if len(body) >= int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]):
            self.answer.set_result(self._octets)

    def connection_lost(self, exc: Exception | None) -> None:
        """The replica is gone."""
        self.transport = None
        self.fail(exc or ConnectionResetError())

    def fail(self, error: Exception) -> None:
        """There will be no answer."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()


@dataclass
class KeepAlive:
    """A connection that is used again and again."""

    host: str
    port: int
    context: ssl.SSLContext
    wire: Wire | None = None

    async def get(self, path: str, limit_s: float = 3.0) -> bytes:
        """The body of an answer. Raises OSError or TimeoutError when the replica is gone, Refused else."""
        loop = asyncio.get_running_loop()
        if self.wire is None or self.wire.transport is None:
            async with asyncio.timeout(limit_s):
                _, self.wire = await loop.create_connection(Wire, self.host, self.port, ssl=self.context)
        late = loop.call_later(limit_s, self.wire.fail, TimeoutError())
        try:
            whole = await self.wire.ask(f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
        finally:
            late.cancel()
        if not whole.startswith(b"HTTP/1.1 200"):
            raise Refused(whole.split(b"\r\n")[0].decode())
        return whole.partition(b"\r\n\r\n")[2]

    def drop(self) -> None:
        """Begin anew with the next request."""
        if self.wire is not None and self.wire.transport is not None:
            self.wire.transport.abort()
        self.wire = None


@dataclass
class Readings:
    """What a load came to."""

    seconds: list[float] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0
    failed_after_retry: int = 0
    retried: int = 0

    @property
    def per_s(self) -> float:
        return len(self.seconds) / (self.ended - self.began)

    @property
    def p99_ms(self) -> float:
        ordered = sorted(self.seconds)
        return 1000 * ordered[int(0.99 * len(ordered))]


async def read_keys(
    targets: Sequence[tuple[str, int]], clients: Sequence[tuple[ssl.SSLContext, Sequence[str]]], duration_s: float
) -> Readings:
    """Each client reads its paths over its own connection without pause; a failure is tried once at the next target."""
    found = Readings(began=time.perf_counter())
    end = found.began + duration_s

    async def one(number: int, context: ssl.SSLContext, paths: Sequence[str]) -> None:
        connections = [KeepAlive(host, port, context) for host, port in targets]
        at = number % len(connections)
        for path in cycle(paths):
            began = time.perf_counter()
            if began >= end:
                break
            try:
                await connections[at].get(path)
            except GONE:
                connections[at].drop()
                at = (at + 1) % len(connections)
                found.retried += 1
                try:
                    await connections[at].get(path)
                except GONE:
                    connections[at].drop()
                    found.failed_after_retry += 1
                    continue
            found.seconds.append(time.perf_counter() - began)
        for connection in connections:
            connection.drop()

    await asyncio.gather(*(one(number, *client) for number, client in enumerate(clients)))
    found.ended = time.perf_counter()
    return found


async def read_at_rate(
    target: tuple[str, int], clients: Sequence[tuple[ssl.SSLContext, Sequence[str]]], duration_s: float, per_s: float
) -> Readings:
    """One read every 1 / per_s, by the client that has waited longest; its time counts from the moment it was due.

    As agents do, the clients are connected before.
    """
    idle = deque((KeepAlive(*target, context), cycle(paths)) for context, paths in clients)
    for connection, paths in idle:
        await connection.get(next(paths))
    found = Readings(began=time.perf_counter())
    due: deque[float] = deque()
    running: set[asyncio.Task[None]] = set()

    async def one(connection: KeepAlive, paths: Any) -> None:
        while due:
            began = due.popleft()
            try:
                await connection.get(next(paths))
                found.seconds.append(time.perf_counter() - began)
            except GONE:
                connection.drop()
                found.failed_after_retry += 1
        idle.append((connection, paths))

    for number in range(round(duration_s * per_s)):
        moment = found.began + number / per_s
        if (left_s := moment - time.perf_counter()) > 0:
            await asyncio.sleep(left_s)
        due.append(moment)
        if idle:
            task = asyncio.create_task(one(*idle.popleft()))
            running.add(task)
            task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    found.ended = time.perf_counter()
    for connection, _ in idle:
        connection.drop()
    return found


@dataclass(frozen=True)
class Load:
    """What `measure` is to do; files are (CA, certificate, key), by client, with the paths it reads."""

    target: tuple[str, int]
    clients: list[tuple[tuple[str, str, str], list[str]]]
    duration_s: float
    per_s: float | None = None


async def _run(load: Load) -> Readings:
    clients = []
    for (ca, certificate, key), paths in load.clients:
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(certificate, key)
        clients.append((context, paths))
    # The first reads make connections and keys.
    await read_keys([load.target], clients, 2.0)
    gc.collect()
    gc.freeze()
    gc.disable()
    if load.per_s is None:
        return await read_keys([load.target], clients, load.duration_s)
    return await read_at_rate(load.target, clients, load.duration_s, load.per_s)


async def measure(load: Load) -> Readings:
    """The load from a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate(json.dumps(vars(load)).encode())
    assert process.returncode == 0, "the load failed"
    return Readings(**json.loads(said))


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    asked["target"] = tuple(asked["target"])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(vars(runner.run(_run(Load(**asked)))), sys.stdout)


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Of times in milliseconds."""
    ordered = sorted(seconds)
    places = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    return {name: round(1000 * ordered[int(place * len(ordered))], 2) for name, place in places.items()} | {
        "max": round(1000 * ordered[-1], 2)
    }
