"""How clients of the broker identify themselves: librdkafka's own settings, from one file.

``CHART_KAFKA_PROPERTIES`` names a file of ``name=value`` lines (security.protocol, ssl.ca.location, sasl.mechanism and
others; see librdkafka's CONFIGURATION.md). Services, tools and agents read the same file, so that a cluster's security
is stated once. Settings on which the guarantees of the streams rest cannot be changed by it.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "CHART_KAFKA_PROPERTIES"
# Where the broker is and how the client proves itself; nothing that delivery or order depends on.
ALLOWED_PREFIXES = ("security.", "ssl.", "sasl.", "enable.ssl.", "broker.address.", "client.rack")


class KafkaPropertiesError(ValueError):
    """The file cannot be read or says something it may not; the message names the line."""


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
