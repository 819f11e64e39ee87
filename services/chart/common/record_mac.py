"""Authentication of records that nodes write: HMAC-SHA-256 under the node's stream key, in the header ``chart-mac``.

"v1 <node> <epoch> <hex>": over label, topic, key and value, each with its length. A stolen certificate or password of
the broker then writes nobody else's facts: the node in the header must be the one that the record's key names, and only
that node and the checking services hold its key. The side of agent and tunnel is dataplane/lib/authority/record_mac.c.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Literal

from google.protobuf.message import Message

HEADER = "chart-mac"
_LABEL = b"chart-record-v1"
_OCTETS = 32


# Why a record is refused, as metrics and the security page name it.
Reason = Literal["unsigned", "unreadable-code", "another-node", "unknown-key", "wrong-code"]


class RecordMacError(ValueError):
    """A record is not authentic; the message says why, ``reason`` in one word."""

    def __init__(self, reason: Reason, words: str) -> None:
        super().__init__(words)
        self.reason: Reason = reason


# Streams that nodes write, and where the node stands: a place in the record's key, split at commas, or a field of the
# record.
NODE_WRITTEN: dict[str, int | str] = {
    "chart.node-state.v1": 0,
    "chart.link-load.v1": 0,
    "chart.grant-status.v1": 1,
    "chart.flow-record.v1": 0,
    "chart.measurement.v1": 0,
    "chart.sensor-pod-state.v1": 0,
    "chart.tunnel-report.v1": "origin_node",
}


@dataclass(frozen=True)
class Mac:
    """A header, read."""

    node: str
    epoch: int
    value: bytes


def compute(key: bytes, topic: str, record_key: str, payload: bytes) -> bytes:
    """The 32 octets."""
    parts = (_LABEL, topic.encode(), record_key.encode(), payload)
    message = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return hmac.digest(key, message, hashlib.sha256)


def header(node: str, epoch: int, key: bytes, topic: str, record_key: str, payload: bytes) -> str:
    """The header's value for a record that ``node`` writes."""
    return f"v1 {node} {epoch} {compute(key, topic, record_key, payload).hex()}"


def parse(value: str) -> Mac:
    """Read a header.

    Raises:
        RecordMacError: it is none.
    """
    parts = value.split(" ")
    try:
        version, node, epoch, digits = parts
        mac = Mac(node, int(epoch), bytes.fromhex(digits))
    except ValueError:
        raise RecordMacError("unreadable-code", "the header chart-mac cannot be read") from None
    if version != "v1" or len(mac.value) != _OCTETS or not 0 <= mac.epoch <= 255:
        raise RecordMacError("unreadable-code", "the header chart-mac cannot be read")
    return mac


def node_of(topic: str, record_key: str, value: Message | None = None) -> str | None:
    """The node that must have written a record, "" when the record names none; None: no node writes this stream."""
    place = NODE_WRITTEN.get(topic)
    if place is None:
        return None
    if isinstance(place, str):
        return str(getattr(value, place, ""))
    parts = record_key.split(",")
    return parts[place] if place < len(parts) else ""


def check(mac: Mac, key: bytes | None, node: str, topic: str, record_key: str, payload: bytes) -> None:
    """Compare. ``node``: who must have written the record (`node_of`).

    Raises:
        RecordMacError: another node's name, an epoch that is not accepted (``key`` None), or a wrong code.
    """
    if mac.node != node:
        msg = f"written as {mac.node}, but the record is of {node or 'nobody'}"
        raise RecordMacError("another-node", msg)
    if key is None:
        msg = f"epoch {mac.epoch} of the key of {mac.node} is not accepted"
        raise RecordMacError("unknown-key", msg)
    if not hmac.compare_digest(compute(key, topic, record_key, payload), mac.value):
        msg = f"the code does not fit: not written by {mac.node}, or altered"
        raise RecordMacError("wrong-code", msg)


def check_contents(topic: str, record_key: str, value: Message | None) -> None:
    """A record speaks of the node that wrote it only: of itself, of links that leave from it, of what it measured; and
    a tunnel's report stands under the tunnel's name.

    Raises:
        RecordMacError: it speaks of another.
    """
    node = node_of(topic, record_key, value)
    if value is None or node is None:
        return
    links = [str(getattr(link, "link_id", "")) for link in getattr(value, "links", ())]
    named = [str(getattr(value, "node", node)), str(getattr(value, "source_node", node))]
    foreign = [link for link in links if link.partition(":")[0] != node] + [one for one in named if one != node]
    if foreign:
        raise RecordMacError("another-node", f"written by {node}, but it speaks of {foreign[0]}")
    if (tunnel := getattr(value, "tunnel", record_key)) != record_key:
        raise RecordMacError("another-node", f"the report of the tunnel {tunnel} stands under the name {record_key}")
