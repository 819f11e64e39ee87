"""chart-proxy follows the registry through the file of chart-agent: traffic is taken and left while connections run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab.experiments import proxy as experiment
from chart_lab.network import Lab
from support.proxies import Proxy
from support.waiting import until

pytestmark = pytest.mark.lab

PORT = 5401
ECHO = f"""
import socket, sys, threading
def serve(connection):
    while block := connection.recv(4096):
        connection.sendall(block)
    connection.close()
listener = socket.create_server((sys.argv[1], {PORT}))
print("listening", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
# One word there and back for each line on standard input.
TALK = f"""
import socket, sys
connection = socket.create_connection((sys.argv[1], {PORT}), timeout=10)
for line in sys.stdin:
    connection.sendall(line.encode())
    print(connection.recv(4096).decode(), end="", flush=True)
"""


@pytest.fixture
def echo(lab: Lab) -> Iterator[str]:
    """Address of a server that says everything again."""
    address = lab.address("server")
    process = lab.popen("server", [sys.executable, "-c", ECHO, address])
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    yield address
    process.kill()
    process.communicate()


def state(directory: Path, *interfaces: str, mode: str = "same-ports") -> None:
    """What the registry states."""
    proxied = {"interfaces": interfaces, "prefixes": [], "mode": mode}
    fresh = directory / "ends.json.new"
    fresh.write_text(json.dumps({"node": "near", "tunnel_ends": [], "proxied_traffic": proxied}))
    fresh.rename(directory / "ends.json")


def dial(lab: Lab, address: str) -> subprocess.Popen[str]:
    """A connection that stays open."""
    return lab.popen("client", [sys.executable, "-c", TALK, address], stdin=subprocess.PIPE)


def say(process: subprocess.Popen[str], word: str) -> None:
    """One word there and back."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    assert process.stdout.readline() == f"{word}\n"


def talk(lab: Lab, address: str) -> None:
    """A connection of its own."""
    process = dial(lab, address)
    try:
        say(process, "word")
    finally:
        process.kill()
        process.communicate()


def test_what_is_taken_follows_the_registry(lab: Lab, echo: str, tmp_path: Path) -> None:
    proxy = Proxy(lab, "near")
    proxy.start("--state-dir", str(tmp_path))
    long = None
    try:
        # Nothing is stated yet, and nothing of the node is changed.
        assert proxy.left() == []
        talk(lab, echo)
        assert proxy.metrics()["connections_taken_total"] == 0
        state(tmp_path, *experiment.TAKEN["near"])
        until(lambda: "takes what comes in through" in proxy.log.read_text(), "the change", 5)
        long = dial(lab, echo)
        say(long, "first")
        assert proxy.metrics()["connections_taken_total"] == 1
        # What cannot be used changes nothing.
        state(tmp_path, *experiment.TAKEN["near"], mode="none")
        until(lambda: "stays as it was" in proxy.log.read_text(), "the refusal", 5)
        talk(lab, echo)
        assert proxy.metrics()["connections_taken_total"] == 2
        state(tmp_path)
        until(lambda: "through 0 interfaces" in proxy.log.read_text(), "the end", 5)
        talk(lab, echo)
        assert proxy.metrics()["connections_taken_total"] == 2
        # The one that is open goes on through the proxy.
        say(long, "second")
    finally:
        if long is not None:
            long.kill()
            long.communicate()
        assert proxy.stop() == 0
    assert proxy.left() == []
