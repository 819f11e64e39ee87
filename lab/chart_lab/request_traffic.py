"""Short requests and their answers over TCP or UDP, each checked octet by octet: the traffic of the experiment
`middleboxes`, as ordinary programs make it.

    python -m chart_lab.request_traffic serve ADDRESS PORT
    python -m chart_lab.request_traffic ask tcp|udp ADDRESS PORT FIRST NUMBER

A request is a header (number, octets of its body, octets wanted) and its body; the answer is a body of its own. Bodies
follow from the number, so that either side knows every octet that must come. `serve` answers both protocols until it is
ended; a request that is not as it was sent gets no answer. `ask` makes NUMBER requests, a few at a time, each on a
connection (or socket) of its own, and prints one JSON object: `times_ms` of the good ones, `failures` of the others
with their numbers and what went wrong.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import sys
import time
from typing import Any

HEADER = struct.Struct("!III")
AT_ONCE = 8
LIMIT_S = 10.0
# Most answers are short; one in twenty is long enough for renewals of a rate (every 128 packets).
LARGE_EVERY, LARGE_BYTES = 20, 300_000
TCP_BYTES, UDP_BYTES = 8_000, 1_000
ANSWER_SEED = 1 << 32


class RequestError(Exception):
    """A request that did not get what it must; says what went wrong."""


def body(seed: int, size: int) -> bytes:
    """The octets that belong to a number."""
    return random.Random(seed).randbytes(size)  # noqa: S311 - the same on both sides, nothing secret


def request(number: int, protocol: str) -> bytes:
    """The request of this number; its body and the wanted answer have sizes that follow from the number too."""
    chance = random.Random(~number)  # noqa: S311 - the same in every run
    most = TCP_BYTES if protocol == "tcp" else UDP_BYTES
    wanted = chance.randint(1, most)
    if protocol == "tcp" and number % LARGE_EVERY == 0:
        wanted = LARGE_BYTES
    size = chance.randint(0, most - HEADER.size)
    return HEADER.pack(number, size, wanted) + body(number, size)


def answer_to(octets: bytes) -> bytes | None:
    """The answer to a whole request; None when it is not one that was sent."""
    if len(octets) < HEADER.size:
        return None
    number, size, wanted = HEADER.unpack_from(octets)
    if len(octets) != HEADER.size + size or octets[HEADER.size :] != body(number, size):
        return None
    return body(number + ANSWER_SEED, min(wanted, LARGE_BYTES))


async def _serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = await reader.readexactly(HEADER.size)
        rest = await reader.readexactly(min(HEADER.unpack(head)[1], TCP_BYTES))
        answer = answer_to(head + rest)
        if answer is None:
            writer.transport.abort()
            return
        writer.write(answer)
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        writer.transport.abort()
    finally:
        writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    """Answers every request; what is none is not for this program and gets no answer."""

    transport: asyncio.DatagramTransport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        answer = answer_to(data)
        if answer is not None:
            self.transport.sendto(answer, addr)


async def serve(address: str, port: int) -> None:
    """Answers until the process is ended; says `listening` when it does."""
    loop = asyncio.get_running_loop()
    datagrams, _ = await loop.create_datagram_endpoint(_Datagrams, local_addr=(address, port))
    try:
        async with await asyncio.start_server(_serve_connection, address, port, backlog=1024) as server:
            sys.stdout.write("listening\n")
            sys.stdout.flush()
            await server.serve_forever()
    finally:
        datagrams.close()


async def _over_tcp(address: str, port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(sent)
        await writer.drain()
        return await reader.read()
    finally:
        writer.close()


class _Answers(asyncio.DatagramProtocol):
    """Everything that comes back on one socket."""

    def __init__(self) -> None:
        self.first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if not self.first.done():
            self.first.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.first.done():
            self.first.set_exception(exc)


async def _over_udp(address: str, port: int, sent: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    transport, answers = await loop.create_datagram_endpoint(_Answers, remote_addr=(address, port))
    try:
        transport.sendto(sent)
        return await answers.first
    finally:
        transport.close()


async def _one(protocol: str, address: str, port: int, number: int) -> float:
    """Seconds of one request. Raises RequestError."""
    sent = request(number, protocol)
    over = _over_tcp if protocol == "tcp" else _over_udp
    began = time.monotonic()
    try:
        async with asyncio.timeout(LIMIT_S):
            got = await over(address, port, sent)
    except TimeoutError:
        raise RequestError(f"no answer within {LIMIT_S:g} s") from None
    except OSError as error:
        raise RequestError(f"{type(error).__name__}: {error}") from error
    took_s = time.monotonic() - began
    if got != answer_to(sent):
        raise RequestError(f"an answer of {len(got)} octets that is another one")
    return took_s


async def ask(protocol: str, address: str, port: int, first: int, number: int) -> dict[str, Any]:
    """Makes the requests; see the module's text."""
    numbers = iter(range(first, first + number))
    times_ms: list[float] = []
    failures: list[dict[str, Any]] = []

    async def in_turn() -> None:
        for one in numbers:
            try:
                times_ms.append(round(await _one(protocol, address, port, one) * 1e3, 3))
            except RequestError as error:
                failures.append({"number": one, "why": str(error)})

    await asyncio.gather(*(in_turn() for _ in range(AT_ONCE)))
    return {"times_ms": times_ms, "failures": failures}


def main(words: list[str]) -> None:
    """`serve ADDRESS PORT` or `ask PROTOCOL ADDRESS PORT FIRST NUMBER`."""
    match words:
        case ["serve", address, port]:
            asyncio.run(serve(address, int(port)))
        case ["ask", ("tcp" | "udp") as protocol, address, port, first, number]:
            told = asyncio.run(ask(protocol, address, int(port), int(first), int(number)))
            sys.stdout.write(json.dumps(told) + "\n")
        case _:
            sys.exit("usage: serve ADDRESS PORT | ask tcp|udp ADDRESS PORT FIRST NUMBER")


if __name__ == "__main__":
    main(sys.argv[1:])
