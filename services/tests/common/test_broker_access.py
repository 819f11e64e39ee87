"""Who may do what at the broker: rules from the catalogue, and a real broker that asks for every request."""

from __future__ import annotations

import asyncio
import datetime
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs forget the re-exports
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from chart.authority.keystore_embedded import EmbeddedKeyStore
from chart.common import broker_access, catalogue, topics
from chart.common.broker_access import Difference, Rule
from support.authority import new_key
from support.kafka import Settings
from support.protected_kafka import DOMAIN, ProtectedKafka, environment, pkcs8, settings_of

DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
# What a node tells others of itself; everything else of the catalogue is not its to write.
OF_NODES = {
    "chart.node-state.v1",
    "chart.measurement.v1",
    "chart.sensor-pod-state.v1",
    "chart.link-load.v1",
    "chart.grant-status.v1",
    "chart.tunnel-report.v1",
    "chart.flow-record.v1",
}


class TestRules:
    def test_a_node_writes_what_it_says_of_itself_and_nothing_that_commands(self) -> None:
        rules = broker_access.of_node(catalogue.load(), "alpha")
        assert {rule.name for rule in rules if rule.operation == "WRITE"} == OF_NODES
        assert {rule.principal for rule in rules} == {"node:alpha"}
        assert {rule.name for rule in rules if rule.resource != "TOPIC"} == {broker_access.UNGROUPED}

    def test_every_stream_has_a_writer_and_services_write_what_commands(self) -> None:
        for topic in catalogue.load().topics():
            assert topic.writers, topic.name
            assert "node" not in topic.writers or set(topic.writers) == {"node"}, topic.name

    def test_services_name_the_streams_that_the_catalogue_gives_them(self) -> None:
        """A stream that a service's code names is one that it may write or read."""
        root = Path(catalogue.__file__).parents[1]
        allowed = {
            name: {topic.name for topic in catalogue.load().topics() if name in (*topic.writers, *topic.readers)}
            for name in ("allocator", "archiver", "authority", "gateway", "inference", "registry", "reservations",
                         "tunnels")
        }  # fmt: skip
        allowed["sensor_pod"] = {
            topic.name for topic in catalogue.load().topics() if "node" in (*topic.writers, *topic.readers)
        }
        for name, streams in allowed.items():
            text = "\n".join(path.read_text() for path in (root / name).rglob("*.py"))
            named = set(re.findall(r'^[A-Z_]+ = "(chart\.[a-z-]+\.v1)"', text, re.MULTILINE))
            assert named <= streams, f"{name} names {sorted(named - streams)}"

    def test_differences(self) -> None:
        one, two, three = (Rule("node:a", "TOPIC", name, "READ") for name in "abc")
        assert broker_access.difference([one, two], [two, three]) == Difference(missing=[one], surplus=[three])

    def test_access_of_an_unknown_stream_is_refused(self) -> None:
        text = "topics: {}\naccess: {chart.nothing.v1: {writers: [], readers: []}}"
        with pytest.raises(ValueError, match=r"not in the catalogue: chart\.nothing\.v1"):
            catalogue.parse(text)


def write(producer: Producer, topic: str, key: str, value: bytes | None) -> KafkaError | None:
    """What became of one record."""
    errors: list[KafkaError | None] = []
    try:
        producer.produce(topic, key=key.encode(), value=value, on_delivery=lambda error, _: errors.append(error))
    except KafkaException as error:  # it was refused before, and librdkafka remembers
        return error.args[0]  # type: ignore[no-any-return]
    producer.flush(15)
    assert len(errors) == 1
    return errors[0]


def everything() -> list[str]:
    return [wanted.name for wanted in topics.wanted(catalogue.load())]


@pytest.mark.contract
@pytest.mark.timeout(300)
class TestBroker:
    def test_apply_gives_services_their_rights_once(self, protected_kafka: ProtectedKafka) -> None:
        with environment(protected_kafka, "service/topics"):
            again = topics.apply(protected_kafka.server.bootstrap)
        assert (again.authoriser, again.rights, again.created, again.differences) == (True, [], [], [])

    def test_apply_says_what_the_catalogue_does_not(self, protected_kafka: ProtectedKafka) -> None:
        protected_kafka.give("alpha")
        extra = Rule("node:alpha", "TOPIC", "chart.flow-grant.v1", "WRITE")
        broker_access.change(protected_kafka.admin(), Difference(missing=[extra]))
        with environment(protected_kafka, "service/topics"):
            (words,) = topics.apply(protected_kafka.server.bootstrap).differences
        assert words == "node:alpha may WRITE chart.flow-grant.v1, which the catalogue does not say"
        broker_access.change(protected_kafka.admin(), Difference(surplus=[extra]))

    def test_a_stolen_node_certificate_commands_nobody(self, protected_kafka: ProtectedKafka) -> None:
        """Every stream, records and tombstones, with its own and others' keys; new streams, rights, settings."""
        protected_kafka.give("mallory")
        producer = Producer(protected_kafka.client("node/mallory", **{"message.timeout.ms": 8000}))
        tried, accepted = 0, []
        for topic in everything():
            for key, value in (("mallory", b"\x0a\x01x"), ("alpha", b"\x0a\x01x"), ("alpha", None)):
                tried += 1
                error = write(producer, topic, key, value)
                if error is None:
                    accepted.append(topic)
                else:
                    assert error.code() in DENIED, (topic, error)
        assert set(accepted) == OF_NODES
        assert tried == 3 * len(everything())

        admin = protected_kafka.admin("node/mallory")
        for future in admin.create_topics([NewTopic("chart.mine.v1", 1, 1)]).values():
            assert refused(future.result)
        for future in admin.delete_topics(["chart.flow-grant.v1"]).values():
            assert refused(future.result)
        with pytest.raises(KafkaException) as failed:
            broker_access.change(admin, Difference(missing=[Rule("node:mallory", "TOPIC", "chart.policy.v1", "WRITE")]))
        assert failed.value.args[0].code() in DENIED

    def test_a_node_reads_what_is_for_nodes_alone(self, protected_kafka: ProtectedKafka) -> None:
        protected_kafka.give("reader")
        readable = {topic.name for topic in catalogue.load().topics() if "node" in topic.readers}
        consumer = Consumer(protected_kafka.client("node/reader", **{"group.id": broker_access.UNGROUPED}))
        try:
            told = {topic: consumer.list_topics(topic, 10).topics[topic].error for topic in everything()}
            assert {topic for topic, error in told.items() if error is None} == readable | OF_NODES
            assert {error.code() for error in told.values() if error is not None} == {
                KafkaError.TOPIC_AUTHORIZATION_FAILED
            }
            # To write a stream is not to read it.
            consumer.assign([TopicPartition("chart.node-state.v1", 0, 0)])
            answer = consumer.poll(15)
            assert answer is not None
            assert (error := answer.error()) is not None
            assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        finally:
            consumer.close()

    def test_a_service_writes_its_own_streams_only(self, protected_kafka: ProtectedKafka) -> None:
        producer = Producer(protected_kafka.client("service/allocator", **{"message.timeout.ms": 8000}))
        assert write(producer, "chart.link-rate.v1", "alpha", b"\x0a\x01x") is None
        error = write(producer, "chart.flow-grant.v1", "request", b"\x0a\x01x")
        assert error is not None
        assert error.code() in DENIED

    def test_a_node_of_a_service_s_name_is_no_service(self, protected_kafka: ProtectedKafka) -> None:
        protected_kafka.give("reservations")
        producer = Producer(protected_kafka.client("node/reservations", **{"message.timeout.ms": 8000}))
        error = write(producer, "chart.flow-grant.v1", "request", b"\x0a\x01x")
        assert error is not None
        assert error.code() in DENIED

    def test_a_revocation_ends_rights_on_a_live_connection(self, protected_kafka: ProtectedKafka) -> None:
        protected_kafka.give("leaving")
        producer = Producer(protected_kafka.client("node/leaving", **{"message.timeout.ms": 8000}))
        assert write(producer, "chart.node-state.v1", "leaving", b"\x0a\x01x") is None
        wanted = broker_access.of_node(catalogue.load(), "leaving")
        broker_access.change(protected_kafka.admin("service/authority"), Difference(surplus=sorted(wanted)))
        began = time.monotonic()
        while (error := write(producer, "chart.node-state.v1", "leaving", b"\x0a\x01x")) is None:
            assert time.monotonic() - began < 5
        assert error.code() in DENIED

    def test_who_has_no_certificate_or_another_s_is_not_heard(
        self, protected_kafka: ProtectedKafka, tmp_path: Path
    ) -> None:
        stranger = EmbeddedKeyStore(tmp_path / "store", DOMAIN)
        asyncio.run(stranger.open())
        own_authority: Settings = {"ssl.ca.location": str(protected_kafka.folder / "authority.pem")}
        another = {**settings_of(tmp_path, stranger, "service/topics"), **own_authority}
        for client in (another, {"security.protocol": "ssl", **own_authority}, {}):
            admin = AdminClient({**client, "bootstrap.servers": protected_kafka.server.bootstrap, "log_level": 0})
            with pytest.raises(KafkaException):
                admin.list_topics(timeout=2)

    def test_a_subject_that_the_issuer_did_not_form_is_refused(self, protected_kafka: ProtectedKafka) -> None:
        """The name alone, as an older authority wrote it, is nobody's."""
        key = new_key()
        issuer = serialization.load_pem_private_key(authority_key(protected_kafka), None)
        now = datetime.datetime.now(datetime.UTC)
        authority = x509.load_pem_x509_certificate((protected_kafka.folder / "authority.pem").read_bytes())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "topics")]))
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .sign(issuer, hashes.SHA256())  # type: ignore[arg-type]
        )
        (protected_kafka.folder / "plain.key").write_bytes(pkcs8(key))
        (protected_kafka.folder / "plain.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        client = protected_kafka.client("node/alpha") | {
            "ssl.certificate.location": str(protected_kafka.folder / "plain.crt"),
            "ssl.key.location": str(protected_kafka.folder / "plain.key"),
        }
        with pytest.raises(KafkaException):
            AdminClient(client).list_topics(timeout=2)


def authority_key(protected_kafka: ProtectedKafka) -> bytes:
    key = protected_kafka.authority._authority_key
    assert key is not None
    return pkcs8(key)


def refused(result: Callable[[float], object]) -> bool:
    with pytest.raises(KafkaException) as failed:
        result(10.0)
    return failed.value.args[0].code() in DENIED
