"""Requests made one after the other while something happens to the platform, as an application makes them: with keys
of their own, so that a call that nobody heard the end of is made again.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from types import TracebackType

import httpx

PAUSE_S = 0.3
LIVE = 20
BODY = {"source": "alpha", "destination": "bravo", "protocol": "tcp", "guaranteed_bps": 100_000}


class Load:
    """A thread that asks, and gives back what is older than the newest ``LIVE``."""

    def __init__(self, gateway: Callable[[], str], token: Callable[[], str]) -> None:
        self._gateway, self._token = gateway, token
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._acknowledged: list[str] = []

    @property
    def made(self) -> int:
        """Requests that were acknowledged."""
        return len(self._acknowledged)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        port = 10_000
        while not self._stop.is_set():
            port += 1
            key = str(uuid.uuid4())
            body = {**BODY, "destination_port": port}
            while not self._stop.is_set():
                with contextlib.suppress(httpx.HTTPError, OSError, RuntimeError, LookupError, ValueError):
                    if self._once(body, key):
                        break
                time.sleep(PAUSE_S)
            time.sleep(PAUSE_S)

    def _client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self._token()}"}
        return httpx.Client(base_url=self._gateway(), headers=headers, timeout=5)

    def _once(self, body: dict[str, object], key: str) -> bool:
        with self._client() as client:
            answer = client.post("/v1/rate-requests", json=body, headers={"Idempotency-Key": key})
            if answer.status_code != 201:
                return False
            self._acknowledged.append(answer.json()["id"])
            if len(self._acknowledged) > LIVE:
                client.post(f"/v1/rate-requests/{self._acknowledged[-LIVE - 1]}/release")
        return True

    def lost(self) -> list[str]:
        """Acknowledged requests that are not there any more, or ended though nobody ended them."""
        lost = []
        with self._client() as client:
            for number, identity in enumerate(self._acknowledged):
                answer = client.get(f"/v1/rate-requests/{identity}")
                live = number >= len(self._acknowledged) - LIVE
                if answer.status_code != 200 or (live and answer.json()["lifecycle"] != "ACTIVE"):
                    lost.append(identity)
        return lost
