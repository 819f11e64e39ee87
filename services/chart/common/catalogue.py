"""The catalogue of streams, proto/chart/v1/topics.yaml: which message, how many partitions, how long kept."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import yaml
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from chart.common.places import topics_file
from chart.common.units import parse_duration_us

DLQ_SUFFIX = ".dlq"


@dataclass(frozen=True)
class Topic:
    """One stream. ``retention_ms`` is None for compacted streams, which keep the newest record of each key."""

    name: str
    message: str
    key: str
    partitions: int
    cleanup: Literal["compact", "delete"]
    retention_ms: int | None
    dlq: bool
    # Who may write and read it: `node` or names of services (broker_access.py).
    writers: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()

    @property
    def dlq_name(self) -> str:
        """Where records of this stream go that cannot be read."""
        return self.name + DLQ_SUFFIX


class UnknownTopicError(KeyError):
    """A stream that the catalogue does not have."""

    def __str__(self) -> str:
        return f"stream {self.args[0]!r} is not in the catalogue (proto/chart/v1/topics.yaml)"


class Reader(Protocol):
    """What reads records in place of a message's class."""

    def FromString(self, octets: bytes) -> Any:  # noqa: N802 - as messages have it
        """The record of some octets; raises DecodeError when they are none."""
        ...


class Catalogue:
    """All streams by name."""

    def __init__(self, topics: list[Topic], classes: Mapping[str, type[Message]] | None = None) -> None:
        """`classes`: of records that are not read as messages, by stream."""
        self._topics = {topic.name: topic for topic in topics}
        self._classes = dict(classes or {})

    def topics(self) -> list[Topic]:
        """Every stream, in the order of the file."""
        return list(self._topics.values())

    def topic(self, name: str) -> Topic:
        """One stream.

        Raises:
            UnknownTopicError: there is none of this name.
        """
        try:
            return self._topics[name]
        except KeyError:
            raise UnknownTopicError(name) from None

    def message_class(self, name: str) -> type[Message]:
        """The class of a stream's records."""
        return self._classes.get(name) or message_class(self.topic(name).message)

    def with_class(self, name: str, reader: Reader) -> Catalogue:
        """The same streams, but for readers one of them has records of another class than that of its messages."""
        self.topic(name)
        return Catalogue(self.topics(), {**self._classes, name: cast("type[Message]", reader)})


@functools.cache
def message_class(full_name: str) -> type[Message]:
    """The generated class of a message such as ``chart.v1.Policy``.

    Generated modules register themselves on import; the module of a message is found by importing all of chart.v1 once.
    """
    _import_generated()
    return message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(full_name))


@functools.cache
def _import_generated() -> None:
    package = importlib.import_module("chart.v1")
    for folder in package.__path__:
        for module in sorted(Path(folder).glob("*_pb2.py")):
            importlib.import_module(f"chart.v1.{module.stem}")


def parse(text: str) -> Catalogue:
    """Read a catalogue.

    Raises:
        ValueError: an entry lacks a field or has an unknown cleanup, or access is stated of an unknown stream.
    """
    document = yaml.safe_load(text)
    access = document.get("access", {})
    topics = []
    if unknown := sorted(access.keys() - document["topics"].keys()):
        msg = f"access is stated of streams that are not in the catalogue: {', '.join(unknown)}"
        raise ValueError(msg)
    for name, entry in document["topics"].items():
        cleanup = entry["cleanup"]
        if cleanup not in ("compact", "delete"):
            msg = f"{name}: cleanup is {cleanup!r}, must be compact or delete"
            raise ValueError(msg)
        if (cleanup == "delete") != ("retention" in entry):
            msg = f"{name}: retention belongs to cleanup delete, and only there"
            raise ValueError(msg)
        retention_ms = parse_duration_us(entry["retention"]) // 1000 if cleanup == "delete" else None
        allowed = access.get(name, {"writers": (), "readers": ()})
        topics.append(
            Topic(
                name=name,
                message=entry["message"],
                key=entry["key"],
                partitions=int(entry["partitions"]),
                cleanup=cleanup,
                retention_ms=retention_ms,
                dlq=entry["dlq"],
                writers=tuple(allowed["writers"]),
                readers=tuple(allowed["readers"]),
            )
        )
    return Catalogue(topics)


def load(path: Path | None = None) -> Catalogue:
    """The catalogue of the repository, or of another file."""
    return parse((path or topics_file()).read_text())
