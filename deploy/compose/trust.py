"""What the compose test asks of trust: nodes enrol by one-time tokens, signal in band, and prove their records; records
in their name that somebody else writes are refused; a token is good once, and the agent says so.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import httpx
from confluent_kafka import Producer

from chart.common import record_mac
from chart.v1 import link_load_pb2
from chart_lab.demo_trust import READERS, TOPIC, Checks, authenticated_share, parse_checks

SETTLE_LIMIT_S = 90.0
OBSERVED_S = 5.0
FORGED_OF_EACH_KIND = 25
STATE_DIR = "/var/lib/chart"


class TrustError(RuntimeError):
    """What is wrong with enrolment or with the check of records."""


class Installed(Protocol):
    """A platform of docker-compose.yml."""

    @property
    def bootstrap(self) -> str:
        """Where nodes reach the broker."""
        ...

    def compose(self, *arguments: str, limit_s: float = ...) -> str:
        """What `docker compose` prints."""
        ...

    def enrol(self, node: str) -> None:
        """`deploy/compose/enrol` for a node of the test."""
        ...

    def address(self, service: str) -> str:
        """Where a service's container is in the network of the platform."""
        ...


def _until(done: Callable[[], str | None], limit_s: float = SETTLE_LIMIT_S) -> None:
    """Return when ``done`` has no complaint any more.

    Raises:
        TrustError: the last complaint.
    """
    end = time.monotonic() + limit_s
    while complaint := done():
        if time.monotonic() > end:
            msg = f"after {limit_s:.0f} s: {complaint}"
            raise TrustError(msg)
        time.sleep(0.5)


def status(installed: Installed, node: str) -> dict[str, Any]:
    """What an agent says of itself; empty when it does not answer."""
    command = ("exec", "-T", f"node-{node}", "chart-agent", "--status", "--json", "--state-dir", STATE_DIR)
    try:
        found: dict[str, Any] = json.loads(installed.compose(*command, limit_s=60))
    except (RuntimeError, ValueError):
        return {}
    return found


def _missing(told: dict[str, Any]) -> str | None:
    """Why a node is not wholly enrolled; None: it is, with keys for its neighbours, and signals in band."""
    authority, signalling = told.get("authority", {}), told.get("signalling", {})
    if not authority.get("enrolled") or not authority.get("records_signed"):
        return f"is not enrolled: {authority.get('error') or 'its agent does not say why'}"
    if not authority.get("keys"):
        return "has no keys for its neighbours"
    if not signalling.get("running"):
        return f"does not signal in band: {signalling.get('error') or 'its agent does not say why'}"
    return None


def enrol(installed: Installed, nodes: Iterable[str]) -> None:
    """Enrol nodes as docs/install.md does, and wait for what comes of it.

    Raises:
        TrustError: a node is not enrolled in time; with its agent's words.
    """
    for node in nodes:
        installed.enrol(node)
    wait_enrolled(installed, nodes)


def wait_enrolled(installed: Installed, nodes: Iterable[str]) -> None:
    """Until nodes are enrolled, hold keys and signal in band.

    Raises:
        TrustError: one does not; with its agent's words.
    """
    for node in nodes:

        def complaint(node: str = node) -> str | None:
            found = _missing(status(installed, node))
            return f"{node} {found}" if found else None

        _until(complaint)


def _checks(installed: Installed) -> dict[str, Checks]:
    found = {}
    for name in READERS:
        answer = httpx.get(f"http://{installed.address(name)}:8080/metrics", timeout=10)
        found[name] = parse_checks(answer.raise_for_status().text)
    return found


def _forgeries(node: str, link: str) -> Iterable[tuple[bytes, str | None]]:
    """Loads of a node's link that it did not write: value and code."""
    for _ in range(FORGED_OF_EACH_KIND):
        load = link_load_pb2.LinkLoadReport(node=node, interval_end_us=time.time_ns() // 1000, interval_us=100_000)
        load.links.add(link_id=link, sent_bytes=secrets.randbelow(10**9))
        value = load.SerializeToString()
        yield value, None
        yield value, "junk"
        yield value, record_mac.header(node, 1, secrets.token_bytes(32), TOPIC, node, value)


def _stolen(installed: Installed, node: str, folder: Path) -> dict[str, str]:
    """How the broker is spoken to with what the agent of a node keeps."""
    files = {
        "ssl.ca.location": "/etc/chart/enrolment/authority-ca.pem",
        "ssl.certificate.location": f"{STATE_DIR}/node.pem",
        "ssl.key.location": f"{STATE_DIR}/node.key",
    }
    told = {"bootstrap.servers": installed.bootstrap, "security.protocol": "ssl"}
    for name, file in files.items():
        own = folder / Path(file).name
        own.write_text(installed.compose("exec", "-T", f"node-{node}", "cat", file, limit_s=60))
        told[name] = str(own)
    return told


def forge(installed: Installed, node: str, link: str) -> tuple[int, int]:
    """Write records in a node's name; how many, and how many of them a service took at most.

    Raises:
        TrustError: the broker did not take them.
    """
    before = _checks(installed)
    tried = 0
    with tempfile.TemporaryDirectory(prefix="chart-forge-") as folder:
        producer = Producer({**_stolen(installed, node, Path(folder)), "log_level": 0})
    for value, code in _forgeries(node, link):
        headers: list[tuple[str, str | bytes | None]] = [("type", b"chart.v1.LinkLoadReport")]
        if code is not None:
            headers.append((record_mac.HEADER, code.encode()))
        producer.produce(TOPIC, value, key=node, headers=headers)
        tried += 1
    if producer.flush(20):
        msg = "the broker does not take the records that services shall refuse"
        raise TrustError(msg)
    end = time.monotonic() + 15
    while True:
        after = _checks(installed)
        refused = min(after[name].refused_loads - before[name].refused_loads for name in READERS)
        if refused >= tried or time.monotonic() > end:
            return tried, max(0, tried - round(refused))
        time.sleep(0.2)


def share_enrolled(rest: httpx.Client, nodes: tuple[str, ...]) -> float:
    """Which part of the nodes the authority says to be enrolled."""
    found = rest.get("/v1/identities").raise_for_status().json()["items"]
    enrolled = {one["identity"] for one in found if one["state"] == "enrolled"}
    return sum(f"node/{node}" in enrolled for node in nodes) / len(nodes)


def figures(installed: Installed, rest: httpx.Client, nodes: tuple[str, ...]) -> dict[str, tuple[float, str, str]]:
    """Value, unit and goal by name.

    Raises:
        TrustError: nothing was checked.
    """
    before = _checks(installed)
    time.sleep(OBSERVED_S)
    share = authenticated_share(before, _checks(installed))
    if share is None:
        msg = "no service checked a record of a node: is CHART_RECORD_AUTHENTICATION on?"
        raise TrustError(msg)
    tried, accepted = forge(installed, nodes[0], f"{nodes[0]}:eth0")
    return {
        "nodes_enrolled_share": (share_enrolled(rest, nodes), "ratio", "= 1"),
        "authenticated_record_share": (share, "ratio", "= 1"),
        "forged_records_tried": (tried, "records", ">= 75"),
        "forged_records_accepted": (accepted, "records", "= 0"),
    }


def tokens_are_good_once(installed: Installed, kept: str, lost: str) -> None:
    """Agents begin again beside tokens that they used: ``kept`` has its certificate still, ``lost`` does not and says
    what is wrong until it gets another token.

    Raises:
        TrustError: it is otherwise.
    """
    for node in (kept, lost):
        installed.compose("stop", f"pod-{node}", f"node-{node}")
    files = (f"{STATE_DIR}/node.pem", f"{STATE_DIR}/node.key")
    installed.compose("run", "--rm", "--no-deps", "-T", f"node-{lost}", "rm", *files)
    for node in (kept, lost):
        installed.compose("up", "-d", "--no-deps", f"node-{node}")
        installed.compose("up", "-d", "--no-deps", "--force-recreate", f"pod-{node}")
    wait_enrolled(installed, [kept])

    def complaint() -> str | None:
        words = status(installed, lost).get("authority", {}).get("error", "")
        said = "enrolled node/" in words and words in installed.compose("logs", f"node-{lost}", limit_s=60)
        return None if said else f"{lost} lost its certificate, came with a used token and says {words!r}"

    _until(complaint)
    enrol(installed, [lost])
