"""The traffic tool of the experiments."""

from __future__ import annotations

import json
import socket
import subprocess

from chart_lab.programs import program

# Less than an account of 200 samples.
PIPE_BYTES = 4096


def test_a_sender_whose_account_nobody_reads_yet_has_left_the_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    tool, address = str(program("lab/bulk")), f"127.0.0.1:{port}"
    receiver = subprocess.Popen(
        [tool, "receive", "--listen", address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    sender = None
    try:
        assert receiver.stderr is not None
        assert "listening" in receiver.stderr.readline()
        sender = subprocess.Popen(
            [tool, "send", "--connect", address, "--duration-s", "0.2", "--sample-ms", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            pipesize=PIPE_BYTES,
        )
        output, _ = receiver.communicate(timeout=10)
        assert json.loads(output)["bytes"] > 0
        told, _ = sender.communicate(timeout=10)
        assert len(told) > PIPE_BYTES
        assert json.loads(told)["congestion"]
    finally:
        for process in (receiver, sender):
            if process is not None:
                process.kill()
                process.wait()


def test_a_sender_offers_no_more_than_it_is_told_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    tool, address = str(program("lab/bulk")), f"127.0.0.1:{port}"
    receiver = subprocess.Popen(
        [tool, "receive", "--listen", address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert receiver.stderr is not None
        assert "listening" in receiver.stderr.readline()
        options = ("--duration-s", "0.5", "--offered-mbit", "8")
        sent = subprocess.run(
            [tool, "send", "--connect", address, *options], capture_output=True, text=True, check=True, timeout=10
        )
        receiver.communicate(timeout=10)
    finally:
        receiver.kill()
        receiver.wait()
    # 1,000 octets each millisecond.
    assert 0 < json.loads(sent.stdout)["bytes"] <= 500_000
    assert subprocess.run([tool, "send", "--connect", address, "--offered-mbit", "0"], check=False).returncode == 2
