"""The list of flags cannot say what is not so: it is compared with the parsers and with the interface."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
SCHEMA: dict[str, Any] = {"components": {"schemas": {"LinkBody": {"properties": {"capacity_bps": {}}}}}}
TABLE = """
static const struct option_row table[] = {
    {"--node", "NAME", STRING(node), "name of this node"},
    {"--link", "ID=IFACE",
     VALUE_LINK, "a link"},
};
static const struct option other[] = {
    {"mtu", required_argument, NULL, OPT_MTU},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};
static const struct option_spec specs[] = {
    {"count", OPTION_UNSIGNED, OPTION_ANYWHERE, FIELD(count), 1, 9, "N", "probes"},
    {"key-file", OPTION_TEXT, OPTION_COMMAND_LINE, FIELD(key_file), 0, 0, "FILE", "key"},
};
"""


@pytest.fixture(scope="module")
def flags() -> ModuleType:
    specification = importlib.util.spec_from_file_location("flags", TOOLS / "flags.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["flags"] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def judged(flags: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    def judge(program: dict[str, Any], options: dict[str, bool]) -> Any:
        monkeypatch.setattr(flags, "options_of", lambda _: options.items())
        return flags.judge({"reasons": {"name": "who it is"}, "programs": {"agent": program}}, SCHEMA)

    return judge


def test_options_are_read_from_all_three_kinds_of_tables(flags: ModuleType) -> None:
    found = flags.options_of_c(TABLE)
    assert found == {
        "--node": False,
        "--link": False,
        "--mtu": False,
        "--help": False,
        "--count": True,
        "--key-file": False,
    }


def test_settings_are_read_from_the_models(flags: ModuleType) -> None:
    assert "registry_first_enforcement" in flags.settings_of_python("chart.registry.settings")
    assert "kafka_bootstrap" not in flags.settings_of_python("chart.registry.settings")
    assert "kafka_bootstrap" in flags.settings_of_python("chart.common.settings")


def test_what_nothing_reaches_is_counted(judged: Any) -> None:
    program = {"facts": {"name": ["--node"]}, "reached": {"--link": "LinkBody.capacity_bps"}}
    found = judged(program, {"--node": False, "--link": False, "--fast": False})
    assert (found.by_flag_only, found.wrong) == (["agent --fast"], [])


def test_a_field_that_does_not_exist_reaches_nothing(judged: Any) -> None:
    found = judged({"reached": {"--link": "LinkBody.speed"}}, {"--link": False})
    assert found.by_flag_only == ["agent --link, LinkBody.speed is no field of the interface yet"]


@pytest.mark.parametrize(
    "program",
    [
        {"facts": {"name": ["--gone"]}},
        {"facts": {"whatever": ["--node"]}},
        {"facts": {"name": ["--node", "--node"]}},
        {"facts": {"name": ["--node"]}, "reached": {"--node": "LinkBody.capacity_bps"}},
    ],
)
def test_entries_that_are_wrong_are_told(judged: Any, program: dict[str, Any]) -> None:
    assert judged(program, {"--node": False}).wrong


def test_the_checkout_has_no_wrong_entry_and_no_more_flags_than_accepted(flags: ModuleType) -> None:
    findings, ceiling = flags.read()
    assert findings.wrong == []
    assert len(findings.by_flag_only) <= ceiling
