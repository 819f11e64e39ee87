"""Enrolment gives a node its rights at the broker, revocation takes them, also from a connection that is open."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from confluent_kafka import KafkaError, KafkaException, Producer

from chart.common import broker_access, catalogue
from chart.common.broker_access import Difference, Rule
from support import authority
from support.authority import Place
from support.postgres import PostgresServer
from support.protected_kafka import ProtectedKafka, environment
from support.waiting import eventually

pytestmark = [pytest.mark.contract, pytest.mark.timeout(300)]


@pytest_asyncio.fixture
async def place(postgres: PostgresServer, protected_kafka: ProtectedKafka) -> AsyncIterator[Place]:
    authority.empty(postgres)
    settings = authority.settings_of(
        postgres.role_url("authority"),
        protected_kafka.folder / "state",
        kafka_bootstrap=protected_kafka.server.bootstrap,
    )
    with environment(protected_kafka, "service/authority"):
        async with authority.running(settings, protected_kafka.folder) as made:
            yield made


def rights(protected_kafka: ProtectedKafka, node: str) -> set[Rule]:
    return {rule for rule in broker_access.in_force(protected_kafka.admin()) if rule.principal == f"node:{node}"}


def state(producer: Producer, node: str) -> KafkaError | None:
    """What becomes of a record about the node's state."""
    told: list[KafkaError | None] = []
    try:
        producer.produce("chart.node-state.v1", key=node, value=b"", on_delivery=lambda error, _: told.append(error))
    except KafkaException as error:
        return error.args[0]  # type: ignore[no-any-return]
    producer.flush(10)
    return told[0]


async def test_from_enrolment_until_revocation(place: Place, protected_kafka: ProtectedKafka) -> None:
    assert rights(protected_kafka, "enrolled") == set()
    certificate, key = await place.enrol("node/enrolled")
    assert rights(protected_kafka, "enrolled") == broker_access.of_node(catalogue.load(), "enrolled")

    files = {"ssl.certificate.location": certificate, "ssl.key.location": key}
    producer = Producer({**protected_kafka.client("service/topics", **files), "message.timeout.ms": 8000})
    assert state(producer, "enrolled") is None

    answer = await place.operator.post("/v1/revocations", json={"identity": "node/enrolled", "reason": "stolen"})
    assert answer.is_success, answer.text
    began = time.monotonic()
    while (error := state(producer, "enrolled")) is None:
        assert time.monotonic() - began < 5, "a revoked node still writes"
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert rights(protected_kafka, "enrolled") == set()


async def test_what_somebody_else_changed_is_put_right(
    place: Place, protected_kafka: ProtectedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chart.authority.broker_rights.EVERY_S", 0.2)
    await place.enrol("node/bravo")
    wanted = broker_access.of_node(catalogue.load(), "bravo")
    too_much = Rule("node:bravo", "TOPIC", "chart.flow-grant.v1", "WRITE")
    stranger = Rule("node:nobody", "TOPIC", "chart.policy.v1", "WRITE")
    change = Difference(missing=[too_much, stranger], surplus=sorted(wanted)[:2])
    broker_access.change(protected_kafka.admin(), change)

    async def repaired() -> bool:
        return rights(protected_kafka, "bravo") == wanted and rights(protected_kafka, "nobody") == set()

    await eventually(repaired, 20)
