#!/usr/bin/env python3
"""Which options of our programs the registry's configuration does not reach: `tools/flags.py [--list]`.

Options are read from the programs' own parsers: tables of options in C, models of settings in Python, and variables of
the environment that services read themselves. tools/flags.yaml says of each either which field of the REST interface
reaches it (the field must exist in web/openapi.json) or why it is a fact of the deployment: an address, a file, a name.
What is neither is a feature that only a flag switches on; `make lint` counts those as `features_by_flag_only`
(tools/house.py).
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic_settings import BaseSettings

ROOT = Path(__file__).resolve().parents[1]
ENTRIES = ROOT / "tools" / "flags.yaml"
SCHEMA = ROOT / "web" / "openapi.json"
# Rows of a table of options: {"--name", ...} with our own parsers, {"name", required_argument, ...} with getopt_long,
# {"name", OPTION_TEXT, OPTION_COMMAND_LINE, ...} of the sensors.
ROW = re.compile(
    r'^\s*\{"(?:--(?P<own>[a-z0-9-]+)"|(?P<other>[a-z0-9-]+)",\s*'
    r"(?:(?:required|no|optional)_argument|OPTION_[A-Z]+,\s*(?P<where>OPTION_[A-Z_]+)))",
    re.MULTILINE,
)
READ_DIRECTLY = re.compile(r'environ\.get\(\s*"(CHART_[A-Z0-9_]+)"')


@dataclass
class Findings:
    """What came out: options that nothing but a flag reaches, and entries that are wrong."""

    by_flag_only: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def options_of_c(text: str) -> dict[str, bool]:
    """Options of a C program, and whether they can be given in a configuration of the sensor too."""
    found = {}
    for row in ROW.finditer(text):
        name = row["own"] or row["other"]
        found[f"--{name}"] = row["where"] == "OPTION_ANYWHERE"
    return found


def settings_of_python(module: str) -> list[str]:
    """Settings that a service's own model adds; those of every service are the base model's."""
    models = importlib.import_module(module)
    (model,) = (
        value
        for value in vars(models).values()
        if isinstance(value, type) and issubclass(value, BaseSettings) and value.__module__ == module
    )
    inherited = {name for parent in model.__bases__ if issubclass(parent, BaseSettings) for name in parent.model_fields}
    return [name for name in model.model_fields if name not in inherited]


def read_directly(folder: Path) -> list[str]:
    """Variables of the environment that a folder's Python sources read without a model."""
    return sorted({name for path in folder.rglob("*.py") for name in READ_DIRECTLY.findall(path.read_text())})


def fields_of(schema: Mapping[str, Any]) -> set[str]:
    """``Model.field`` of every body of the REST interface."""
    models = schema["components"]["schemas"]
    return {f"{name}.{one}" for name, model in models.items() for one in model.get("properties", {})}


def options_of(program: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """The options of one program, and whether a configuration of the sensor reaches them."""
    for source in program.get("c", []):
        yield from options_of_c((ROOT / source).read_text()).items()
    for module in program.get("python", []):
        yield from ((name, False) for name in settings_of_python(module))
    for folder in program.get("environment", []):
        yield from ((name, False) for name in read_directly(ROOT / folder))


def judge(entries: Mapping[str, Any], schema: Mapping[str, Any]) -> Findings:
    """Compare what the parsers take with what the entries say."""
    findings = Findings()
    known, reasons = fields_of(schema), entries["reasons"]
    for name, program in entries["programs"].items():
        facts: dict[str, str] = {}
        for reason, options in program.get("facts", {}).items():
            if reason not in reasons:
                findings.wrong.append(f"{name}: no reason is called {reason}")
            for option in options:
                if option in facts:
                    findings.wrong.append(f"{name} {option}: stands twice")
                facts[option] = reason
        reached: dict[str, str] = program.get("reached", {})
        present = dict(options_of(program))
        if not present:
            findings.wrong.append(f"{name}: its parser has no option that was understood")
        findings.wrong += [f"{name} {option}: no such option" for option in {*facts, *reached} - set(present)]
        findings.wrong += [f"{name} {option}: a fact and reached" for option in set(facts) & set(reached)]
        for option, by_parameters in present.items():
            way = reached.get(option, program.get("parameters", "") if by_parameters else "")
            if option not in facts and way not in known:
                what = f", {way} is no field of the interface yet" if way else ""
                findings.by_flag_only.append(f"{name} {option}{what}")
    return findings


def read() -> tuple[Findings, int]:
    """The findings in this checkout, and how many flags of that kind are accepted for now."""
    entries = yaml.safe_load(ENTRIES.read_text())
    return judge(entries, json.loads(SCHEMA.read_text())), int(entries["ceiling"])


def main() -> int:
    """Exit status: 0 every entry is right and no more flags than accepted, 1 not."""
    parser = argparse.ArgumentParser(description="Options that the registry's configuration does not reach.")
    parser.add_argument("--list", action="store_true", help="name them")
    parser.add_argument("--json", action="store_true", help="the names as a JSON list")
    arguments = parser.parse_args()
    findings, ceiling = read()
    if arguments.json:
        print(json.dumps(findings.by_flag_only))
        return int(bool(findings.wrong))
    print(f"flags: {len(findings.by_flag_only)} features by flag only (goal 0, at most {ceiling} until then)")
    for line in (*findings.wrong, *(findings.by_flag_only if arguments.list else ())):
        print(f"  {line}")
    return int(bool(findings.wrong) or len(findings.by_flag_only) > ceiling)


if __name__ == "__main__":
    sys.exit(main())
