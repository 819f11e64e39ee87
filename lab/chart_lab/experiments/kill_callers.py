"""Callers of `kill-matrix`: applications that request, change, commit and release rates, repeat what got no answer
with the same key, and remember what they were told.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx

# What one caller has at once, and how long it waits between two things that it does.
MOST_LIVE = 10
PAUSE_S = (0.05, 0.25)
ATTEMPT_LIMIT_S = 60.0
AGAIN_S = 0.2


@dataclass
class Promise:
    """What a caller knows of one request."""

    request_id: str
    granted_bps: int
    # When it ends by itself, seconds since the epoch; None: never.
    end_s: float | None
    # A change or release was asked for and its answer is not known, or it was given back.
    open: bool = False


@dataclass
class Told:
    """What all callers together know."""

    promises: dict[str, Promise] = field(default_factory=dict)
    answered: int = 0
    repeated: int = 0
    refused: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    # Answers that no fault excuses.
    wrong: list[str] = field(default_factory=list)


class Caller(threading.Thread):
    """One application."""

    def __init__(self, url: str, token: str, number: int, seed: int, told: Told) -> None:
        super().__init__(daemon=True, name=f"caller {number}")
        self._chance = random.Random(f"{seed}/{number}")  # noqa: S311 - reproducible
        self._told = told
        self._ending = threading.Event()
        self._client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=5)
        self._mine: list[str] = []

    def end(self) -> None:
        """Stop asking."""
        self._ending.set()

    def run(self) -> None:
        """Act until ended."""
        with self._client:
            while not self._ending.wait(self._chance.uniform(*PAUSE_S)):
                draw = self._chance.random()
                if len(self._mine) < MOST_LIVE and (not self._mine or draw < 0.55):
                    self._ask()
                elif draw < 0.7:
                    self._change(self._chance.choice(self._mine))
                else:
                    self._release(self._mine.pop(self._chance.randrange(len(self._mine))))

    def _ask(self) -> None:
        chance, key = self._chance, str(uuid.uuid4())
        source, destination = chance.sample(("alpha", "bravo", "charlie", "delta"), 2)
        hold = chance.random() < 0.15
        body: dict[str, Any] = {
            "source": source,
            "destination": destination,
            "protocol": "tcp",
            "destination_port": chance.randrange(20_000, 60_000),
            "service": "guaranteed",
            "guaranteed_bps": chance.randrange(1, 10) * 100_000,
            "hold": hold,
            "tags": {"ask": key},
        }
        end_s = None
        if chance.random() < 0.3:
            body["duration_s"] = chance.randrange(20, 120)
            end_s = time.time() + body["duration_s"]
        if chance.random() < 0.2 and end_s is not None:
            # The interval begins later by so much: rounded up to be on the safe side of the clock.
            body["start"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 15))
            end_s += 16
        answer = self._until_answered("POST", "/v1/rate-requests", body, {"Idempotency-Key": key})
        if answer is None or not self._is("ask", answer, 201):
            return
        made = answer.json()
        promise = Promise(made["id"], made["granted_bps"], end_s)
        self._told.promises[made["id"]] = promise
        self._mine.append(made["id"])
        if hold:
            promise.open = True
            answer = self._until_answered("POST", f"/v1/rate-requests/{made['id']}/commit", headers=_key())
            promise.open = answer is None or not self._is("commit", answer, 200, 404, 409)

    def _change(self, request_id: str) -> None:
        promise = self._told.promises[request_id]
        if promise.end_s is not None:
            return
        promise.open = True
        body = {"guaranteed_bps": self._chance.randrange(1, 10) * 100_000}
        answer = self._until_answered("PATCH", f"/v1/rate-requests/{request_id}", body)
        if answer is not None and self._is("change", answer, 200, 409):
            if answer.status_code == 200:
                promise.granted_bps = answer.json()["granted_bps"]
            promise.open = False

    def _release(self, request_id: str) -> None:
        self._told.promises[request_id].open = True
        answer = self._until_answered("POST", f"/v1/rate-requests/{request_id}/release", headers=_key())
        if answer is not None:
            self._is("release", answer, 200, 404, 409)

    def _is(self, what: str, answer: httpx.Response, *expected: int) -> bool:
        """Whether it is an answer as it should be; a refusal for want of capacity is one, too. But the network is there
        all the time, whoever of those who tell of it was killed.
        """
        if answer.status_code in expected:
            return True
        refused = answer.status_code == 409 and "problem:no-path" not in answer.text
        kept = self._told.refused if refused else self._told.wrong
        kept.append(f"{what}: {answer.status_code} {answer.text[:300]}")
        return False

    def _until_answered(
        self, method: str, path: str, body: dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response | None:
        """Ask until somebody answers; None when nobody did within a minute."""
        end = time.monotonic() + ATTEMPT_LIMIT_S
        while time.monotonic() < end:
            try:
                answer = self._client.request(method, path, json=body, headers=headers)
            except httpx.HTTPError:
                answer = None
            if answer is not None and answer.status_code not in (429, 500, 502, 503, 504) and not _under_way(answer):
                self._told.answered += 1
                return answer
            if answer is not None and answer.status_code == 500:
                self._told.wrong.append(f"{method} {path}: 500 {answer.text[:300]}")
            self._told.repeated += 1
            time.sleep(self._chance.uniform(AGAIN_S, 2 * AGAIN_S))
        self._told.unanswered.append(f"{method} {path}")
        return None


def _key() -> dict[str, str]:
    return {"Idempotency-Key": str(uuid.uuid4())}


def _under_way(answer: httpx.Response) -> bool:
    """Whether the first call with this key has not ended, as far as the platform knows."""
    return answer.status_code == 409 and "retry-after" in answer.headers
