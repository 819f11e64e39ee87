"""Signals that must not be accepted, each made from a good one, and the receiver that judges them."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address

from chart.common import qos

FLOW = qos.Flow.of_ports(IPv4Address("10.1.0.1"), IPv4Address("10.1.0.2"), 6, (4000, 5000))
OTHER = qos.Flow.of_ports(IPv4Address("10.1.0.9"), IPv4Address("10.1.0.2"), 6, (4000, 5000))


def packet(flow: qos.Flow, signal: qos.Signal) -> bytes:
    """The signal in an IPv4 packet of the flow."""
    body = flow.selector + bytes(16)
    head = bytes([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]) + flow.source.packed + flow.destination.packed
    return qos.insert_ipv4(head + body, signal)


class Attack:
    """One receiver with the true keys of a pair, and an attacker who saw good signals but has no key of it."""

    def __init__(self, key: bytes, epoch: int, sender: int, strange_key: bytes, seed: int) -> None:
        self._random = random.Random(seed)
        self._key, self._epoch, self._sender, self._strange = key, epoch, sender, strange_key
        self.receiver = qos.Pair()
        self.receiver.install(epoch, key)
        self._sequence = 0
        self.tried: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self.good_refused = 0

    def good(self) -> bytes:
        """A good signal that the receiver has taken already."""
        self._sequence = qos.next_sequence(self._sequence)
        signal = qos.Signal(qos.Qos(guaranteed_rate=0x61B0), self._sender, self._epoch, self._sequence)
        made = packet(FLOW, signal.sign(FLOW, self._key))
        if self.judge(made) is not qos.Reason.OK:
            self.good_refused += 1
        return made

    def judge(self, octets: bytes) -> qos.Reason:
        """What the receiver says of a packet."""
        try:
            parsed = qos.parse_ipv4(octets)
        except qos.QosError as error:
            return error.reason
        if parsed.signal.sender != self._sender:
            # Another element's name: its keys are looked up, and there are none.
            return qos.Reason.UNKNOWN_EPOCH
        return self.receiver.verify(parsed.signal, parsed.flow)

    def run(self, count: int) -> None:
        """Try this many, in equal parts."""
        kinds: dict[str, Callable[[bytes], bytes]] = {
            "replayed": lambda good: good,
            "bit flipped": self._flipped,
            "truncated": lambda good: good[: self._random.randrange(len(good))],
            "tag guessed": self._guessed,
            "key of another pair": self._strange_key,
            "higher sequence": self._raised,
            "another flow": self._moved,
            "another epoch": self._old_epoch,
            "junk": lambda _: b"\x4e" + secrets.token_bytes(75),
        }
        good = self.good()
        for number in range(count):
            if number % 50 == 0:
                good = self.good()
            kind = list(kinds)[number % len(kinds)]
            forged = kinds[kind](good)
            self.tried[kind] += 1
            if self.judge(forged) is qos.Reason.OK:
                self.accepted[kind] += 1

    def _fresh(self) -> qos.Signal:
        ahead = self._sequence + self._random.randrange(1, 1000)
        return qos.Signal(qos.Qos(guaranteed_rate=0x7A13), self._sender, self._epoch, min(ahead, qos.SEQUENCE_MAX))

    def _flipped(self, good: bytes) -> bytes:
        """One bit of what the tag covers: structure, sender, epoch, sequence, tag, addresses, ports, protocol."""
        octets = bytearray(good)
        places = [9, *range(12, 20), *range(22, 56), *range(56, 60)]
        place = self._random.choice(places)
        octets[place] ^= 1 << self._random.randrange(8)
        return bytes(octets)

    def _guessed(self, _good: bytes) -> bytes:
        return packet(FLOW, replace(self._fresh(), tag=secrets.token_bytes(16)))

    def _strange_key(self, _good: bytes) -> bytes:
        return packet(FLOW, self._fresh().sign(FLOW, self._strange))

    def _raised(self, good: bytes) -> bytes:
        signal = qos.parse_ipv4(good).signal
        return packet(FLOW, replace(signal, sequence=signal.sequence + self._random.randrange(1, 100)))

    def _moved(self, good: bytes) -> bytes:
        return packet(OTHER, replace(qos.parse_ipv4(good).signal, sequence=self._sequence + 1))

    def _old_epoch(self, good: bytes) -> bytes:
        return packet(FLOW, replace(qos.parse_ipv4(good).signal, epoch=(self._epoch + 1) % 256))
