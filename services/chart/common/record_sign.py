"""Signing of the records that a process of a node writes: the nodes' side of `record_mac`, for programs in Python.

The key is the node's stream key, the same that its agent signs with: asked of the authority with the node's
certificate, renewed before it ends, in memory only. Without a key nothing of the node is written: what waits is tried
again by whoever writes it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import structlog
from prometheus_client import Gauge

from chart.common import record_mac
from chart.common.clock import Clock
from chart.common.records import StreamUnavailable

# A rotated key is known, a revoked node stops writing, within this time.
ASK_EVERY_S = 5.0
SOONEST_S = 0.2
AFTER_A_FAILURE_S = 1.0

HELD = Gauge(
    "chart_node_record_key_valid", "1 while this process holds a key to sign the node's records with", ["node"]
)

_log = structlog.get_logger("chart.streams")


class Authority(Protocol):
    """What is asked (`authority_calls`)."""

    async def get(self, path: str) -> Any:
        """The answer's JSON. Raises httpx.HTTPError or OSError."""
        ...

    async def words(self, error: Exception) -> str:
        """Why a call failed, for people."""
        ...


@dataclass(frozen=True)
class StreamKey:
    """One epoch of a node's stream key; times are of this machine's clock, microseconds since the epoch."""

    epoch: int
    generation: int
    key: bytes
    sign_from_us: int
    expires_at_us: int


def keys_of(answer: dict[str, Any], now_us: int) -> list[StreamKey]:
    """The epochs in an answer of ``GET /v1/stream-keys/{node}`` that came at ``now_us``; times of the authority are
    moved by the difference of the clocks.

    Raises:
        ValueError, KeyError: it is none.
    """
    ahead_us = int(answer["now_us"]) - now_us
    return [
        StreamKey(
            epoch=int(one["epoch"]),
            generation=int(one["generation"]),
            key=base64.b64decode(one["key"], validate=True),
            sign_from_us=int(one["sign_from_us"]) - ahead_us,
            expires_at_us=int(one["expires_at_us"]) - ahead_us,
        )
        for one in answer["epochs"]
    ]


class RecordSigner:
    """Holds the key and makes headers. ``told``: called when a key is there after there was none."""

    def __init__(self, node: str, calls: Authority, clock: Clock, told: Callable[[], object] = lambda: None) -> None:
        self._node = node
        self._calls = calls
        self._clock = clock
        self._told = told
        self._keys: list[StreamKey] = []
        self._error = "the authority was not asked yet"

    def header(self, topic: str, record_key: str, payload: bytes | None) -> str | None:
        """The value of the header `record_mac.HEADER`; None: nodes do not write this stream.

        Raises:
            StreamUnavailable: there is no key now.
        """
        if topic not in record_mac.NODE_WRITTEN:
            return None
        key = self._signing()
        if key is None:
            msg = f"records of {self._node} wait for the node's key: {self._error}"
            raise StreamUnavailable(msg)
        return record_mac.header(self._node, key.epoch, key.key, topic, record_key, payload or b"")

    @property
    def signs(self) -> bool:
        """Whether there is a key now."""
        return self._signing() is not None

    def _signing(self) -> StreamKey | None:
        now_us = self._clock.now_us()
        good = [one for one in self._keys if one.sign_from_us <= now_us < one.expires_at_us]
        return max(good, key=lambda one: one.generation, default=None)

    async def run(self) -> None:
        """Keep a key until cancelled."""
        while True:
            try:
                renew_at_us = await self._ask()
            except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
                await self._note_failure(error)
                pause_s = AFTER_A_FAILURE_S
            else:
                pause_s = min(ASK_EVERY_S, max(SOONEST_S, (renew_at_us - self._clock.now_us()) / 1e6))
            HELD.labels(node=self._node).set(self.signs)
            await self._clock.sleep(pause_s)

    async def _ask(self) -> int:
        """Ask once; returns when the next epoch is due (this machine's clock)."""
        answer = await self._calls.get(f"/v1/stream-keys/{self._node}")
        now_us, signed = self._clock.now_us(), self.signs
        self._keys = keys_of(answer, now_us)
        self._error = "its key has ended"
        if self.signs and not signed:
            _log.info("records of the node are signed", node=self._node)
            self._told()
        return int(answer["renew_at_us"]) - (int(answer["now_us"]) - now_us)

    async def _note_failure(self, error: Exception) -> None:
        if isinstance(error, httpx.HTTPStatusError) and error.response.status_code in (403, 404):
            # Revoked, or enrolled no more: what this node holds is worth nothing any more.
            self._keys = []
        words = await self._calls.words(error)
        if words != self._error:
            _log.warning("the key of the node's records cannot be had", node=self._node, reason=words)
        self._error = words
