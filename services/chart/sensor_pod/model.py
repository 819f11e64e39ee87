"""A sensing configuration as the pod works with it, and which configurations one run can answer.

Paper: The CHART System, section 6 (configuration repository, merging of requests). Pure.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

from chart.sensor_pod import composition
from chart.v1 import sensing_configuration_pb2 as pb

# Faster is not monitoring any more, it is load; the budget would stop it anyway, this says so at once.
PERIOD_FLOOR_MS = 100
PERIOD_CEILING_MS = 30 * 86_400_000
_SENSOR = re.compile(r"^[a-z][a-z0-9-]{0,31}$")
_PARAMETER = re.compile(r"^[a-z][a-z0-9_]{0,31}$")
# What the pod itself decides about a sensor.
_RESERVED = frozenset({"id", "destination", "declare", "serve", "json", "verbose", "key_file", "sensor"})


class InvalidConfigurationError(ValueError):
    """A configuration that cannot be run; ``field`` is at fault."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field
        self.detail = detail


Parameters = tuple[tuple[str, str], ...]


@dataclass(frozen=True, order=True)
class GroupKey:
    """What must be equal for one run to serve several configurations."""

    sensor: str
    destination_node: str
    destination_address: str
    parameters: tuple[tuple[str, str], ...]

    def text(self) -> str:
        """A readable form that is unique, for the repository and the log."""
        words = " ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.sensor} {self.destination_node} {self.destination_address} {words}".rstrip()


@dataclass(frozen=True)
class Configuration:
    """One sensing configuration; times in microseconds, ``period_us`` 0 is a one-shot."""

    id: str
    destination_node: str
    destination_address: str
    sensor: str
    parameters: tuple[tuple[str, str], ...]
    period_us: int
    tolerance_us: int
    priority: int = 0
    # Wall clock; 0: until removed.
    valid_until_us: int = 0
    owner: str = ""

    @functools.cached_property
    def key(self) -> GroupKey:
        """Configurations of one key share their runs."""
        return GroupKey(self.sensor, self.destination_node, self.destination_address, self.parameters)


def canonical_parameters(parameters: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Parameters in one order and one spelling: "10", " 10" and "10.0" are the same number."""
    return tuple(sorted((name, _canonical(value)) for name, value in parameters.items()))


def _canonical(value: str) -> str:
    text = value.strip()
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def from_proto(message: pb.SensingConfiguration, *, one_shot: bool = False) -> Configuration:
    """Check a configuration and take it over; ``one_shot`` ignores its period.

    Raises:
        InvalidConfigurationError: naming the field and what would be accepted.
    """
    if not message.id and not one_shot:
        raise InvalidConfigurationError("id", "is missing")
    if not _SENSOR.match(message.sensor):
        raise InvalidConfigurationError("sensor", f"{message.sensor!r} is no name of a sensor, such as ping")
    try:
        address = ipaddress.ip_address(message.destination_address)
    except ValueError:
        detail = f"{message.destination_address!r} is no IP address, such as 10.1.0.2"
        raise InvalidConfigurationError("destination_address", detail) from None
    for name in message.parameters:
        if name in _RESERVED or not _PARAMETER.match(name):
            raise InvalidConfigurationError("parameters", f"{name!r} cannot be set")
    parameters = canonical_parameters(message.parameters)
    if message.sensor == composition.SENSOR:
        try:
            composition.parse(dict(parameters))
        except composition.CompositionError as error:
            raise InvalidConfigurationError("parameters", str(error)) from None
    period_ms = 0 if one_shot else message.period_ms
    if not one_shot and not PERIOD_FLOOR_MS <= period_ms <= PERIOD_CEILING_MS:
        detail = f"{period_ms} is not between {PERIOD_FLOOR_MS} and {PERIOD_CEILING_MS}"
        raise InvalidConfigurationError("period_ms", detail)
    if message.priority > 255:
        raise InvalidConfigurationError("priority", f"{message.priority} is not between 0 and 255")
    return Configuration(
        id=message.id,
        destination_node=message.destination_node,
        destination_address=str(address),
        sensor=message.sensor,
        parameters=parameters,
        period_us=period_ms * 1000,
        tolerance_us=message.tolerance_ms * 1000 or period_ms * 500,
        priority=message.priority,
        valid_until_us=message.valid_until_us,
        owner=message.owner,
    )
