"""Hundreds of sources of this machine ask the gateway and the authority for what they will not get, from a process of
its own: each has an address of loopback. Bounded in count and time: `python flood.py` reads what to do from its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

ANSWER_LIMIT_S = 10.0


@dataclass(frozen=True)
class Flood:
    """What is asked: of ``sources`` addresses each asks once in ``every_s``, for ``duration_s``."""

    gateway: tuple[str, int]
    authority: tuple[str, int]
    ca_file: str
    sources: int
    every_s: float
    duration_s: float


@dataclass
class Flooded:
    """Answers by status, and requests that had none."""

    answers: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0

    @property
    def requests(self) -> int:
        """All that were sent."""
        return sum(self.answers.values()) + self.unanswered

    @property
    def accepted(self) -> int:
        """Those that got what they asked for."""
        return sum(count for status, count in self.answers.items() if status.startswith("2"))


def source(number: int) -> str:
    """The address of one: 127.1.0.1 and on."""
    return f"127.1.{number // 250}.{1 + number % 250}"


async def _ask(flood: Flood, context: ssl.SSLContext, number: int, turn: int) -> str:
    """One request on a connection of its own; the status of the answer."""
    to_gateway = (number + turn) % 2 == 0
    host, port = flood.gateway if to_gateway else flood.authority
    path = "/v1/rate-requests" if to_gateway else "/v1/keys/n0/n1"
    reader, writer = await asyncio.open_connection(
        host, port, ssl=None if to_gateway else context, local_addr=(source(number), 0)
    )
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x.y.z\r\nConnection: close\r\n\r\n".encode()
        )
        line = await reader.readline()
    finally:
        writer.close()
    return line.split(b" ")[1].decode()


async def run(flood: Flood) -> Flooded:
    """All sources, each in its own time."""
    context = ssl.create_default_context(cafile=flood.ca_file)
    context.check_hostname = False
    found = Flooded()
    end = time.monotonic() + flood.duration_s

    async def one(number: int) -> None:
        await asyncio.sleep(flood.every_s * number / flood.sources)
        turn = 0
        while time.monotonic() < end:
            due = time.monotonic() + flood.every_s
            try:
                async with asyncio.timeout(ANSWER_LIMIT_S):
                    found.answers[await _ask(flood, context, number, turn)] += 1
            except (OSError, TimeoutError, IndexError):
                found.unanswered += 1
            turn += 1
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    await asyncio.gather(*(one(number) for number in range(flood.sources)))
    return found


async def beside(flood: Flood) -> tuple[asyncio.subprocess.Process, asyncio.Task[Flooded]]:
    """The flood in a process of its own, and what came of it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )

    async def end() -> Flooded:
        said, _ = await process.communicate(json.dumps(vars(flood)).encode())
        told: dict[str, Any] = json.loads(said)
        return Flooded(Counter(told["answers"]), told["unanswered"])

    return process, asyncio.create_task(end())


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    for name in ("gateway", "authority"):
        asked[name] = tuple(asked[name])
    with contextlib.suppress(BrokenPipeError), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(vars(runner.run(run(Flood(**asked)))), sys.stdout)
