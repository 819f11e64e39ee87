"""Records of nodes that are not authentic are dropped: the consumers' side of `record_mac`.

``CHART_RECORD_AUTHENTICATION``: off (one machine), observe (counts and logs, takes everything), require (what fails is
a dead letter). Keys come from the authority with the certificate of ``service/records``, one node at a time, and are
held until they end, or until the authority names their node no more (it was revoked). Who is revoked is read every
``REVIEW_EVERY_S``; what was read last holds for ``REVIEW_HOLDS_S`` without a word. When the authority does not answer
for longer, the keys that are held go on until they end, and a log line, a metric and an alert say that revocations are
not known.
"""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections import Counter as Tally
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import httpx
import structlog
from google.protobuf.message import Message
from prometheus_client import Counter, Gauge

from chart.common import record_mac
from chart.common.authority_calls import AuthorityCalls
from chart.common.counters import from_zero
from chart.common.record_mac import RecordMacError
from chart.common.service_identity import ServiceIdentity
from chart.common.settings import BaseServiceSettings

# An epoch that is not known is asked for once in so long on average, and at most so often in a row, for each node.
ASK_EVERY_S = 1.0
ASK_IN_A_ROW = 4
# Pause after each call that failed: a connection that the authority closed is no reason to refuse a record.
ASK_AGAIN_S = (0.1, 0.0)
# Nodes that were revoked are believed no more after this.
REVIEW_EVERY_S = 3.0
# When that could not be read: again after twice as long each time, at most this; a quarter of it is left to chance.
REVIEW_AGAIN_MAX_S = 12.0
# So long what was read last is good enough: a busy authority misses a few answers.
REVIEW_HOLDS_S = 30.0
# A word of a record that is shown to people is cut at this length.
WORD_MAX = 200

CHECKED = Counter("chart_streams_record_checks_total", "Records of nodes checked", ["topic", "result"])
REFUSED = Counter("chart_streams_record_refusals_total", "Records of nodes that are not authentic", ["topic", "reason"])
UNKNOWN = Gauge(
    "chart_streams_revocations_unknown_ratio",
    "1: the authority has not answered for so long that it is not known which nodes are revoked",
)

_log = structlog.get_logger("chart.streams")


def review_pause_s(failures: int, chance: float) -> float:
    """Seconds until who is revoked is read again, after so many failures in a row; ``chance``: 0 to 1."""
    if not failures:
        return REVIEW_EVERY_S
    return min(REVIEW_AGAIN_MAX_S, REVIEW_EVERY_S * 2.0 ** min(failures, 10)) * (0.75 + chance / 4)


class KeySource(Protocol):
    """Where the keys of a node's records come from."""

    async def keys(self, node: str) -> dict[int, tuple[bytes, int]]:
        """Key and end (microseconds since the epoch) by epoch octet. Raises OSError or httpx.HTTPError."""
        ...

    async def enrolled(self) -> frozenset[str]:
        """Names of the nodes that are enrolled and not revoked. Raises as `keys`."""
        ...

    async def close(self) -> None:
        """Let go of what was opened."""
        ...


class AuthorityKeys:
    """Keys from the authority."""

    def __init__(self, settings: BaseServiceSettings) -> None:
        self._identity = ServiceIdentity(settings, "service/records", settings.record_identity)
        self._calls = AuthorityCalls(
            settings.authority_url, self._identity.ca, self._identity.certificate.with_suffix("")
        )

    async def keys(self, node: str) -> dict[int, tuple[bytes, int]]:
        """Key and end (microseconds since the epoch) by epoch octet. Raises OSError or httpx.HTTPError."""
        found = await self._get(f"/v1/stream-keys/{node}")
        return {one["epoch"]: (base64.b64decode(one["key"]), one["expires_at_us"]) for one in found["epochs"]}

    async def enrolled(self) -> frozenset[str]:
        """Names of the nodes that are enrolled and not revoked. Raises as `keys`."""
        return frozenset(await self._get("/v1/elements"))

    async def close(self) -> None:
        """Close the connections."""
        await self._calls.close()

    async def _get(self, path: str) -> Any:
        await self._identity.ready()
        return await self._calls.get(path)


@dataclass(frozen=True)
class RefusedRecord:
    """A record that is not authentic, as people see it. ``node``: in whose name it was written, "" when it says none;
    ``at_us``: when it was read, microseconds since the epoch.
    """

    at_us: int
    topic: str
    key: str
    node: str
    reason: record_mac.Reason
    detail: str


@dataclass
class RecordCheck:
    """Decides whether a record of a node is taken."""

    source: KeySource
    mode: Literal["observe", "require"]
    _keys: dict[str, dict[int, tuple[bytes, int]]] = field(default_factory=dict)
    # When each node's keys were asked for last, the oldest first, and the calls that are under way.
    _asked_at: dict[str, deque[float]] = field(default_factory=dict)
    _asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    # When it is read next who is revoked, when it was read last, and how often in a row it could not be since.
    _review_at: float = field(default_factory=lambda: time.monotonic() + REVIEW_EVERY_S)
    _known_at: float = field(default_factory=time.monotonic)
    _failures: int = 0
    _known: bool = True
    _review: asyncio.Task[None] | None = None
    # Since this process began: good ones by topic, refused ones by topic and reason, and the newest of each of these.
    since_us: int = field(default_factory=lambda: time.time_ns() // 1000)
    good: Tally[str] = field(default_factory=Tally)
    refused: Tally[tuple[str, record_mac.Reason]] = field(default_factory=Tally)
    newest: dict[tuple[str, record_mac.Reason], RefusedRecord] = field(default_factory=dict)

    async def check(
        self, topic: str, key: str, payload: bytes | None, headers: Mapping[str, str], value: Message | None = None
    ) -> None:
        """Return when the record may be taken. Who gives up may check the same record again: the call for its key goes
        on, and the answer is kept.

        Raises:
            RecordMacError: it is not authentic, or that cannot be known now; in mode require only.
        """
        node = record_mac.node_of(topic, key, value)
        if node is None:
            return
        try:
            await self._check(node, topic, key, payload, headers)
            record_mac.check_contents(topic, key, value)
        except RecordMacError as error:
            self._note(topic, key, node, error)
            if self.mode == "require":
                raise
            _log.warning("a record of a node is not authentic", topic=topic, key=key, reason=str(error))
        else:
            CHECKED.labels(topic, "good").inc()
            self.good[topic] += 1

    async def close(self) -> None:
        """Nothing is checked any more."""
        for task in (self._review, *self._asking.values()):
            if task is not None:
                task.cancel()
        await self.source.close()

    def _note(self, topic: str, key: str, node: str, error: RecordMacError) -> None:
        CHECKED.labels(topic, "refused").inc()
        REFUSED.labels(topic, error.reason).inc()
        self.refused[topic, error.reason] += 1
        words = [one[:WORD_MAX] for one in (key, node, str(error))]
        at_us = time.time_ns() // 1000
        self.newest[topic, error.reason] = RefusedRecord(at_us, topic, words[0], words[1], error.reason, words[2])

    async def _check(self, node: str, topic: str, key: str, payload: bytes | None, headers: Mapping[str, str]) -> None:
        if record_mac.HEADER not in headers:
            raise RecordMacError("unsigned", "the record carries no code of its node")
        mac = record_mac.parse(headers[record_mac.HEADER])
        # A name that is not the record's is no reason to ask for its keys.
        held = await self._key(mac) if mac.node == node else None
        record_mac.check(mac, held, node, topic, key, payload or b"")

    async def _key(self, mac: record_mac.Mac) -> bytes | None:
        if time.monotonic() > self._review_at and (self._review is None or self._review.done()):
            # Beside the records: none of them waits for an authority that is slow.
            self._review = asyncio.create_task(self._drop_revoked())
        found = self._held(mac)
        if found is None and (asking := self._call_for(mac.node)) is not None:
            # A record that comes while its key is asked for waits for the answer.
            await asyncio.shield(asking)
            found = self._held(mac)
        return found

    def _call_for(self, node: str) -> asyncio.Task[None] | None:
        """The call for a node's keys; None: there were too many lately."""
        if node in self._asking:
            return self._asking[node]
        if len(self._asked_at) > 100_000:
            self._asked_at.clear()
        lately = self._asked_at.setdefault(node, deque(maxlen=ASK_IN_A_ROW))
        now = time.monotonic()
        if len(lately) == ASK_IN_A_ROW and now - lately[0] < ASK_IN_A_ROW * ASK_EVERY_S:
            return None
        lately.append(now)
        asking = self._asking[node] = asyncio.create_task(self._ask(node))
        asking.add_done_callback(lambda _: self._asking.pop(node, None))
        return asking

    async def _drop_revoked(self) -> None:
        try:
            enrolled = await self.source.enrolled()
        except (httpx.HTTPError, OSError, ValueError) as error:
            self._failures += 1
            chance = random.random()  # noqa: S311 - spreads replicas, no secret
            self._review_at = time.monotonic() + review_pause_s(self._failures, chance)
            self._say_known(type(error).__name__)
            return
        self._failures, self._known_at = 0, time.monotonic()
        self._review_at = time.monotonic() + review_pause_s(0, 0)
        self._say_known("")
        for node in self._keys.keys() - enrolled:
            del self._keys[node]
            _log.warning("a node is enrolled no more, its records are refused", node=node)

    @property
    def revocations_known(self) -> bool:
        """Whether it was read lately who is revoked."""
        return time.monotonic() - self._known_at <= REVIEW_HOLDS_S or not self._failures

    def _say_known(self, reason: str) -> None:
        """Once when it is not known any more, and once when it is again."""
        if self.revocations_known == self._known:
            return
        self._known = self.revocations_known
        UNKNOWN.set(not self._known)
        if self._known:
            _log.info("it is known again which nodes are revoked")
        else:
            age_s = round(time.monotonic() - self._known_at)
            _log.warning("it is not known which nodes are revoked", reason=reason, last_known_s=age_s)

    def _held(self, mac: record_mac.Mac) -> bytes | None:
        key, until_us = self._keys.get(mac.node, {}).get(mac.epoch, (None, 0))
        return key if until_us > time.time_ns() // 1000 else None

    async def _ask(self, node: str) -> None:
        for pause_s in ASK_AGAIN_S:
            try:
                self._keys[node] = await self.source.keys(node)
            except (httpx.HTTPError, OSError, ValueError, KeyError) as error:
                _log.warning("keys of records cannot be had", node=node, reason=type(error).__name__)
                await asyncio.sleep(pause_s)
            else:
                return


def from_settings(settings: BaseServiceSettings) -> RecordCheck | None:
    """The check that the settings ask for; None: everything is taken."""
    if settings.record_authentication == "off":
        return None
    from_zero(REFUSED, record_mac.NODE_WRITTEN, get_args(record_mac.Reason))
    return RecordCheck(AuthorityKeys(settings), settings.record_authentication)
