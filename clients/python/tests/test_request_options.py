"""The options of `chart request` are the fields that the gateway takes, as its OpenAPI document has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from chart_client.cli import build
from chart_client.commands import request
from chart_client.commands.request_options import FIELDS, OPTION_OF
from support.gateway_thread import Running

DOCUMENT = Path(__file__).parents[3] / "web" / "openapi.json"
# Words of one thing to say it in another: they are not fields.
NOT_FIELDS = {"wait", "timeout", "server", "token", "as_json"}


def properties(schema: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DOCUMENT.read_text())["components"]["schemas"][schema]["properties"]
    return found


def options(name: str) -> set[str]:
    command: Any = typer.main.get_command(request.app)
    return {parameter.name for parameter in command.commands[name].params} - NOT_FIELDS


def test_every_field_has_an_option() -> None:
    assert set(FIELDS) == set(properties("RateRequestBody"))
    assert options("create") == set(FIELDS)


def test_a_preview_takes_what_has_a_say_in_the_answer() -> None:
    assert options("preview") == set(FIELDS) - {"description", "tags", "callback_url", "hold"}


def test_a_change_reaches_every_field() -> None:
    of_field = {"guaranteed_bps": "rate", "callback_url": "callback", "tags": "tag"}
    of_field |= {"minimum_bps": "minimum", "maximum_bps": "maximum"}
    wanted = {of_field.get(name, name) for name in properties("RateRequestChange")}
    assert options("change") - {"request_id", "endless", "look"} == wanted


def test_defaults_and_bounds_are_those_of_the_interface() -> None:
    for name, schema in properties("RateRequestBody").items():
        kinds = [schema, *schema.get("anyOf", ())]
        integer = next((one for one in kinds if one.get("type") == "integer"), None)
        said = FIELDS[name].annotation.__metadata__[0]
        if integer and not name.endswith("_bps"):
            assert said.min == integer.get("minimum"), name
            # Durations and ids of groups are bounded by the gateway alone.
            assert said.max in (None, integer.get("maximum")), name
        if schema.get("default") and name != "traffic_class":
            assert FIELDS[name].default == schema["default"], name


def test_all_of_them_at_once(gateway: Running) -> None:
    words = [
        *("request", "create", "--from", "alpha", "--to", "delta", "--rate", "10M", "--service", "variable"),
        *("--minimum", "5M", "--maximum", "20M", "--protocol", "udp", "--port", "5201", "--source-port", "5000"),
        *("--dscp", "46", "--cgroup-id", "77", "--delay-priority", "200", "--burst-tolerance", "1"),
        *("--start", "2031-01-02T03:04:05", "--end", "2031-01-03T03:04:05", "--background", "--avoid", "bravo"),
        *("--description", "copy", "--tag", "site=lab", "--callback", "https://app.example/chart", "--json"),
    ]
    result = CliRunner().invoke(build(words), words)
    assert result.exit_code == 0, result.output
    asked = json.loads(result.stdout)["request"]
    assert asked["minimum_bps"] == 5_000_000
    assert asked["maximum_bps"] == 20_000_000
    assert (asked["protocol"], asked["source_port"], asked["destination_port"]) == ("udp", 5000, 5201)
    assert (asked["dscp"], asked["cgroup_id"]) == (46, 77)
    assert (asked["delay_priority"], asked["burst_tolerance"]) == (200, 1)
    assert (asked["traffic_class"], asked["avoid"], asked["tags"]) == ("background", ["bravo"], {"site": "lab"})
    assert asked["callback_url"] == "https://app.example/chart"
    assert asked["start"] is not None
    assert asked["end"] is not None


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--service", "maximum"), "--maximum"),
        (("--rate", "10M", "--minimum", "20M"), "--minimum"),
        (("--rate", "10M", "--background", "--priority", "3"), "--priority"),
        (("--rate", "10M", "--end", "2031-01-03T03:04:05", "--duration", "60"), "--duration"),
    ],
)
def test_a_refusal_names_the_option(gateway: Running, words: tuple[str, ...], option: str) -> None:
    command = ["request", "create", "--from", "alpha", "--to", "delta", *words]
    result = CliRunner().invoke(build(command), command)
    assert result.exit_code == 1
    assert f"{option}: " in result.stderr


def test_options_of_refusals_are_options() -> None:
    command: Any = typer.main.get_command(request.app)
    known = {word for one in command.commands["create"].params for word in (*one.opts, *one.secondary_opts)}
    assert set(OPTION_OF.values()) <= known
