"""chart-proxy on a node of a lab, for tests: start, metrics, and what of it stands in the kernel."""

from __future__ import annotations

import subprocess
from typing import IO

from chart_lab.network import Lab
from chart_lab.programs import program
from support.waiting import poll

PROXY = "dataplane/chart-proxy"
METRICS = "127.0.0.1:18451"
MARK = 0x43485052
TABLE = 18450
IPV6 = {"client": "fd00::1", "near": "fd00::2", "far": "fd00::3", "server": "fd00::4"}


def add_ipv6(lab: Lab) -> None:
    """One address per node of the row on lo, routes along the row through the interfaces (TUN has no neighbours)."""
    names = list(IPV6)
    for place, node in enumerate(names):
        lab.exec(node, ["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.all.forwarding=1"])
        lab.exec(node, ["ip", "-6", "address", "add", f"{IPV6[node]}/128", "dev", "lo", "nodad"])
        for other, name in enumerate(names):
            if other != place:
                toward = names[place + 1] if other > place else names[place - 1]
                lab.exec(node, ["ip", "-6", "route", "add", IPV6[name], "dev", f"to-{toward}", "src", IPV6[node]])


class Proxy:
    """The proxy of a node, which takes what comes in through some of its interfaces."""

    def __init__(self, lab: Lab, node: str, *interfaces: str) -> None:
        self.lab, self.node = lab, node
        self.interfaces = interfaces
        self.log = lab.node_directory(node) / "proxy.log"
        self.process: subprocess.Popen[str] | None = None

    def command(self, *words: str) -> list[str]:
        """Its command line."""
        taken = [word for name in self.interfaces for word in ("--interface", name)]
        return [str(program(PROXY)), *taken, *words]

    def start(self, *options: str) -> None:
        """Starts it and waits until it is ready."""
        output: IO[str]
        with self.log.open("w") as output:
            command = self.command("--metrics", METRICS, *options)
            self.process = self.lab.popen(self.node, command, stdout=output, stderr=output)
        process = self.process
        poll(lambda: "ready" in self.log.read_text() or process.poll() is not None, limit_s=15)
        assert "ready" in self.log.read_text(), self.log.read_text()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs another one to its end."""
        return self.lab.exec(self.node, self.command(*words), check=False)

    def metrics(self) -> dict[str, float]:
        """Every sample it exports, by name and labels."""
        told = self.lab.exec(self.node, ["curl", "-sf", f"http://{METRICS}/metrics"]).stdout
        lines = (line.rsplit(" ", 1) for line in told.splitlines() if not line.startswith("#"))
        return {name.removeprefix("chart_proxy_"): float(value) for name, value in lines}

    def kill(self) -> None:
        """Ends it as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ends it in order, when it still runs; its exit status."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(timeout=20)

    def left(self) -> list[str]:
        """What of its rules and routes stands in the kernel."""
        found = []
        for iptables, family in (("iptables", "-4"), ("ip6tables", "-6")):
            rules = self.lab.exec(self.node, [iptables, "-w", "-t", "mangle", "-S"]).stdout
            found += [line for line in rules.splitlines() if "CHART" in line]
            policy = self.lab.exec(self.node, ["ip", family, "rule"]).stdout
            found += [line for line in policy.splitlines() if f"{MARK:#x}" in line]
            table = self.lab.exec(self.node, ["ip", family, "route", "show", "table", str(TABLE)], check=False).stdout
            found += [line for line in table.splitlines() if line.strip()]
        return found
