"""The pure parts of `middleboxes`, and its traffic over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from chart_lab import request_traffic
from chart_lab.errors import LabError
from chart_lab.experiments import middleboxes
from chart_lab.experiments.middleboxes import Asked

ADDRESS = "127.0.0.1"


def free_port() -> int:
    with socket.create_server((ADDRESS, 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[int]:
    """A server of requests; its port."""
    port = free_port()
    serving = asyncio.create_task(request_traffic.serve(ADDRESS, port))
    try:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(ADDRESS, port)
                writer.close()
                break
            await asyncio.sleep(0)
        yield port
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
async def test_every_request_gets_its_own_answer(protocol: str) -> None:
    async with served() as port:
        told = await request_traffic.ask(protocol, ADDRESS, port, 0, 50)
    assert told["failures"] == []
    assert len(told["times_ms"]) == 50


async def test_a_closed_port_is_a_failure_for_every_request() -> None:
    told = await request_traffic.ask("tcp", ADDRESS, free_port(), 5, 3)
    assert {one["number"] for one in told["failures"]} == {5, 6, 7}
    assert all("ConnectionRefusedError" in one["why"] for one in told["failures"])


async def test_other_octets_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as port:
        wanted = request_traffic.answer_to
        seen: list[bytes] = []

        def altered(octets: bytes) -> bytes | None:
            # The server asks first, then the client: it is told another answer.
            seen.append(octets)
            answer = wanted(octets)
            return answer if len(seen) == 1 else b"x" * len(answer or b"")

        monkeypatch.setattr(request_traffic, "answer_to", altered)
        told = await request_traffic.ask("tcp", ADDRESS, port, 1, 1)
    assert "another one" in told["failures"][0]["why"]


def test_a_request_that_was_altered_gets_no_answer() -> None:
    sent = request_traffic.request(7, "udp")
    assert request_traffic.answer_to(sent) is not None
    for broken in (sent[:-1], sent + b"\0", b"", sent[:-1] + bytes([sent[-1] ^ 1])):
        assert request_traffic.answer_to(broken) is None


def test_one_in_twenty_answers_is_long() -> None:
    sizes = [len(request_traffic.answer_to(request_traffic.request(number, "tcp")) or b"") for number in range(40)]
    assert [number for number, size in enumerate(sizes) if size == request_traffic.LARGE_BYTES] == [0, 20]


@pytest.mark.parametrize("number", [100, 10_000, 10_007])
def test_the_kinds_have_all_connections_together(number: int) -> None:
    shares = middleboxes.shares_of(number)
    assert [len(own) for own in shares] == [len(box.kinds) for box in middleboxes.BOXES]
    flat = [one for own in shares for one in own]
    assert sum(flat) == number
    assert max(flat) - min(flat) <= 1


def test_what_fails_or_is_late_is_harmed() -> None:
    without = Asked((10.0, 12.0, 40.0), ())
    found = middleboxes.judge("nat", "tcp", 4, without, Asked((11.0, 180.0, 181.0, 1012.0), ("3: reset",)))
    assert (found.tried, found.failed, found.late, found.harmed) == (5, 1, 2, 3)
    figures = {figure.name: figure for figure in middleboxes.evaluate([found])}
    assert figures["connections_harmed"].value == 3
    assert figures["connections_harmed"].met() is False
    assert figures["connections_tried"].value == 5
    good = middleboxes.judge("nat", "tcp", 4, without, Asked((11.0,), ()))
    assert middleboxes.evaluate([good])[0].met() is True
    assert "| nat | tcp, IPv4 | 1 | 0 | 0 |" in middleboxes.table([good])


def test_a_box_that_harms_by_itself_is_no_result() -> None:
    with pytest.raises(LabError, match="without CHART too: 4: no answer"):
        middleboxes.judge("nat", "udp", 4, Asked((1.0,), ("4: no answer",)), Asked((1.0,), ()))
