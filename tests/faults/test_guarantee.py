"""An application on a guaranteed rate keeps it, whatever happens around it: a crowd of lower priority on the same link,
another link that dies, an allocator that is killed.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from chart_lab.network import Lab
from chart_lab.platform.laboratory import fetch
from chart_lab.platform.stack import Platform
from chart_lab.programs import program
from chart_lab.topology import Impairment
from support import laboratory
from support.figures import Figures

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(300)]

PORT = 5301
RATE_BPS = 40_000_000
# Of a full packet of 1,500 bytes with timestamps.
PAYLOAD_SHARE = 1448 / 1500
SHARES = (0.98, 1.02)
# Without the guarantee the application would have a seventh of the link, less than half of its rate.
SOUND_SHARES = (0.5, 1.5)
PHASE_S = 6.0
# The shared link, made clean: it is the scheduling that is looked at, not how losses are outlived.
SHARED = "bravo-charlie"
OTHER = "charlie-delta"
Until = Callable[..., None]


@pytest.fixture(scope="module")
def lab(platform: Platform, rest: httpx.Client) -> Iterator[Lab]:
    with laboratory.running_lab(platform, rest) as lab:
        lab.impair(SHARED, Impairment(loss=0, delay_ms=10))
        yield lab


@contextlib.contextmanager
def transfer(lab: Lab, source: str, destination: str, port: int) -> Iterator[None]:
    """A bulk transfer that lasts as long as the block."""
    bulk = str(program("lab/bulk"))
    receive = [bulk, "receive", "--listen", f"0.0.0.0:{port}"]
    send = [bulk, "send", "--connect", f"{lab.address(destination)}:{port}", "--duration-s", "120"]
    ends = [lab.popen(destination, receive, stderr=subprocess.DEVNULL)]
    ends.append(lab.popen(source, send, stderr=subprocess.DEVNULL))
    try:
        yield
    finally:
        for process in ends:
            process.kill()
            process.communicate()


def received(lab: Lab, node: str, port: int) -> tuple[int, float]:
    """Octets that a node has received on a port, and when that was looked at."""
    before = time.monotonic()
    found = re.findall(r"bytes_received:(\d+)", laboratory.established(lab, node, f"sport = :{port}"))
    return (int(found[0]) if found else 0), (before + time.monotonic()) / 2


def share_of_rate(lab: Lab, seconds: float) -> float:
    """Of its guaranteed rate, what the application got over so many seconds."""
    first, began = received(lab, "charlie", PORT)
    time.sleep(seconds)
    last, ended = received(lab, "charlie", PORT)
    return (last - first) * 8 / (ended - began) / (RATE_BPS * PAYLOAD_SHARE)


def ask(rest: httpx.Client, until: Until, **body: Any) -> dict[str, Any]:
    """A request of a TCP port at charlie, enforced."""
    answer = rest.post("/v1/rate-requests", json={"destination": "charlie", "protocol": "tcp", **body})
    assert answer.status_code == 201, answer.text
    request: dict[str, Any] = answer.json()
    path = f"/v1/rate-requests/{request['id']}"
    until(lambda: fetch(rest, path)["enforcement"] == "ENFORCED", "the request is enforced")
    return request


def test_a_guaranteed_rate_is_kept_whatever_happens_around_it(
    platform: Platform, lab: Lab, rest: httpx.Client, kill: Callable[[str], int], until: Until, figures: Figures
) -> None:
    request = ask(
        rest,
        until,
        source="alpha",
        destination_port=PORT,
        service="guaranteed",
        guaranteed_bps=RATE_BPS,
        priority=5,
    )
    shares: dict[str, float] = {}
    with contextlib.ExitStack() as running:
        running.enter_context(transfer(lab, "alpha", "charlie", PORT))
        until(lambda: received(lab, "charlie", PORT)[0] > 5_000_000, "the application is under way")
        shares["alone"] = share_of_rate(lab, PHASE_S)
        for number in range(4):
            port, source = PORT + 1 + number, ("alpha", "bravo")[number % 2]
            ask(
                rest,
                until,
                source=source,
                destination_port=port,
                service="variable",
                guaranteed_bps=5_000_000,
                priority=0,
            )
            running.enter_context(transfer(lab, source, "charlie", port))
        for number in range(2):  # and some that ask nobody
            running.enter_context(transfer(lab, "bravo", "charlie", PORT + 10 + number))
        shares["while a crowd begins"] = share_of_rate(lab, PHASE_S)
        shares["among the crowd"] = share_of_rate(lab, PHASE_S)
        lab.impair(OTHER, Impairment(outage=True))
        rest.delete("/v1/links/charlie:to-delta").raise_for_status()
        shares["while a link dies"] = share_of_rate(lab, PHASE_S)
        before = kill("allocator")
        shares["while the allocator is away"] = share_of_rate(lab, PHASE_S)
        until(
            lambda: all(row.healthy and row.pid != before for row in platform.status() if row.name == "allocator"),
            "the allocator is back",
            limit_s=120,
        )
        shares["after it came back"] = share_of_rate(lab, PHASE_S)
    found = fetch(rest, f"/v1/rate-requests/{request['id']}")
    assert (found["service_state"], found["granted_bps"]) == ("GRANTED", RATE_BPS)
    for name, share in shares.items():
        figures.within(f"got {name}", share, SHARES, "of the guaranteed rate", sound=SOUND_SHARES)
