"""The traffic tool of the experiments."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator

from chart_lab.programs import program

# Less than an account of 200 samples.
PIPE_BYTES = 4096


def tool() -> str:
    """Path of the program."""
    return str(program("lab/bulk"))


@contextlib.contextmanager
def receiving() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A receiver that listens, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    receiver = subprocess.Popen(
        [tool(), "receive", "--listen", address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert receiver.stderr is not None
        assert "listening" in receiver.stderr.readline()
        yield receiver, address
    finally:
        receiver.kill()
        receiver.wait()


def test_a_sender_whose_account_nobody_reads_yet_has_left_the_network() -> None:
    with receiving() as (receiver, address):
        sender = subprocess.Popen(
            [tool(), "send", "--connect", address, "--duration-s", "0.2", "--sample-ms", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            pipesize=PIPE_BYTES,
        )
        try:
            output, _ = receiver.communicate(timeout=10)
            assert json.loads(output)["bytes"] > 0
            told, _ = sender.communicate(timeout=10)
            assert len(told) > PIPE_BYTES
            assert json.loads(told)["congestion"]
        finally:
            sender.kill()
            sender.wait()


def test_a_sender_offers_no_more_than_it_is_told_to() -> None:
    with receiving() as (receiver, address):
        options = ("--duration-s", "0.5", "--offered-mbit", "8")
        sent = subprocess.run(
            [tool(), "send", "--connect", address, *options], capture_output=True, text=True, check=True, timeout=10
        )
        receiver.communicate(timeout=10)
    # 1,000 octets each millisecond.
    assert 0 < json.loads(sent.stdout)["bytes"] <= 500_000


def test_an_offer_of_nothing_is_refused() -> None:
    refused = [tool(), "send", "--connect", "127.0.0.1:1", "--offered-mbit", "0"]
    assert subprocess.run(refused, check=False, capture_output=True).returncode == 2
