"""What a record of a stream is, how it is encoded, and what can go wrong; shared by both brokers (see streams.py)."""

from __future__ import annotations

from typing import Literal, NamedTuple

from google.protobuf.message import DecodeError, Message
from prometheus_client import Counter

from chart.common.catalogue import DLQ_SUFFIX, Catalogue

Start = Literal["earliest", "latest"]
# (topic, partition)
Partition = tuple[str, int]
# (topic, key, payload, headers) of a record that is encoded already
Outgoing = tuple[str, str, bytes | None, dict[str, str]]

UNREADABLE = Counter("chart_streams_unreadable_records_total", "Records sent to the dead letters", ["topic"])


class StreamError(Exception):
    """Something about a stream went wrong."""


class StreamUnavailable(StreamError):  # noqa: N818 - the name of a state that passes
    """The broker did not acknowledge or answer in time; trying again later is right."""


class StreamRejected(StreamError):  # noqa: N818
    """The broker will never take this record (too large, unknown stream); trying again is useless."""


class Record(NamedTuple):
    """One record of a stream. ``value`` None is a tombstone: the key is gone."""

    topic: str
    key: str
    value: Message | None
    headers: dict[str, str]
    timestamp_us: int
    partition: int
    offset: int


def encode(catalogue: Catalogue, topic: str, value: Message | None) -> tuple[bytes | None, str]:
    """Bytes of a record's value, and the name of its message.

    Raises:
        TypeError: another message than the catalogue says.
    """
    expected = catalogue.topic(topic).message
    if value is None:
        return None, expected
    actual = value.DESCRIPTOR.full_name
    if actual != expected:
        msg = f"stream {topic} carries {expected}, not {actual}"
        raise TypeError(msg)
    return value.SerializeToString(), expected


class UnreadableRecord(Exception):  # noqa: N818 - a finding about a record, caught here and in the brokers
    """Why a record cannot be read."""


def decode(catalogue: Catalogue, topic: str, payload: bytes | None, headers: dict[str, str]) -> Message | None:
    """The message of a record; None for a tombstone, and for dead letters.

    Raises:
        UnreadableRecord: not the message that the catalogue says, or not a message at all.
    """
    if payload is None or topic.endswith(DLQ_SUFFIX):
        return None
    expected = catalogue.topic(topic).message
    declared = headers.get("type", expected)
    if declared != expected:
        msg = f"header type says {declared}, the stream carries {expected}"
        raise UnreadableRecord(msg)
    try:
        return catalogue.message_class(topic).FromString(payload)
    except DecodeError as error:
        msg = f"not a {expected}: {error}"
        raise UnreadableRecord(msg) from error


def dead_letter_headers(topic: str, key: str, partition: int, offset: int, reason: str) -> dict[str, str]:
    """Headers of a dead letter: why, and where the record came from."""
    return {"reason": reason, "topic": topic, "key": key, "partition": str(partition), "offset": str(offset)}


def dead_letter_key(partition: int, offset: int) -> str:
    """Key of a dead letter: the same record, met again by another reader, replaces itself under compaction."""
    return f"{partition}:{offset}"
