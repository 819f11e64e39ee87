"""The step to another version of the platform while requests are posted and released and a path is measured."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
from installation import (
    ANSWER_LIMIT_S,
    NODES,
    SETTLE_LIMIT_S,
    UPGRADED,
    ComposeTestError,
    Installation,
    address_of,
    put,
    say,
)

LOAD_PERIOD_S = 0.2
STANDING_MAX = 100
LOAD_BPS = 100_000
MEASURED_EVERY_MS = 500
# What a pod has stored; its file outlives the container.
POD_COUNTS = (
    "import sqlite3; file = sqlite3.connect('/var/lib/chart/sensor-pod.sqlite');"
    "print(file.execute('SELECT count(*) FROM measurement').fetchone()[0])"
)


class Load:
    """An application that goes on asking for small rates, and gives the oldest back: an agent has room for 256 grants.

    Repeats what was not answered, under the same key.
    """

    def __init__(self, rest: httpx.Client) -> None:
        self._rest = rest
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: list[str] = []
        self.released: list[str] = []
        self.releasing: list[str] = []
        self.refused: list[str] = []
        self.unanswered = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=ANSWER_LIMIT_S)

    def _run(self) -> None:
        number = 0
        key = secrets.token_hex(8)
        while not self._stop.wait(LOAD_PERIOD_S):
            body = {
                "source": NODES[0], "destination": NODES[1],
                "protocol": "tcp", "destination_port": 6000 + number % 20_000,
                "service": "variable", "guaranteed_bps": LOAD_BPS, "description": "load of the upgrade",
            }  # fmt: skip
            made = self._post("/v1/rate-requests", body, key)
            if made is not None:
                number += 1
                key = secrets.token_hex(8)
                if made:
                    self.acknowledged.append(made)
            if len(self.acknowledged) - len(self.released) > STANDING_MAX:
                oldest = self.acknowledged[len(self.released)]
                self.releasing = [oldest]
                if self._post(f"/v1/rate-requests/{oldest}/release", {}, oldest):
                    self.released.append(oldest)
                    self.releasing = []

    def _post(self, path: str, body: dict[str, Any], key: str) -> str | None:
        """The id of the request that was answered; empty when it was refused, None when it has to be repeated."""
        try:
            answer = self._rest.post(path, json=body, headers={"Idempotency-Key": key}, timeout=10)
        except httpx.HTTPError:
            self.unanswered += 1
            return None
        if answer.status_code in (429, 500, 502, 503, 504):
            self.unanswered += 1
            return None
        if answer.is_error:
            self.refused.append(answer.text)
            return ""
        return str(answer.json()["id"])


def kept(rest: httpx.Client, identity: str, *, released: bool | None) -> bool:
    """Whether a request is there as it was acknowledged last: standing, or given back; None: either.

    Raises:
        httpx.HTTPStatusError: the answer says neither yes nor no.
    """
    answer = rest.get(f"/v1/rate-requests/{identity}")
    if answer.status_code == 404:
        return False
    found = answer.raise_for_status().json()["lifecycle"] == "RELEASED"
    return released is None or found == released


class Measuring:
    """The path from the first node to the second, measured by its pod from now on."""

    NAME = "upgrade"

    def __init__(self, rest: httpx.Client, installation: Installation) -> None:
        self._rest, self._installation = rest, installation
        source, destination = NODES
        body = {
            "source_node": source, "destination_node": destination,
            "destination_address": address_of(installation, destination),
            "sensor": "ping", "parameters": {"count": "1"}, "period_ms": MEASURED_EVERY_MS,
        }  # fmt: skip
        put(rest, f"/v1/sensing-configurations/{self.NAME}", body)
        self._wait(lambda: self.archived(" AND error = ''") > 0, "no measurement of the path reached the archive")

    def taken(self) -> int:
        """Results that the pod has stored."""
        return int(self._installation.compose("exec", "-T", f"pod-{NODES[0]}", "python3", "-c", POD_COUNTS, limit_s=60))

    def archived(self, condition: str = "") -> int:
        """Those of them that the archive has; failures to measure are results as well."""
        question = f"SELECT count(*) FROM archiver.measurement WHERE source = '{NODES[0]}'{condition}"  # noqa: S608
        command = ("exec", "-T", "database", "psql", "-U", "chart", "-d", "chart", "-Atc", question)
        return int(self._installation.compose(*command, limit_s=60))

    def lost(self) -> int:
        """End it; how many results were taken and are not in the archive when everything has settled."""
        self._rest.delete(f"/v1/sensing-configurations/{self.NAME}").raise_for_status()
        seen = -1

        def settled() -> bool:
            nonlocal seen
            seen, before = self.taken(), seen
            return seen == before and self.archived() >= seen

        with contextlib.suppress(ComposeTestError):
            self._wait(settled, "they do not come")
        archived = self.archived()
        say(f"{seen} measurements were taken, {archived} are archived")
        return max(0, seen - archived)

    def _wait(self, done: Callable[[], bool], complaint: str) -> None:
        end = time.monotonic() + SETTLE_LIMIT_S
        while not done():
            if time.monotonic() > end:
                raise ComposeTestError(complaint)
            time.sleep(1)


def upgrade(installation: Installation, rest: httpx.Client, following: str) -> tuple[int, int]:
    """Replace every service and agent by the version `following`; what is lost: acknowledged requests, measurements.

    Raises:
        ComposeTestError: a service does not come back, or no request was acknowledged.
    """
    say(f"from {installation.tag} to {following}")
    measuring = Measuring(rest, installation)
    installation.use(following)
    with Load(rest) as load:
        for job in ("topics", "migrate"):
            installation.compose("up", "--no-deps", "--exit-code-from", job, job)
        # A pod lives in the network namespace of its node's agent: both are replaced, first the agent.
        for service in (*UPGRADED, *(f"{kind}-{node}" for node in NODES for kind in ("node", "pod"))):
            started = time.monotonic()
            installation.compose("up", "-d", "--no-deps", service)
            installation.wait_healthy(service)
            image = installation.inspect(service)["Config"]["Image"]
            if not image.endswith(f":{following}"):
                msg = f"{service} runs {image} after its upgrade"
                raise ComposeTestError(msg)
            say(f"{service} was replaced in {time.monotonic() - started:.0f} s")
    if load.refused or not load.acknowledged:
        msg = f"{len(load.acknowledged)} requests were acknowledged, {len(load.refused)} refused: {load.refused[:1]}"
        raise ComposeTestError(msg)
    # A release that was not answered when the load ended may have happened.
    expected: dict[str, bool | None] = dict.fromkeys(load.acknowledged, False)
    expected |= dict.fromkeys(load.released, True) | dict.fromkeys(load.releasing)
    lost = [one for one, released in expected.items() if not kept(rest, one, released=released)]
    say(
        f"{len(load.acknowledged)} requests were acknowledged during the upgrade and {len(load.released)} released, "
        f"{len(lost)} of them are lost; {load.unanswered} calls were repeated"
    )
    return len(lost), measuring.lost()
