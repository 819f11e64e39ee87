"""A real Kafka broker for tests, started exactly as the embedded platform starts it."""

from __future__ import annotations

import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from chart.common import catalogue as catalogues
from chart.common import topics
from chart.common.catalogue import Catalogue, Topic
from chart_lab.platform import kafka as platform_kafka
from chart_lab.platform.settings import PlatformSettings
from support.processes import ServerProcess, free_ports, listens

# Of librdkafka, by name.
Settings = dict[str, str | int | float | bool]


class KafkaServer:
    """One broker on free ports of loopback; ``stop``, ``kill`` and ``start`` keep ports and data, for fault tests."""

    def __init__(
        self,
        directory: Path,
        protection: platform_kafka.BrokerTls | None = None,
        client: Settings | None = None,
    ) -> None:
        """`client`: how the one who waits for the broker proves who it is, where there is ``protection``."""
        port, node_port, controller_port = free_ports(3)
        settings = PlatformSettings(
            state_dir=directory,
            kafka_port=port,
            kafka_node_port=node_port,
            kafka_controller_port=controller_port,
            kafka_heap_mb=256,
        )
        program = platform_kafka.prepare(settings, with_nodes=False, protection=protection)
        # Quick start matters more than peak speed here.
        command = (program.command[0], "-XX:TieredStopAtLevel=1", "-Xshare:auto", *program.command[1:])
        self.bootstrap = settings.kafka_bootstrap
        self._client: dict[str, str | int | float | bool] = {
            **(client or {}),
            "bootstrap.servers": self.bootstrap,
            "log_level": 0,
        }
        self._process = ServerProcess("kafka", command, directory / "kafka.log")

    def start(self) -> None:
        """Start, or start again, and wait until the broker answers."""
        self._process.start(self._answers)

    def _answers(self) -> bool:
        if not listens(self.bootstrap):  # librdkafka logs refused connections, whatever its log level
            return False
        try:
            metadata = AdminClient(self._client).list_topics(timeout=1)
        except KafkaException:
            return False
        return len(metadata.brokers) == 1

    def stop(self) -> None:
        """Stop in good order."""
        self._process.stop()

    def kill(self) -> None:
        """End it as a power failure would."""
        self._process.kill()

    def pause(self) -> None:
        """Let it hang."""
        self._process.pause()

    def resume(self) -> None:
        """End a pause."""
        self._process.resume()


def fresh_catalogue(bootstrap: str | None, **streams: str) -> tuple[Catalogue, dict[str, str]]:
    """Streams of a test's own, so that tests that share a broker do not meet.

    ``streams`` gives each a short name and the stream of the real catalogue that it is a copy of. Returns the catalogue
    and the full name behind each short one. With a broker the topics are created there.
    """
    real = catalogues.load()
    copies = []
    names = {}
    for short, model in streams.items():
        topic = real.topic(model)
        names[short] = f"test.{short}.{uuid.uuid4().hex[:8]}"
        copies.append(
            Topic(
                names[short],
                topic.message,
                topic.key,
                topic.partitions,
                topic.cleanup,
                topic.retention_ms,
                topic.dlq,
            )
        )
    catalogue = Catalogue(copies)
    if bootstrap is not None:
        topics.apply(bootstrap, catalogue=catalogue)
    return catalogue, names
