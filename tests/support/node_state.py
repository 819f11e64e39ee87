"""A node of a lab from outside, to be compared: its settings, queues, links, routes and open sockets."""

from __future__ import annotations

import json
import re
from typing import Any

from chart_lab.network import Lab

# Values that move by themselves, and the list of controls that the kernel has: a running agent adds its own to it,
# which no socket uses by that.
NOT_COMPARED = ("net.netfilter.nf_conntrack_count", "net.ipv4.tcp_available_congestion_control")
SKMEM = re.compile(r"skmem:\(r\d+,(rb\d+),t\d+,(tb\d+),")


def _told(lab: Lab, node: str, *command: str) -> str:
    return lab.exec(node, list(command), check=False).stdout


def sysctls(lab: Lab, node: str) -> dict[str, str]:
    """Every setting of the network, by name."""
    lines = _told(lab, node, "sysctl", "-a", "-r", r"^net\.").splitlines()
    named = dict(line.split(" = ", 1) for line in lines if " = " in line)
    return {name: value for name, value in named.items() if name not in NOT_COMPARED}


def sockets(lab: Lab, node: str, port: int) -> list[tuple[str, ...]]:
    """State, congestion control, and greatest buffers of the TCP sockets from or to a port."""
    found = []
    told = _told(lab, node, "ss", "-HtanimO", f"( sport = :{port} or dport = :{port} )")
    for line in told.splitlines():
        words, memory = line.split(), SKMEM.search(line)
        # After the memory come the words of TCP, the control first.
        control = line.partition(") ")[2].split()[:1]
        found.append((words[0], *control, *(memory.groups() if memory else ())))
    return sorted(found)


def snapshot(lab: Lab, node: str, *ports: int) -> dict[str, Any]:
    """Everything that an agent could change on a node, the sockets of `ports` with it."""
    links: list[dict[str, Any]] = json.loads(_told(lab, node, "ip", "-d", "-j", "link", "show"))
    names = [link["ifname"] for link in links]
    return {
        "sysctls": sysctls(lab, node),
        "links": links,
        "offloads": {name: _told(lab, node, "ethtool", "-k", name) for name in names},
        "queues": _told(lab, node, "tc", "qdisc", "show"),
        "classes": {name: _told(lab, node, "tc", "class", "show", "dev", name) for name in names},
        "filters": {name: _told(lab, node, "tc", "filter", "show", "dev", name) for name in names},
        "routes": [
            _told(lab, node, "ip", family, *words)
            for family in ("-4", "-6")
            for words in (("route", "show", "table", "all"), ("rule", "show"))
        ],
        "sockets": {port: sockets(lab, node, port) for port in ports},
    }


def differences(before: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What is not the same, down to single settings and links."""
    found: dict[str, tuple[Any, Any]] = {}
    for part, was in before.items():
        if isinstance(was, dict):
            for name in sorted({*map(str, was), *map(str, now[part])}):
                old = {str(key): value for key, value in was.items()}.get(name)
                new = {str(key): value for key, value in now[part].items()}.get(name)
                if old != new:
                    found[f"{part}.{name}"] = (old, new)
        elif was != now[part]:
            found[part] = (was, now[part])
    return found
