"""Reading keys as fast as one replica gives them, over mutual TLS, with little work on the client's side."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field


class Refused(Exception):  # noqa: N818 - a finding
    """Another status than 200."""


@dataclass
class KeepAlive:
    """One connection that is used again and again."""

    host: str
    port: int
    context: ssl.SSLContext
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None

    async def get(self, path: str, limit_s: float = 3.0) -> bytes:
        """The body of an answer. Raises OSError, EOFError or TimeoutError when the replica is gone, Refused else."""
        async with asyncio.timeout(limit_s):
            if self.writer is None:
                self.reader, self.writer = await asyncio.open_connection(self.host, self.port, ssl=self.context)
            assert self.reader is not None
            self.writer.write(f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = await self.reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise Refused(head.split(b"\r\n")[0].decode())
        return body

    def drop(self) -> None:
        """Begin anew with the next request."""
        if self.writer is not None:
            self.writer.transport.abort()
        self.reader = self.writer = None


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
    targets: Sequence[tuple[str, int]], clients: Sequence[tuple[ssl.SSLContext, str]], duration_s: float
) -> Readings:
    """Each client reads its path over its own connection without pause; a failure is tried once at the next target."""
    found = Readings(began=time.perf_counter())
    end = found.began + duration_s

    async def one(number: int, context: ssl.SSLContext, path: str) -> None:
        connections = [KeepAlive(host, port, context) for host, port in targets]
        at = number % len(connections)
        while time.perf_counter() < end:
            began = time.perf_counter()
            try:
                await connections[at].get(path)
            except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError, Refused):
                connections[at].drop()
                at = (at + 1) % len(connections)
                found.retried += 1
                try:
                    await connections[at].get(path)
                except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError, Refused):
                    connections[at].drop()
                    found.failed_after_retry += 1
                    continue
            found.seconds.append(time.perf_counter() - began)
        for connection in connections:
            connection.drop()

    await asyncio.gather(*(one(number, *client) for number, client in enumerate(clients)))
    found.ended = time.perf_counter()
    return found
