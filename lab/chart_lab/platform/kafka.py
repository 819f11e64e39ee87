"""One Kafka broker in KRaft mode, run from its published jars on the machine's Java."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from chart.common import broker_access
from chart_lab.platform.programs import Program
from chart_lab.platform.settings import PlatformSettings


class KafkaUnavailableError(RuntimeError):
    """The broker cannot be run here; the message says what to do."""


def jars(settings: PlatformSettings) -> Path:
    """Folder of the broker's jars.

    Raises:
        KafkaUnavailableError: the jars or Java are missing.
    """
    libs = settings.build_dir / "kafka" / "libs"
    if not any(libs.glob("kafka_2.13-*.jar")):
        msg = f"no Kafka jars in {libs}: run `make kafka`"
        raise KafkaUnavailableError(msg)
    if shutil.which("java") is None:
        msg = "java is not on the PATH: install a JDK (17 or newer)"
        raise KafkaUnavailableError(msg)
    return libs


@dataclass(frozen=True)
class BrokerTls:
    """Files of a broker that speaks mutual TLS alone and asks who may do what (PEM).

    ``identity``: key (PKCS #8) and certificate of service/kafka in one file; ``authority``: whose certificates
    it takes.
    """

    identity: Path
    authority: Path

    def properties(self) -> list[str]:
        """Settings of the broker."""
        return [
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={self.identity}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.authority}",
            "ssl.client.auth=required",
            f"ssl.principal.mapping.rules={broker_access.PRINCIPAL_RULE}",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found=false",
            f"super.users=User:service:kafka;User:{broker_access.ADMINISTRATOR}",
        ]


def server_properties(
    settings: PlatformSettings, data: Path, *, with_nodes: bool, protection: BrokerTls | None = None
) -> str:
    """Broker configuration. ``with_nodes`` adds the listener on the lab's management bridge; with ``protection`` every
    listener speaks mutual TLS.
    """
    protocol = "SSL" if protection else "PLAINTEXT"
    listeners = [f"SERVICES://127.0.0.1:{settings.kafka_port}"]
    if with_nodes:
        listeners.append(f"NODES://{settings.management_address}:{settings.kafka_node_port}")
    return "\n".join(
        [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{settings.kafka_controller_port}",
            f"listeners={','.join(listeners)},CONTROLLER://127.0.0.1:{settings.kafka_controller_port}",
            f"advertised.listeners={','.join(listeners)}",
            f"listener.security.protocol.map=SERVICES:{protocol},NODES:{protocol},CONTROLLER:{protocol}",
            *(protection.properties() if protection else []),
            "inter.broker.listener.name=SERVICES",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={data}",
            "auto.create.topics.enable=false",
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=4",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            # After kill -9 the controller takes the broker back only when its former session has ended (default 9 s).
            "broker.session.timeout.ms=4000",
            "broker.heartbeat.interval.ms=1000",
            "num.network.threads=2",
            "num.io.threads=2",
            "log.cleaner.dedupe.buffer.size=16777216",
            "",
        ]
    )


def java_command(settings: PlatformSettings, main: str, *arguments: str) -> tuple[str, ...]:
    """Command line for one of the broker's Java programs."""
    libs = jars(settings)
    return (
        "java",
        f"-Xmx{settings.kafka_heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # a broker of one machine is young and little loaded: compiling it well costs more
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        f"{libs}/*",
        main,
        *arguments,
    )


def prepare(settings: PlatformSettings, *, with_nodes: bool, protection: BrokerTls | None = None) -> Program:
    """Write the configuration, format the storage once, and return the program to supervise."""
    home = settings.platform_dir / "kafka"
    data = home / "data"
    home.mkdir(parents=True, exist_ok=True)
    properties = home / "server.properties"
    properties.write_text(server_properties(settings, data, with_nodes=with_nodes, protection=protection))
    if not (data / "meta.properties").exists():
        cluster_id = uuid.uuid4().hex[:22]
        subprocess.run(
            java_command(settings, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)),
            check=True,
            capture_output=True,
            timeout=60,
        )
    return Program(
        name="kafka",
        command=java_command(settings, "kafka.Kafka", str(properties)),
        stage=0,
        health=f"tcp:127.0.0.1:{settings.kafka_port}",
        stop_wait_s=20,
    )
