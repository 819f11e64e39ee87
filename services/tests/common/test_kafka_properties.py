"""The file in which a deployment states how clients of the broker identify themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chart.common import kafka_properties, streams
from chart.common.settings import BaseServiceSettings


def test_without_a_file_nothing_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kafka_properties.VARIABLE, raising=False)
    assert kafka_properties.load() == {}


def test_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# production\n\nsecurity.protocol = SSL\nssl.ca.location=/run/ca.pem\nsasl.password=a=b\n")
    monkeypatch.setenv(kafka_properties.VARIABLE, str(file))
    assert kafka_properties.load() == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/run/ca.pem",
        "sasl.password": "a=b",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("security.protocol", "k:1: expected name=value"),
        ("\n=SSL", "k:2: expected name=value"),
        ("acks=0", "k:1: acks may not be set here"),
        ("enable.idempotence=false", "may not be set here"),
    ],
)
def test_mistakes_are_named(text: str, says: str) -> None:
    with pytest.raises(kafka_properties.KafkaPropertiesError, match=says.replace(".", r"\.")):
        kafka_properties.parse(text, "k")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(kafka_properties.KafkaPropertiesError, match="cannot read"):
        kafka_properties.load(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("bootstrap", "properties", "refused"),
    [
        ("kafka:9092", {}, "kafka:9092"),
        ("kafka:9092", {"security.protocol": "SASL_PLAINTEXT"}, "kafka:9092"),
        ("127.0.0.1:9092,[::1]:9092,localhost:9092", {}, None),
        ("127.0.0.1:9092,10.0.0.7:9092", {}, "10.0.0.7:9092"),
        ("localhost.example:9092", {"security.protocol": "plaintext"}, "localhost.example:9092"),
        ("kafka:9093", {"security.protocol": "SSL"}, None),
        ("kafka:9093", {"security.protocol": "sasl_ssl"}, None),
    ],
)
def test_production_speaks_tls_or_to_this_machine(
    bootstrap: str, properties: dict[str, str], refused: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    monkeypatch.setenv(kafka_properties.VARIABLE, str(file))
    if refused is None:
        kafka_properties.refuse_plain(bootstrap, kafka_properties.load())
        return
    settings = BaseServiceSettings(environment="production", kafka_bootstrap=bootstrap)
    with pytest.raises(
        kafka_properties.KafkaPropertiesError, match=f"speak to the broker at {re.escape(refused)} in plain"
    ):
        streams.connect(settings)
