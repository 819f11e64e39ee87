"""Clients of the broker whose certificate is renewed while they run.

librdkafka reads certificates once, when a client is made. A connection that is open stays open after its certificate
has ended; the next one would be refused. So each client is followed by another one as soon as one of the files is
another: when the broker has answered to that, and not before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog
from confluent_kafka import KafkaException

from chart.common import kafka_properties

LOOK_EVERY_S = 1.0
# After the broker did not answer to a new client, or the files did not belong together, as between two renames.
RETRY_S = 5.0
ANSWER_LIMIT_S = 2.0
# Any topic will do: who may not describe it is answered too.
ASKED_TOPIC = "chart.policy.v1"

_log = structlog.get_logger("chart.streams")


class Client(Protocol):
    """Producer, Consumer or AdminClient."""

    def list_topics(self, topic: str = ..., timeout: float = ...) -> Any:
        """Ask the broker."""
        ...


C = TypeVar("C", bound=Client)
Signature = tuple[tuple[str, int, int], ...]


class IdentityFiles:
    """The file that CHART_KAFKA_PROPERTIES names and those that it names, as one client was made with them. Not safe
    for threads.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Make it before the client: what is renewed in between is taken for a change."""
        self._now = now
        self._used = look()
        self._look_at = now() + LOOK_EVERY_S

    def renewed(self) -> bool:
        """Whether they are others than those in use; looks once a second at most."""
        if self._used is None or self._now() < self._look_at:
            return False
        self._look_at = self._now() + LOOK_EVERY_S
        found = look()
        return found is not None and found != self._used

    def successor(self, make: Callable[[], C]) -> C | None:
        """A client made with what is there now, which the broker has answered; None: not yet. Waits for its answer."""
        found = look()
        try:
            client = make()
            client.list_topics(ASKED_TOPIC, timeout=ANSWER_LIMIT_S)
        except (KafkaException, kafka_properties.KafkaPropertiesError) as error:
            self._look_at = self._now() + RETRY_S
            _log.warning("the renewed identity is not used yet", reason=str(error.args[0]))
            return None
        self._used = found
        _log.info("the broker is spoken to with the renewed identity")
        return client


def look() -> Signature | None:
    """What tells the files from their successors; None: none is stated, or one is away at the moment."""
    try:
        stated = kafka_properties.load()
        names = sorted(value for name, value in stated.items() if name.endswith(".location"))
        found = [(name, Path(name).stat()) for name in names]
    except (OSError, kafka_properties.KafkaPropertiesError):
        return None
    return tuple((name, one.st_ino, one.st_mtime_ns) for name, one in found) or None
