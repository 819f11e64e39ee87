"""The event stream: server-sent events (WHATWG HTML, section 9.2) of everything live, in one connection.

Ids are "<start of this gateway>-<number>". A client that comes back with Last-Event-ID gets what it missed from a
bounded ring; when the ring does not reach back that far, or another gateway answers, it gets `resync` and should fetch
its lists anew. A client that does not read fast enough is disconnected with `closed`, and counted.

What every link says all the time is coalesced: of each link only the newest goes out, and the links take turns within
the interval, so that neither this process nor a browser has everything to do at one moment. A client may have it
`together`: one event whose data is a list, since thousands of small events cost a browser more than what they say.
"""

from __future__ import annotations

import asyncio
import functools
import json
import zlib
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import Counter, Gauge

from chart.common.clock import Clock
from chart.gateway.live import Change, Late

NAMES = ("link-load", "link-rate", "node-state", "measurement", "grant-status", "rate-request", "topology", "policy")

# The coalescing interval is cut into so many turns.
TURNS = 4
# Longest list of one event that carries several: what a browser takes in without a pause that one would notice.
TOGETHER_MAX = 500

_encode = json.JSONEncoder(separators=(",", ":")).encode

CLIENTS = Gauge("chart_gateway_event_clients", "Open event streams.")
EVENTS = Counter("chart_gateway_events_total", "Events published.", ["name"])
SLOW_CLIENTS = Counter("chart_gateway_slow_event_clients_total", "Event streams ended because the client was too slow.")


class Event(NamedTuple):
    """One event, ready to send; ``coalesced`` ones may go out together."""

    identity: str
    number: int
    name: str
    owner: str | None
    data: str
    coalesced: bool

    @property
    def text(self) -> str:
        """As it is sent alone."""
        return _text(self.identity, self.name, self.data)


# Looked up once: finding a counter by its label costs more than counting.
_counter = functools.cache(EVENTS.labels)


@functools.lru_cache(maxsize=65_536)
def _turn_of(key: str) -> int:
    """When the change of this key goes out."""
    return zlib.crc32(key.encode()) % TURNS


def _text(identity: str | None, name: str, data: str) -> str:
    first = "" if identity is None else f"id: {identity}\n"
    return f"{first}event: {name}\ndata: {data}\n\n"


@dataclass(frozen=True)
class Filter:
    """What one client gets: event names, of owned events only its own unless it may see all, and how."""

    names: frozenset[str]
    subject: str
    sees_all: bool
    together: bool = False

    def admits(self, event: Event) -> bool:
        """Whether the client gets this event."""
        return event.name in self.names and (self.sees_all or event.owner is None or event.owner == self.subject)


class TooManyClientsError(Exception):
    """The limit of open event streams is reached, of all or of this subject; the words say which."""


class EventHub:
    """Takes changes in, hands events to every client."""

    def __init__(
        self,
        clock: Clock,
        *,
        ring: int,
        client_queue: int,
        clients: int,
        coalesce_s: float,
        ping_s: float,
        clients_per_subject: int | None = None,
    ) -> None:
        self._clock = clock
        self._epoch = f"{clock.now_us():x}"
        self._ring: deque[Event] = deque(maxlen=ring)
        self._last = 0
        self._client_queue = client_queue
        self._client_limit = clients
        self._subject_limit = clients_per_subject or clients
        self._clients: set[EventStream] = set()
        self._coalesce_s = coalesce_s
        # By turn.
        self._waiting: list[dict[tuple[str, str], Change]] = [{} for _ in range(TURNS)]
        self._ping_s = ping_s
        self._closing = False

    def publish(self, changes: Iterable[Change]) -> None:
        """Send changes to the clients; those that are to be coalesced wait for `flush`."""
        for change in changes:
            key = change.coalesce_key
            if key is not None and self._coalesce_s > 0:
                self._waiting[_turn_of(key)][change.name, key] = change
            else:
                self._send(change)

    def flush(self, turn: int | None = None) -> None:
        """Send the newest of each change that was waiting; with a turn only of those whose turn it is."""
        for one in range(TURNS) if turn is None else (turn,):
            due, self._waiting[one] = self._waiting[one], {}
            for change in due.values():
                self._send(change)

    async def run(self) -> None:
        """Flush for ever, each key once in the interval."""
        turn = 0
        while True:
            await self._clock.sleep((self._coalesce_s or 1.0) / TURNS)
            self.flush(turn)
            turn = (turn + 1) % TURNS

    def _send(self, change: Change) -> None:
        self._last += 1
        data = _encode(dict(change.data.made() if isinstance(change.data, Late) else change.data))
        coalesced = change.coalesce_key is not None
        event = Event(f"{self._epoch}-{self._last}", self._last, change.name, change.owner, data, coalesced)
        self._ring.append(event)
        _counter(change.name).inc()
        for client in tuple(self._clients):
            client.offer(event)

    def open(self, wanted: Filter, last_event_id: str | None) -> EventStream:
        """A new client; iterate over it for the text to send, and close it.

        Raises:
            TooManyClientsError: the limit is reached.
        """
        if len(self._clients) >= self._client_limit:
            msg = "Too many event streams are open."
            raise TooManyClientsError(msg)
        if sum(client.wanted.subject == wanted.subject for client in self._clients) >= self._subject_limit:
            msg = f"{wanted.subject} has {self._subject_limit} event streams open already, as many as it may."
            raise TooManyClientsError(msg)
        client = EventStream(self, wanted, self._client_queue, self._ping_s)
        client.push(f"retry: 2000\n: events of {', '.join(sorted(wanted.names))}\n\n")
        if last_event_id:
            self._replay(client, last_event_id)
        self._clients.add(client)
        CLIENTS.set(len(self._clients))
        if self._closing:
            client.end("the gateway stops")
        return client

    def _replay(self, client: EventStream, last_event_id: str) -> None:
        epoch, _, number = last_event_id.rpartition("-")
        oldest = self._ring[0].number if self._ring else self._last + 1
        if epoch != self._epoch or not number.isdecimal() or not oldest - 1 <= int(number[:18]) <= self._last:
            client.push(_control("resync", "the events since then are not kept here; fetch the lists anew"))
            return
        missed = [event for event in self._ring if event.number > int(number) and client.wanted.admits(event)]
        if len(missed) > self._client_queue:
            client.push(_control("resync", "too many events since then; fetch the lists anew"))
            return
        for event in missed:
            client.push(event)

    def drop(self, client: EventStream) -> None:
        """Forget a client."""
        self._clients.discard(client)
        CLIENTS.set(len(self._clients))

    def close(self) -> None:
        """End every stream with a reason; new ones end at once."""
        self._closing = True
        for client in tuple(self._clients):
            client.end("the gateway stops")


def _control(name: str, reason: str) -> str:
    return f"event: {name}\ndata: {json.dumps({'reason': reason})}\n\n"


class EventStream(AsyncIterator[str]):
    """One open stream: a bounded queue of events, and of text that is none."""

    def __init__(self, hub: EventHub, wanted: Filter, limit: int, ping_s: float) -> None:
        self.wanted = wanted
        self._hub = hub
        self._limit = limit
        self._ping_s = ping_s
        self._queue: deque[Event | str] = deque()
        self._news = asyncio.Event()
        self._ended = False

    def offer(self, event: Event) -> None:
        """Queue an event if the client wants it; a full queue ends the client."""
        if self._ended or not self.wanted.admits(event):
            return
        if len(self._queue) >= self._limit:
            SLOW_CLIENTS.inc()
            self._queue.clear()
            self.end("the client reads too slowly; come back with Last-Event-ID")
            return
        self.push(event)

    def push(self, item: Event | str) -> None:
        """Queue an event, or text."""
        self._queue.append(item)
        self._news.set()

    def end(self, reason: str) -> None:
        """Send the reason, then end the stream."""
        if not self._ended:
            self._ended = True
            self.push(_control("closed", reason))
            self._hub.drop(self)

    def close(self) -> None:
        """The connection is gone."""
        self._ended = True
        self._news.set()
        self._hub.drop(self)

    async def __anext__(self) -> str:
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            try:
                async with asyncio.timeout(self._ping_s):
                    await self._news.wait()
            except TimeoutError:
                return ": ping\n\n"
        # Everything that waits goes out in one piece: fewer writes when many links report at once.
        text = written(self._queue, together=self.wanted.together)
        self._queue.clear()
        return text


def written(items: Iterable[Event | str], *, together: bool) -> str:
    """The text of a queue. Together: coalesced events of one name that nothing else stands between are one, a list."""
    if not together:
        return "".join(item if isinstance(item, str) else item.text for item in items)
    parts: list[str] = []
    run: dict[str, list[Event]] = {}

    def write_run() -> None:
        chunks = [
            events[at : at + TOGETHER_MAX] for events in run.values() for at in range(0, len(events), TOGETHER_MAX)
        ]
        chunks.sort(key=lambda events: events[-1].number)
        # Only the last has an id: whoever comes back with it has all of them.
        parts.extend(_list_text(chunk, with_id=chunk is chunks[-1]) for chunk in chunks)
        run.clear()

    for item in items:
        if isinstance(item, Event) and item.coalesced:
            run.setdefault(item.name, []).append(item)
            continue
        write_run()
        parts.append(item if isinstance(item, str) else item.text)
    write_run()
    return "".join(parts)


def _list_text(events: list[Event], *, with_id: bool) -> str:
    data = f"[{','.join(event.data for event in events)}]"
    return _text(events[-1].identity if with_id else None, events[0].name, data)
