"""Clients of a broker that asks who they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from support.authority import Place

ANSWER_S = 8.0

Settings = dict[str, Any]


class Installed(Protocol):
    """What trials need to know of an installation."""

    @property
    def kafka_bootstrap(self) -> str:
        """Where nodes reach the broker."""
        ...


def as_node(settings: Installed, place: Place, files: tuple[str, str], **more: str | int) -> Settings:
    """librdkafka's settings of who has these files (certificate, key)."""
    certificate, key = files
    return {
        "bootstrap.servers": settings.kafka_bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(place.ca_file),
        "ssl.certificate.location": certificate,
        "ssl.key.location": key,
        "message.timeout.ms": round(1000 * ANSWER_S),
        "log_level": 0,
        **more,
    }


def written(producer: Producer, records: list[tuple[str, str, bytes | None]]) -> list[KafkaError | None]:
    """What became of each record."""
    found: list[KafkaError | None] = [KafkaError(KafkaError._MSG_TIMED_OUT)] * len(records)

    def noted(place: int) -> Callable[[KafkaError | None, Any], None]:
        def note(error: KafkaError | None, _: Any) -> None:
            found[place] = error

        return note

    for place, (topic, key, value) in enumerate(records):
        try:
            producer.produce(topic, key=key.encode(), value=value, on_delivery=noted(place))
        except KafkaException as error:  # it was refused before, and librdkafka remembers
            found[place] = error.args[0]
    producer.flush(2 * ANSWER_S)
    return found


def admitted(settings: Settings, topic: str, key: str, limit_s: float = 30.0) -> Producer:
    """A producer whose own records the broker takes: a node that was enrolled just now gets its rights a moment later,
    and librdkafka remembers a refusal.

    Raises:
        AssertionError: it has no rights after ``limit_s``.
    """
    end = time.monotonic() + limit_s
    while True:
        producer = Producer(settings)
        (error,) = written(producer, [(topic, key, b"\x0a\x01x")])
        if error is None:
            return producer
        assert time.monotonic() < end, f"the broker does not take what {key} writes to {topic}: {error}"
