"""How clients of the broker identify themselves: librdkafka's own settings, from one file.

``CHART_KAFKA_PROPERTIES`` names a file of ``name=value`` lines (security.protocol, ssl.ca.location, sasl.mechanism and
others; see librdkafka's CONFIGURATION.md). Services, tools and agents read the same file, so that a cluster's security
is stated once. Settings on which the guarantees of the streams rest cannot be changed by it.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "CHART_KAFKA_PROPERTIES"
# Where the broker is and how the client proves itself; nothing that delivery or order depends on.
ALLOWED_PREFIXES = ("security.", "ssl.", "sasl.", "enable.ssl.", "broker.address.", "client.rack")


class KafkaPropertiesError(ValueError):
    """The file cannot be read or says something it may not; the message names the line."""


def refuse_plain(bootstrap: str, properties: Mapping[str, str]) -> None:
    """In production the broker is spoken to under TLS, except on this machine: whoever can write to a plain listener
    commands every node.

    Raises:
        KafkaPropertiesError: it would be plain.
    """
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol in ("ssl", "sasl_ssl"):
        return
    away = sorted(broker for broker in bootstrap.split(",") if not _is_loopback(broker.strip()))
    if away:
        msg = (
            f"production refuses to speak to the broker at {', '.join(away)} in plain: "
            f"state security.protocol=ssl and the certificate's files in the file that {VARIABLE} names"
        )
        raise KafkaPropertiesError(msg)


def _is_loopback(broker: str) -> bool:
    host = broker.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def load(path: str | None = None) -> dict[str, str]:
    """Settings for every client of the broker; empty without a file.

    Raises:
        KafkaPropertiesError: see there.
    """
    name = os.environ.get(VARIABLE, "") if path is None else path
    if not name:
        return {}
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{VARIABLE}: cannot read {name}: {error}"
        raise KafkaPropertiesError(msg) from error
    return parse(text, name)


def parse(text: str, name: str) -> dict[str, str]:
    """Settings of a file's text; ``name`` is for error messages. Comments start with ``#``."""
    properties: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, equals, value = (part.strip() for part in stripped.partition("="))
        if not equals or not key:
            msg = f"{name}:{number}: expected name=value"
            raise KafkaPropertiesError(msg)
        if not key.startswith(ALLOWED_PREFIXES):
            msg = f"{name}:{number}: {key} may not be set here; allowed are {', '.join(ALLOWED_PREFIXES)}"
            raise KafkaPropertiesError(msg)
        properties[key] = value
    return properties
