"""The platform that the guest of `make packages-test` enrols with: authority, registry, broker under mutual TLS and all
others, as `make up` starts them, in a network namespace of this process. The guest reaches it through QEMU's user
networking.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from chart_lab.platform import laboratory
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.stack import Platform

CLONE_NEWNET = 0x40000000
NODES = {"guest": "10.78.0.1", "far": "10.78.0.2"}
# Packets to this network go by the tunnel `site`.
TUNNELLED = "192.0.2.0/24"
CAPACITY, GRANTED = "20M", "8M"
GRANTED_PORT = 5203
ASKED_EVERY_S = 1.0


def own_network() -> None:
    """From now on this process and those that it starts have a network namespace of their own with a loopback: what
    else the machine runs is not met, and left alone.

    Raises:
        OSError: not as root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"a network namespace: {os.strerror(number)}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)


@dataclass
class Served:
    """A platform that knows the guest's two nodes, and what it saw of them."""

    settings: PlatformSettings
    seen: dict[str, str] = field(default_factory=dict)

    def chart(self, *words: str) -> str:
        """The `chart` command as an operator."""
        return laboratory.chart(self.settings, *words)

    def register(self) -> None:
        """Both nodes, the links between them, a tunnel, and a rate from one to the other."""
        for node, address in NODES.items():
            self.chart("node", "set", node, "--address", f"{address}/32")
        self.chart("link", "set", "guest:near", "--to", "far", "--capacity", CAPACITY)
        self.chart("link", "set", "far:far", "--to", "guest", "--capacity", CAPACITY)
        ends = ("--address", NODES["far"])
        self.chart("node", "end", "set", "far", "site", "--role", "destination", *ends, "--peer", "guest")
        origin = ("--role", "origin", *ends, "--peer", "far", "--prefix", TUNNELLED)
        self.chart("node", "end", "set", "guest", "site", *origin)
        rate = ("--rate", GRANTED, "--service", "guaranteed", "--port", str(GRANTED_PORT))
        self.chart("request", "create", "--from", "guest", "--to", "far", *rate)

    def write_tokens(self, folder: Path) -> None:
        """What an operator carries to the nodes, and where they reach the platform."""
        for node in NODES:
            files = ("--token-file", str(folder / f"{node}.token"), "--ca-file", str(folder / "authority-ca.pem"))
            self.chart("node", "enrol", node, "--life", "1h", *files)
        settings = self.settings
        told = {
            "AUTHORITY": settings.node_authority_url, "BROKER": settings.node_bootstrap, "GRANTED_PORT": GRANTED_PORT,
        }  # fmt: skip
        (folder / "addresses").write_text("".join(f"{name}={value}\n" for name, value in told.items()))

    def look(self) -> None:
        """Remember what the platform says of the guest at this moment."""
        with laboratory.client(self.settings) as rest:
            for one in laboratory.fetch(rest, "/v1/identities")["items"]:
                if one["identity"] in {f"node/{node}" for node in NODES} and one["state"] == "enrolled":
                    self.seen[one["identity"]] = "enrolled"
            for request in laboratory.fetch(rest, "/v1/rate-requests")["items"]:
                if self.seen.get("request") != "ENFORCED":
                    self.seen["request"] = request["enforcement"]
            for tunnel in laboratory.fetch(rest, "/v1/tunnels")["items"]:
                if tunnel["state"]:
                    self.seen["tunnel"] = "reports"

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look all the time while the block runs."""
        over = threading.Event()

        def run() -> None:
            while not over.wait(ASKED_EVERY_S):
                with contextlib.suppress(httpx.HTTPError):
                    self.look()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def check(self) -> tuple[bool, str]:
        """Whether the platform saw both nodes enrolled, the rate enforced and the tunnel's reports; and what it saw."""
        wanted = {"node/guest": "enrolled", "node/far": "enrolled", "request": "ENFORCED", "tunnel": "reports"}
        told = ", ".join(f"{what}: {self.seen.get(what, 'nothing')}" for what in wanted)
        return all(self.seen.get(what) == state for what, state in wanted.items()), told


@contextlib.contextmanager
def running() -> Iterator[Served]:
    """The platform in a network of its own, with the nodes registered; afterwards nothing of it is left."""
    own_network()
    with tempfile.TemporaryDirectory(prefix="chart-packages-") as scratch:
        settings = PlatformSettings(state_dir=Path(scratch), kafka_tls=True)
        platform = Platform(settings)
        try:
            platform.up(lambda _: None)
            served = Served(settings)
            served.register()
            yield served
        finally:
            platform.down(purge=True)
