"""Streams: one interface for publishing, following and reading state, whichever broker is behind it.

A record has a key, a protobuf message (or None, a tombstone) and headers; the catalogue (topics.yaml) says which
message a stream carries. `LocalBroker` keeps streams in memory under a fake clock for unit tests, `KafkaBroker` is the
real one; both pass the same contract tests (services/tests/common/test_streams_contract.py).

Delivery is at least once. A record that cannot be read goes to <topic>.dlq with the reason, is counted and skipped.
"""

from __future__ import annotations

from chart.common import kafka_properties, record_check
from chart.common.broker import Broker
from chart.common.compacted import CompactedState
from chart.common.record_sign import RecordSigner
from chart.common.records import (
    Partition,
    Record,
    Start,
    StreamError,
    StreamRejected,
    StreamUnavailable,
)
from chart.common.settings import BaseServiceSettings
from chart.common.streams_kafka import KafkaBroker
from chart.common.streams_local import LocalBroker
from chart.common.subscription import Subscription


def connect(settings: BaseServiceSettings, record_signer: RecordSigner | None = None) -> Broker:
    """The broker that the settings name; ``local:`` keeps the streams in this process. ``record_signer``: of a process
    that writes records of a node.

    Raises:
        KafkaPropertiesError: production, and the broker would be spoken to in plain.
    """
    if settings.kafka_bootstrap.startswith("local:"):
        return LocalBroker()
    if settings.environment == "production":
        kafka_properties.refuse_plain(settings.kafka_bootstrap, kafka_properties.load())
    return KafkaBroker(
        settings.kafka_bootstrap,
        delivery_timeout_ms=settings.kafka_delivery_timeout_ms,
        record_check=record_check.from_settings(settings),
        record_signer=record_signer,
    )


__all__ = [
    "Broker",
    "CompactedState",
    "KafkaBroker",
    "LocalBroker",
    "Partition",
    "Record",
    "Start",
    "StreamError",
    "StreamRejected",
    "StreamUnavailable",
    "Subscription",
    "connect",
]
