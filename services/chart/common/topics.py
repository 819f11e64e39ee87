"""`chart topics`: make the broker's topics and access rules what the catalogue says, and report what differs.

Topics are created with their dead letters; existing ones are never deleted, and their partitions never changed (that
would move keys). Differing settings are changed, because a retention that is too short loses data silently. Rights of
services are added where they are missing; rights that the catalogue does not give are reported, never taken away: an
operator may have given them to a program of his own. Rights of nodes are the authority's (broker_rights.py there).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget the re-exports
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from rich.console import Console
from rich.table import Table
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from chart.common import broker_access, kafka_properties
from chart.common import catalogue as catalogues
from chart.common.catalogue import Catalogue, Topic

DLQ_RETENTION_MS = 7 * 86400 * 1000
DEFAULT_BOOTSTRAP = "127.0.0.1:19092"
LIMIT_S = 30.0
LOOK_EVERY_S = 0.05

app = typer.Typer(help="Streams of the broker.", no_args_is_help=True)
console = Console(stderr=True)

BootstrapOption = Annotated[
    str, typer.Option("--bootstrap", envvar="CHART_KAFKA_BOOTSTRAP", help="HOST:PORT of the broker.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


@dataclass(frozen=True)
class Wanted:
    """One topic as it should be."""

    name: str
    partitions: int
    settings: dict[str, str]


@dataclass
class Changes:
    """What `apply` did, and what it found and may not change."""

    created: list[str] = field(default_factory=list)
    changed: dict[str, dict[str, str]] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    rights: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    # Whether the broker asks who may do what.
    authoriser: bool = True


class TopicsError(RuntimeError):
    """The broker could not be asked or refused; the message says what."""


def wanted(catalogue: Catalogue, replication: int = 1) -> list[Wanted]:
    """Every topic of the catalogue with its dead letters.

    A record counts as written when all copies but one have it, so that one broker may fail.
    """
    copies = {"min.insync.replicas": str(max(1, replication - 1))}
    topics = []
    for topic in catalogue.topics():
        topics.append(Wanted(topic.name, topic.partitions, {**topic_settings(topic), **copies}))
        if topic.dlq:
            # Keyed by origin, see records.dead_letter_key: the same record buried twice is kept once.
            settings = {"cleanup.policy": "compact,delete", "retention.ms": str(DLQ_RETENTION_MS), **copies}
            topics.append(Wanted(topic.dlq_name, 1, {**settings, "segment.bytes": str(16 << 20)}))
    return topics


def topic_settings(topic: Topic) -> dict[str, str]:
    """Broker settings of one topic."""
    if topic.cleanup == "compact":
        # A cold reader reads what is not compacted yet: small segments and an early cleaner keep that short. A
        # tombstone stays for a day, so that a reader that was away that long still learns of it.
        return {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.1",
            "segment.bytes": str(8 << 20),
            "segment.ms": str(3600 * 1000),
            "max.compaction.lag.ms": str(6 * 3600 * 1000),
            "delete.retention.ms": str(86400 * 1000),
        }
    assert topic.retention_ms is not None
    segment_ms = max(600_000, min(86400 * 1000, topic.retention_ms // 4))
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(topic.retention_ms),
        "segment.bytes": str(64 << 20),
        "segment.ms": str(segment_ms),
    }


def apply(
    bootstrap: str,
    *,
    catalogue: Catalogue | None = None,
    replication: int | None = None,
    properties: Mapping[str, str] | None = None,
) -> Changes:
    """Create what is missing, set what differs, report what cannot be changed; safe to repeat.

    ``replication`` defaults to CHART_KAFKA_REPLICATION or 1, ``properties`` to the file of CHART_KAFKA_PROPERTIES.

    Raises:
        TopicsError: the broker does not answer or refuses.
    """
    replication = replication or int(os.environ.get("CHART_KAFKA_REPLICATION", "1"))
    who = kafka_properties.load() if properties is None else properties
    admin = AdminClient({**who, "bootstrap.servers": bootstrap, "log_level": 3})
    changes = Changes()
    catalogue = catalogue or catalogues.load()
    try:
        existing = admin.list_topics(timeout=LIMIT_S).topics
        topics = wanted(catalogue, replication)
        missing = [topic for topic in topics if topic.name not in existing]
        _create(admin, missing, replication, changes)
        _await_leaders(admin, missing)
        present = [topic for topic in topics if topic.name in existing]
        for topic in present:
            partitions = existing[topic.name].partitions
            if len(partitions) != topic.partitions:
                changes.differences.append(
                    f"{topic.name} has {len(partitions)} partitions, the catalogue says {topic.partitions}"
                )
            copies = min((len(partition.replicas) for partition in partitions.values()), default=replication)
            if copies < replication:
                changes.differences.append(
                    f"{topic.name} has {copies} copies of each record, {replication} are asked for: "
                    "kafka-reassign-partitions.sh adds them"
                )
        _configure(admin, present, changes)
        _give_rights(admin, catalogue, changes)
    except broker_access.RulesNotInForceError as error:
        msg = f"Kafka at {bootstrap}: {error}"
        raise TopicsError(msg) from error
    except KafkaException as error:
        reason = error.args[0]
        words = reason.str() if isinstance(reason, KafkaError) else str(error)
        msg = f"Kafka at {bootstrap}: {words}"
        raise TopicsError(msg) from error
    return changes


def _create(admin: AdminClient, topics: list[Wanted], replication: int, changes: Changes) -> None:
    if not topics:
        return
    new = [
        NewTopic(topic.name, num_partitions=topic.partitions, replication_factor=replication, config=topic.settings)
        for topic in topics
    ]
    for name, future in admin.create_topics(new, operation_timeout=LIMIT_S).items():
        try:
            future.result(LIMIT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another caller was quicker
                raise
        changes.created.append(name)


def _await_leaders(admin: AdminClient, topics: list[Wanted]) -> None:
    """Return when every partition of new topics has a leader: only then may they be written and read."""
    names = {topic.name for topic in topics}

    def waiting() -> list[str]:
        known = admin.list_topics(timeout=LIMIT_S).topics
        return sorted(
            name
            for name in names
            if name not in known
            or not known[name].partitions
            or any(partition.leader < 0 for partition in known[name].partitions.values())
        )

    looking = Retrying(retry=retry_if_result(bool), wait=wait_fixed(LOOK_EVERY_S), stop=stop_after_delay(LIMIT_S))
    try:
        looking(waiting)
    except RetryError as error:
        msg = f"no leader within {LIMIT_S:g} s for {', '.join(error.last_attempt.result())}"
        raise TopicsError(msg) from error


def _configure(admin: AdminClient, topics: list[Wanted], changes: Changes) -> None:
    if not topics:
        return
    settings = {topic.name: topic.settings for topic in topics}
    described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in settings])
    updates = []
    for resource, future in described.items():
        actual: dict[str, Any] = {name: entry.value for name, entry in future.result(LIMIT_S).items()}
        differing = {
            name: value for name, value in settings[resource.name].items() if not _same(actual.get(name), value)
        }
        if not differing:
            changes.unchanged.append(resource.name)
            continue
        changes.changed[resource.name] = differing
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in differing.items()
        ]
        updates.append(ConfigResource(ResourceType.TOPIC, resource.name, incremental_configs=entries))
    if updates:
        for future in admin.incremental_alter_configs(updates).values():
            future.result(LIMIT_S)


def _give_rights(admin: AdminClient, catalogue: Catalogue, changes: Changes) -> None:
    """Add the rights that services lack; report those of the broker that the catalogue does not give."""
    try:
        actual = broker_access.in_force(admin, LIMIT_S)
        found = broker_access.difference(broker_access.of_services(catalogue), actual)
        broker_access.change(admin, broker_access.Difference(missing=found.missing), LIMIT_S)
    except broker_access.NoAuthoriser:
        changes.authoriser = False
        return
    changes.rights = [str(rule) for rule in found.missing]
    for rule in found.surplus:
        kind, _, name = rule.principal.partition(":")
        if kind != "node" or rule not in broker_access.of_node(catalogue, name):
            changes.differences.append(f"{rule}, which the catalogue does not say")


def _same(actual: str | None, value: str) -> bool:
    return actual is not None and sorted(actual.split(",")) == sorted(value.split(","))


@app.command("apply")
def apply_command(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    replication: Annotated[
        int, typer.Option(envvar="CHART_KAFKA_REPLICATION", min=1, help="Copies of each record.")
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Create missing topics and rights, set differing settings; exit status 1 when something differs still."""
    try:
        changes = apply(bootstrap, replication=replication)
    except TopicsError as error:
        console.print(f"[red]topics:[/red] {error}", highlight=False)
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps(asdict(changes)))
    else:
        for name in changes.created:
            console.print(f"  [green]+[/green] {name}", highlight=False)
        for name, settings in changes.changed.items():
            words = ", ".join(f"{key}={value}" for key, value in settings.items())
            console.print(f"  [yellow]~[/yellow] {name}: {words}", highlight=False)
        for right in changes.rights:
            console.print(f"  [green]+[/green] {right}", highlight=False)
        if not changes.authoriser:
            console.print("  [yellow]the broker checks nobody's rights: any client may write everything[/yellow]")
        for words in changes.differences:
            console.print(f"  [red]![/red] {words}", highlight=False)
        console.print(
            f"{len(changes.created)} created, {len(changes.changed)} changed, {len(changes.unchanged)} as they were"
        )
    if changes.differences:
        raise typer.Exit(1)


@app.command("list")
def list_command(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, as_json: JsonOption = False) -> None:
    """Show the catalogue and whether the broker has each topic."""
    admin = AdminClient({**kafka_properties.load(), "bootstrap.servers": bootstrap, "log_level": 3})
    try:
        existing = set(admin.list_topics(timeout=5.0).topics)
    except KafkaException as error:
        console.print(f"[red]topics:[/red] Kafka at {bootstrap} does not answer", highlight=False)
        raise typer.Exit(1) from error
    rows = [
        {"name": topic.name, "message": topic.message, "key": topic.key, "partitions": topic.partitions,
         "cleanup": topic.cleanup, "retention_ms": topic.retention_ms, "present": topic.name in existing}
        for topic in catalogues.load().topics()
    ]  # fmt: skip
    if as_json:
        typer.echo(json.dumps({"topics": rows}))
        return
    table = Table("topic", "message", "key", "partitions", "cleanup", "present")
    for row in rows:
        table.add_row(*(str(row[name]) for name in ("name", "message", "key", "partitions", "cleanup")),
                      "[green]yes[/green]" if row["present"] else "[red]no[/red]")  # fmt: skip
    Console(width=140).print(table)
