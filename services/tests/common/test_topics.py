"""`chart topics`: creates, repeats without effect, repairs settings, reports what it may not change."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget the re-exports
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from typer.testing import CliRunner

from chart.common import catalogue, topics
from chart.common.catalogue import Catalogue, Topic
from support.kafka import fresh_catalogue


def test_every_stream_is_wanted_with_its_dead_letters() -> None:
    wanted = {topic.name: topic for topic in topics.wanted(catalogue.load())}
    assert wanted["chart.link-load.v1"].partitions == 16
    assert wanted["chart.link-load.v1"].settings["retention.ms"] == "3600000"
    assert wanted["chart.flow-grant.v1"].settings["cleanup.policy"] == "compact"
    assert wanted["chart.flow-grant.v1.dlq"].partitions == 1
    assert "chart.audit.v1.dlq" not in wanted


@pytest.mark.contract
def test_apply_creates_repeats_and_repairs(kafka_bootstrap: str) -> None:
    own, names = fresh_catalogue(None, state="chart.policy.v1")
    name = names["state"]
    assert topics.apply(kafka_bootstrap, catalogue=own).created == [name, f"{name}.dlq"]
    again = topics.apply(kafka_bootstrap, catalogue=own)
    assert (again.created, again.changed, again.differences) == ([], {}, [])
    assert sorted(again.unchanged) == [name, f"{name}.dlq"]

    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.9", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)
    assert topics.apply(kafka_bootstrap, catalogue=own).changed == {name: {"min.cleanable.dirty.ratio": "0.1"}}
    assert topics.apply(kafka_bootstrap, catalogue=own).changed == {}

    wider = Catalogue([Topic(name, "chart.v1.Policy", "id", 2, "compact", None, False)])
    (words,) = topics.apply(kafka_bootstrap, catalogue=wider).differences
    assert "has 1 partitions, the catalogue says 2" in words


@pytest.mark.contract
def test_the_command_line(kafka_bootstrap: str) -> None:
    runner = CliRunner()
    applied = runner.invoke(topics.app, ["apply", "--bootstrap", kafka_bootstrap, "--json"])
    assert applied.exit_code == 0, applied.output
    assert json.loads(applied.stdout)["differences"] == []
    listed = runner.invoke(topics.app, ["list", "--bootstrap", kafka_bootstrap, "--json"])
    assert all(topic["present"] for topic in json.loads(listed.stdout)["topics"])
    plain = runner.invoke(topics.app, ["list", "--bootstrap", kafka_bootstrap])
    assert "chart.topology.v1" in plain.stdout


def test_a_broker_that_is_away_is_said_and_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "LIMIT_S", 0.5)
    result = CliRunner().invoke(topics.app, ["apply", "--bootstrap", "127.0.0.1:1"])
    assert result.exit_code == 1
