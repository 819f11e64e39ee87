"""A large network to look at without having one: records of a file, replayed into a real gateway.

    python -m support.recorded_network make FILE --nodes 500 --links 2000 --seconds 20
    python -m support.recorded_network replay FILE --listen 127.0.0.1:18990

A recording is gzip, one JSON object a line: ``at_us`` (since its beginning), ``topic``, ``key``, ``value`` (protobuf in
base64). `make` writes one of a network that is made up from a seed: nodes on a plane, linked with their nearest, loads
that wander, a report of every node each 100 ms as agents send them. `replay` begins anew when the file ends; times in
the records are moved to the present. A replay that cannot keep up says on its standard error by how much it is behind:
what is measured on it meanwhile is not what the recording says.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gc
import gzip
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from google.protobuf.message import Message

from chart.common.records import Record, decode
from chart.common.streams import LocalBroker
from chart.gateway.api import attach, create_app
from chart.gateway.live import COMPACTED, LINK_LOAD, LINK_RATE, MEASUREMENT, NODE_STATE, PASSING, TOPOLOGY
from chart.gateway.main import listen
from chart.gateway.service import running
from chart.gateway.settings import GatewaySettings
from chart.v1 import link_load_pb2, link_rate_pb2, measurement_pb2, node_state_pb2, policy_pb2, topology_pb2

REPORT_US = 100_000
STATE_US = 10_000_000
RATE_US = 5_000_000
LEASE_US = 10_000_000
MEASURE_US = 2_000_000
CAPACITIES_BPS = (100_000_000, 1_000_000_000, 10_000_000_000)
# Records this early go out with those before them: a timer for each of thousands a second costs more than they do.
EARLY_S = 0.002
# Records this late are told of, as often as this.
LATE_S = 0.5
SAY_S = 1.0


@dataclass(frozen=True)
class Entry:
    """One record of a recording; ``at_us`` counts from its beginning."""

    at_us: int
    topic: str
    key: str
    value: bytes


@dataclass
class Wire:
    """A directed link of the made-up network, and how busy it is."""

    identity: str
    source: str
    destination: str
    capacity_bps: int
    delay_us: int
    share: float


# ------------------------------------------------------------------ making one


def edges(places: Sequence[tuple[float, float]], count: int) -> list[tuple[int, int]]:
    """Pairs of near points: each with the nearest before it, so that all hang together, then the shortest others."""
    distance = {(a, b): math.dist(places[a], places[b]) for a in range(len(places)) for b in range(a + 1, len(places))}
    chosen = {min(((a, b) for a in range(b)), key=distance.__getitem__) for b in range(1, len(places))}
    for pair in sorted(distance, key=distance.__getitem__):
        if len(chosen) >= count:
            break
        chosen.add(pair)
    return sorted(chosen)


def wires_of(places: Sequence[tuple[float, float]], count: int, chance: random.Random) -> list[Wire]:
    """Both directions of every edge."""
    found = []
    for a, b in edges(places, count // 2):
        capacity_bps, delay_us = chance.choice(CAPACITIES_BPS), round(math.dist(places[a], places[b]) * 40_000)
        for source, destination in ((a, b), (b, a)):
            names = f"n{source:03}", f"n{destination:03}"
            identity = f"{names[0]}:to-{names[1]}"
            found.append(Wire(identity, *names, capacity_bps, delay_us, chance.random()))
    return found


def made(nodes: int, links: int, seconds: float, seed: int, wander: float = 0.02) -> Iterator[Entry]:
    """A made-up network, in order of time; ``wander``: how far a load goes in one report, 0: it stays."""
    chance = random.Random(seed)
    places = [(chance.random(), chance.random()) for _ in range(nodes)]
    wires = wires_of(places, links, chance)
    of_node: dict[str, list[Wire]] = {f"n{number:03}": [] for number in range(nodes)}
    for wire in wires:
        of_node[wire.source].append(wire)
    yield from _topology(places, wires)
    for step in range(round(seconds * 1e6 / REPORT_US)):
        start_us = step * REPORT_US
        for number, (node, own) in enumerate(of_node.items()):
            # Nodes report one after the other within the period, as clocks that nobody set together do.
            at_us = start_us + number * REPORT_US // nodes
            yield _loads(node, own, at_us, step, chance, wander)
            if (start_us + number * REPORT_US) % STATE_US < REPORT_US:
                yield _state(node, at_us)
            if (start_us + number * REPORT_US) % RATE_US < REPORT_US:
                yield _rates(node, own, at_us)
            if (start_us + number * REPORT_US) % MEASURE_US < REPORT_US:
                yield from _measured(own, at_us)


def _topology(places: Sequence[tuple[float, float]], wires: Sequence[Wire]) -> Iterator[Entry]:
    for number, (x, y) in enumerate(places):
        node = topology_pb2.Node(id=f"n{number:03}")
        node.map_position.x, node.map_position.y = x, y
        entity = topology_pb2.TopologyEntity(revision=1, node=node)
        yield Entry(0, TOPOLOGY, node.id, entity.SerializeToString())
        yield _state(node.id, 0)
    for wire in wires:
        link = topology_pb2.Link(
            id=wire.identity,
            from_node=wire.source,
            interface=wire.identity.split(":")[1],
            to_node=wire.destination,
            capacity_bps=wire.capacity_bps,
            delay_us=wire.delay_us,
            admission_share=0.9,
        )
        entity = topology_pb2.TopologyEntity(revision=1, link=link)
        yield Entry(0, TOPOLOGY, link.id, entity.SerializeToString())


def _state(node: str, at_us: int) -> Entry:
    state = node_state_pb2.NodeState(
        node=node, agent_version="1", enforcement=policy_pb2.ENFORCEMENT_MODE_ENFORCE, reported_at_us=at_us
    )
    return Entry(at_us, NODE_STATE, node, state.SerializeToString())


def _loads(node: str, own: Sequence[Wire], at_us: int, step: int, chance: random.Random, wander: float) -> Entry:
    report = link_load_pb2.LinkLoadReport(node=node, sequence=step, interval_end_us=at_us, interval_us=REPORT_US)
    for wire in own:
        wire.share = min(1.0, max(0.0, wire.share + chance.gauss(0, wander)))
        sent_bytes = round(wire.capacity_bps * wire.share * REPORT_US / 8e6)
        explicit = round(sent_bytes * 0.6)
        report.links.add(
            link_id=wire.identity,
            sent_bytes=sent_bytes,
            explicit_rate_bytes=explicit,
            legacy_bytes=sent_bytes - explicit,
            queue_bytes=round(20_000 * wire.share),
        )
    return Entry(at_us, LINK_LOAD, node, report.SerializeToString())


def _rates(node: str, own: Sequence[Wire], at_us: int) -> Entry:
    rates = link_rate_pb2.LinkRates(node=node, valid_until_us=at_us + LEASE_US, issued_at_us=at_us)
    for wire in own:
        available = round(wire.capacity_bps * max(0.05, 1 - wire.share))
        rates.links.add(link_id=wire.identity, available_bps=available, explicit_rate_capacity_bps=wire.capacity_bps)
    return Entry(at_us, LINK_RATE, node, rates.SerializeToString())


def _measured(own: Sequence[Wire], at_us: int) -> Iterator[Entry]:
    for wire in own:
        result = measurement_pb2.Measurement(
            id=f"{wire.identity} {at_us}",
            source_node=wire.source,
            destination_node=wire.destination,
            metric="rtt_us",
            unit="us",
            value=2 * wire.delay_us + 2000 * wire.share,
            measured_at_us=at_us,
        )
        key = f"{wire.source},{wire.destination},rtt_us"
        yield Entry(at_us, MEASUREMENT, key, result.SerializeToString())


# ------------------------------------------------------------------ files


def write(path: Path, entries: Iterable[Entry]) -> int:
    """Write a recording; returns how many records it has."""
    count = 0
    with gzip.open(path, "wt", compresslevel=1) as file:
        for entry in entries:
            value = base64.b64encode(entry.value).decode()
            words = {"at_us": entry.at_us, "topic": entry.topic, "key": entry.key, "value": value}
            file.write(json.dumps(words) + "\n")
            count += 1
    return count


def read(path: Path) -> list[Entry]:
    """A recording in memory. Raises ValueError when the file is none."""
    found = []
    with gzip.open(path, "rt") as file:
        for number, line in enumerate(file, start=1):
            try:
                words = json.loads(line)
                value = base64.b64decode(words["value"])
                found.append(Entry(words["at_us"], words["topic"], words["key"], value))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path}, line {number}: this is no record of a recording ({error})") from None
    if not found:
        raise ValueError(f"{path} has no record")
    return found


# ------------------------------------------------------------------ replaying one

# Fields that say when, which move with the replay.
TIMES = {
    NODE_STATE: ("reported_at_us",),
    LINK_LOAD: ("interval_end_us",),
    LINK_RATE: ("issued_at_us", "valid_until_us"),
    MEASUREMENT: ("measured_at_us",),
}


def complain(words: str) -> None:
    """Say something on the standard error."""
    print(words, file=sys.stderr, flush=True)


class Tape:
    """Records of a recording when they are due, again and again; a subscription of the gateway.

    Whoever reads it too slowly gets them late; by how much is told through ``say``.
    """

    def __init__(self, broker: LocalBroker, entries: Sequence[Entry], say: Callable[[str], None] = complain) -> None:
        self._catalogue = broker.catalogue
        self._entries = entries
        self._length_us = entries[-1].at_us + REPORT_US if entries else 0
        self._handed = 0
        self._say = say
        self._said_s = 0.0

    async def __aenter__(self) -> Tape:
        self._begun_us = time.time_ns() // 1000
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        if not self._entries:
            await asyncio.Event().wait()
        turns, index = divmod(self._handed, len(self._entries))
        entry = self._entries[index]
        shift_us = self._begun_us + turns * self._length_us
        wait_s = (shift_us + entry.at_us) / 1e6 - time.time()
        if wait_s > EARLY_S:
            await asyncio.sleep(wait_s)
        elif self._handed % 32 == 0:
            await asyncio.sleep(0)
        self._lag(-wait_s)
        self._handed += 1
        value = moved(decode(self._catalogue, entry.topic, entry.value, {}), entry.topic, shift_us)
        return Record(entry.topic, entry.key, value, {}, shift_us + entry.at_us, 0, self._handed)

    def _lag(self, late_s: float) -> None:
        now_s = time.monotonic()
        if late_s < LATE_S or now_s - self._said_s < SAY_S:
            return
        self._said_s = now_s
        self._say(f"replay: {late_s:.1f} s behind the recording")


def moved(value: Message | None, topic: str, by_us: int) -> Message:
    """The message with its times later by so much."""
    assert value is not None
    for name in TIMES.get(topic, ()):
        setattr(value, name, getattr(value, name) + by_us)
    return value


class TapeBroker(LocalBroker):
    """Streams of a recording: what passes by comes from the tape, state is published as it comes on it."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__()
        self._passing = [entry for entry in entries if entry.topic in PASSING]
        state = [entry for entry in entries if entry.topic in COMPACTED]
        self._beginning = [entry for entry in state if entry.at_us == 0]
        # Nodes and links are registered once, not each time that the tape begins anew.
        self._state = [entry for entry in state if entry.topic != TOPOLOGY]

    def subscribe(self, topics: Sequence[str], **options: Any) -> Any:
        """The records that were recorded, in their order."""
        if tuple(topics) == PASSING:
            return Tape(self, self._passing)
        return super().subscribe(topics, **options)

    async def feed(self) -> None:
        """Publish the state as the recording has it, for ever."""
        tape = Tape(self, self._state)
        async with tape:
            async for record in tape:
                await self.publish(record.topic, record.key, record.value)

    async def first(self) -> None:
        """Publish what is there at the beginning."""
        now_us = time.time_ns() // 1000
        for entry in self._beginning:
            value = decode(self.catalogue, entry.topic, entry.value, {})
            await self.publish(entry.topic, entry.key, moved(value, entry.topic, now_us))


async def replay(entries: Sequence[Entry], address: str, interval_s: float) -> None:
    """The real gateway on a recording, until cancelled; the services behind it are away.

    ``interval_s``: as often the gateway sends the load of each link.
    """
    broker = TapeBroker(entries)
    await broker.first()
    nowhere = "127.0.0.1:1"
    with tempfile.TemporaryDirectory(prefix="chart-replay-") as folder, listen(address) as socket:
        settings = GatewaySettings(
            state_dir=Path(folder),
            http_listen=address,
            registry_target=nowhere,
            reservations_target=nowhere,
            archiver_target=nowhere,
            tunnels_target=nowhere,
            inference_target=nowhere,
            events_load_interval_s=interval_s,
        )
        async with running(settings, broker=broker) as gateway:
            feeding = asyncio.create_task(broker.feed())
            app = create_app(settings)
            attach(app, gateway)
            config = uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", ws="none", timeout_graceful_shutdown=1
            )
            print(f"replaying on http://{address}", flush=True)
            try:
                await uvicorn.Server(config).serve(sockets=[socket])
            finally:
                feeding.cancel()


def main(words: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="support.recorded_network", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="write a recording of a made-up network")
    make.add_argument("file", type=Path)
    make.add_argument("--nodes", type=int, default=500)
    make.add_argument("--links", type=int, default=2000, help="directed, an even number")
    make.add_argument("--seconds", type=float, default=20.0)
    make.add_argument("--seed", type=int, default=1)
    make.add_argument("--wander", type=float, default=0.02, help="how far a load goes in one report; 0: it stays")
    play = commands.add_parser("replay", help="serve the dashboard on a recording")
    play.add_argument("file", type=Path)
    play.add_argument("--listen", default="127.0.0.1:18990")
    play.add_argument("--interval-s", type=float, default=0.2, help="so far apart the gateway sends a link's loads")
    chosen = parser.parse_args(words)
    try:
        if chosen.command == "make":
            chosen.file.parent.mkdir(parents=True, exist_ok=True)
            count = write(chosen.file, made(chosen.nodes, chosen.links, chosen.seconds, chosen.seed, chosen.wander))
            print(f"{count} records in {chosen.file}")
        else:
            entries = read(chosen.file)
            # The recording stays as it is: searching it for garbage again and again is no work of a gateway.
            gc.freeze()
            asyncio.run(replay(entries, chosen.listen, chosen.interval_s))
    except KeyboardInterrupt:
        return 0
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
