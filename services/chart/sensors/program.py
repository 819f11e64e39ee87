"""The program around a sensor: command line, ``--declare``, ``--serve``, results and failures.

The same words, exit statuses and JSON as the sensors in C (sensors/lib/sensor.h), so that a pod sees no difference.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

EXIT_STATUS = {"other": 1, "usage": 2, "unreachable": 3, "permission": 4}
LINE_MAX_BYTES = 16384
RUNS_AT_ONCE = 128

Value = str | int | float | bool
Parameters = dict[str, Any]


class SensorError(Exception):
    """Why a sensor gives no result; ``kind`` is a key of EXIT_STATUS."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Option:
    """One parameter; its type is that of its default."""

    name: str
    default: Value
    argument: str | None
    help: str
    minimum: float = 0
    maximum: float = 0
    command_line_only: bool = False

    @property
    def key(self) -> str:
        """Its name in a request."""
        return self.name.replace("-", "_")

    def read(self, value: object) -> Value:
        """A value as it comes from the command line or a request; numbers may come as text.

        Raises:
            SensorError: usage, with what would be right.
        """
        if isinstance(self.default, bool):
            if value in (True, False, "true", "false", "1", "0"):
                return value in (True, "true", "1")
            raise SensorError("usage", f"{self.name} must be true or false")
        if isinstance(self.default, str):
            if isinstance(value, str) and len(value) < 256:
                return value
            raise SensorError("usage", f"{self.name} must be a text of less than 256 characters")
        return self._number(value)

    def _number(self, value: object) -> Value:
        try:
            number = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or number != number:
            raise SensorError("usage", f"{self.name} must be a number, not {value!r:.40}")
        if not self.minimum <= number <= self.maximum:
            raise SensorError("usage", f"{self.name} must lie between {self.minimum:g} and {self.maximum:g}")
        if isinstance(self.default, float):
            return number
        if number != int(number):
            raise SensorError("usage", f"{self.name} must be a whole number")
        return int(number)


DESTINATION = Option("destination", "", "ADDRESS", "whom to measure")
RUN_OPTIONS = (
    Option("declare", False, None, "print the most bytes and time the run may take, send nothing"),
    Option("json", False, None, "print JSON lines"),
    Option("verbose", False, None, "also print what the result is made of"),
    Option("serve", False, None, "answer JSON requests, one per line of standard input", command_line_only=True),
)


@dataclass
class Result:
    """What a run found; ``details`` are further members of the record."""

    metrics: list[tuple[str, float, str]] = field(default_factory=list)
    probes_sent: int = 0
    probes_lost: int = 0
    probe_bytes: int = 0
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sensor:
    """A sensor: its options and the functions that declare, check and measure."""

    name: str
    synopsis: str
    description: str
    options: tuple[Option, ...]
    declare: Callable[[Parameters], tuple[int, int]]
    check: Callable[[Parameters], None]
    run: Callable[[Parameters], Awaitable[Result]]
    runs_at_once: int = RUNS_AT_ONCE

    @property
    def all_options(self) -> tuple[Option, ...]:
        """Its own and those that all have."""
        return (DESTINATION, *self.options, *RUN_OPTIONS)

    def defaults(self) -> Parameters:
        """Parameters nobody set."""
        return {option.key: option.default for option in self.all_options}


def read_arguments(sensor: Sensor, arguments: Sequence[str], parameters: Parameters) -> None:
    """Read a command line into the parameters. Raises SensorError (usage)."""
    known = {option.name: option for option in sensor.all_options}
    words = iter(arguments)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            raise SensorError("usage", f'unexpected argument "{word:.60}" (try --help)')
        option = known.get(name.replace("_", "-"))
        if option is None:
            raise SensorError("usage", f"unknown option {word:.60} (try --help)")
        if isinstance(option.default, bool):
            parameters[option.key] = option.read(value if equals else True)
            continue
        given = value if equals else next(words, None)
        if given is None:
            raise SensorError("usage", f"--{option.name} needs a value")
        parameters[option.key] = option.read(given)


def read_request(sensor: Sensor, request: Mapping[str, Any], parameters: Parameters) -> None:
    """Read a request's members into the parameters. Raises SensorError (usage)."""
    known = {option.key: option for option in sensor.all_options if not option.command_line_only}
    for name, value in request.items():
        if name in ("id", "sensor") or value is None:
            continue
        if name not in known:
            raise SensorError("usage", f'unknown parameter "{name:.60}"')
        parameters[name] = known[name].read(value)


def help_text(sensor: Sensor) -> str:
    """What --help prints."""
    lines = [f"usage: {sensor.name} {sensor.synopsis}", "", sensor.description, "", "options:"]
    for option in sensor.all_options:
        left = f"--{option.name}" + (f" {option.argument}" if option.argument else "")
        lines.append(f"  {left:<28} {option.help}")
    lines.append(f"  {'--help':<28} show this text")
    lines += ["", "exit status: 0 done, 1 other error, 2 usage, 3 peer unreachable, 4 permission missing"]
    return "\n".join(lines) + "\n"


def error_record(sensor: Sensor, failure: SensorError, request_id: object = None) -> dict[str, Any]:
    """The record of a failed run."""
    record = {"sensor": sensor.name, "error": {"kind": failure.kind, "message": str(failure)}}
    return record if request_id is None else {"id": request_id, **record}


async def answer(sensor: Sensor, parameters: Parameters, request_id: object = None) -> dict[str, Any]:
    """The declaration or the result of one run. Raises SensorError."""
    head = {} if request_id is None else {"id": request_id}
    sensor.check(parameters)
    if parameters["declare"]:
        size_bytes, duration_ms = sensor.declare(parameters)
        return {**head, "probe_bytes": size_bytes, "duration_ms": duration_ms}
    started_us = time.time_ns() // 1000
    result = await sensor.run(parameters)
    return {
        **head,
        "sensor": sensor.name,
        "metrics": [{"metric": name, "value": value, "unit": unit} for name, value, unit in result.metrics],
        "probes_sent": result.probes_sent,
        "probes_lost": result.probes_lost,
        "probe_bytes": result.probe_bytes,
        "started_at_us": started_us,
        "ended_at_us": time.time_ns() // 1000,
        **result.details,
    }


def parse_request(sensor: Sensor, line: bytes, defaults: Parameters) -> tuple[object, Parameters]:
    """Id and parameters of a request. Raises SensorError whose ``args`` may carry the id as second."""
    try:
        request = json.loads(line)
    except ValueError:
        raise SensorError("usage", "the request is not JSON") from None
    if not isinstance(request, dict):
        raise SensorError("usage", "a request is a JSON object")
    request_id = request.get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, (str, int, float)):
        raise SensorError("usage", "the request has no id (text or number)")
    parameters = dict(defaults)
    try:
        read_request(sensor, request, parameters)
    except SensorError as failure:
        failure.args = (str(failure), request_id)
        raise
    return request_id, parameters


def write_line(out: TextIO, record: Mapping[str, Any]) -> None:
    """One JSON line, at once."""
    out.write(json.dumps(record, separators=(",", ":")) + "\n")
    out.flush()


async def serve(sensor: Sensor, defaults: Parameters, source: asyncio.StreamReader, out: TextIO) -> None:
    """Answer requests until the input ends and nothing runs any more."""
    room = asyncio.Semaphore(sensor.runs_at_once)

    async def work(request_id: object, parameters: Parameters) -> None:
        async with room:
            try:
                write_line(out, await answer(sensor, parameters, request_id))
            except SensorError as failure:
                write_line(out, error_record(sensor, failure, request_id))
            except Exception as error:  # one bad run must not end the others
                words = f"{type(error).__name__}: {error}"
                write_line(out, error_record(sensor, SensorError("other", words), request_id))

    async with asyncio.TaskGroup() as group:
        while True:
            try:
                line = await source.readline()
            except ValueError:
                too_long = SensorError("usage", f"the request is longer than {LINE_MAX_BYTES} bytes")
                write_line(out, error_record(sensor, too_long))
                continue
            if not line:
                return
            if not line.strip():
                continue
            try:
                request_id, parameters = parse_request(sensor, line, defaults)
            except SensorError as failure:
                request_id = failure.args[1] if len(failure.args) > 1 else None
                write_line(out, error_record(sensor, SensorError(failure.kind, failure.args[0]), request_id))
                continue
            group.create_task(work(request_id, parameters))


async def _serve_standard_input(sensor: Sensor, defaults: Parameters) -> None:
    reader = asyncio.StreamReader(limit=LINE_MAX_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await serve(sensor, defaults, reader, sys.stdout)


def _print_text(record: Mapping[str, Any]) -> None:
    for metric in record.get("metrics", ()):
        sys.stdout.write(f"{metric['metric']:<24} {metric['value']:14.3f} {metric['unit']}\n")
    known = {"sensor", "metrics", "probes_sent", "probes_lost", "probe_bytes", "started_at_us", "ended_at_us"}
    details = {name: value for name, value in record.items() if name not in known}
    if details:
        sys.stdout.write(json.dumps(details, indent=1) + "\n")


def main(sensor: Sensor, arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parameters = sensor.defaults()
    try:
        if "--help" in arguments or "-h" in arguments:
            sys.stdout.write(help_text(sensor))
            return 0
        read_arguments(sensor, arguments, parameters)
        if parameters["serve"]:
            asyncio.run(_serve_standard_input(sensor, parameters))
            return 0
        record = asyncio.run(answer(sensor, parameters))
    except SensorError as failure:
        sys.stderr.write(f"{sensor.name}: {failure}\n")
        if parameters["json"] or parameters["serve"]:
            write_line(sys.stdout, error_record(sensor, failure))
        return EXIT_STATUS[failure.kind]
    except KeyboardInterrupt:
        return 130
    if parameters["json"] or parameters["declare"]:
        write_line(sys.stdout, record)
    else:
        _print_text(record)
    return 0
