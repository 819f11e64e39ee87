"""`chart apply` and `chart export` against a running gateway, and the kinds against its OpenAPI document."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from chart_client import Client
from chart_client.cli import build
from chart_client.registry import document
from chart_client.registry.kinds import KINDS, Kind
from chart_client.registry.node_ends import overlay, proxied_traffic
from support.gateway_thread import Running

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples" / "topology.yaml")
OPENAPI = json.loads((ROOT / "web" / "openapi.json").read_text())


def chart(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(build(words), list(words), input=stdin)


def state() -> dict[str, dict[str, Any]]:
    with Client() as client:
        return {
            "nodes": {one.id: one for one in client.nodes.list()},
            "links": {one.id: one for one in client.links.list()},
            "policies": {one.id: one for one in client.policies.list()},
            "sensing-configurations": {one.id: one for one in client.sensing_configurations.list()},
        }


def file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "topology.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_fields_are_those_of_the_interface(kind: Kind) -> None:
    (operation,) = [
        methods["put"]
        for path, methods in OPENAPI["paths"].items()
        if path.startswith(f"/v1/{kind.name}/") and "put" in methods
    ]
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    schema = OPENAPI["components"]["schemas"][reference.rpartition("/")[2]]
    assert set(kind.fields) == set(schema["properties"])
    assert {name for name, one in kind.fields.items() if one.required} == set(schema.get("required", ()))
    for name, one in kind.fields.items():
        stated = schema["properties"][name].get("default")
        # null leaves a part of a policy as it is; a file states all of it.
        assert (
            one.required
            or one.default == stated
            or (stated is None and one.default in ([], {}, "", proxied_traffic({}), overlay({"member": False})))
        ), name


def test_kinds_stand_after_what_they_name() -> None:
    names = [kind.name for kind in KINDS]
    assert names.index("nodes") == 0, "everything else may name a node"


def test_the_example_is_applied_once(gateway: Running) -> None:
    before = chart("apply", "-f", EXAMPLE, "--dry-run")
    assert before.exit_code == 3
    assert "+ node berlin" in before.stdout
    assert state()["nodes"] == {}, "a look changes nothing"
    assert chart("apply", "-f", EXAMPLE).exit_code == 0
    found = state()
    assert found["links"]["carrier:ge1"].capacity_bps == 50_000_000
    assert found["links"]["carrier:ge1"].admission_share == 0.6
    assert [name for name, one in found["links"].items() if one.scone] == ["carrier:ge1"]
    assert [name for name, one in found["links"].items() if one.quick_start] == ["carrier:ge1"]
    assert found["policies"]["default"].enforcement == "observe"
    berlin = found["policies"]["berlin"]
    assert (berlin.enforcement, berlin.link_controller, berlin.max_guaranteed_bps) == ("enforce", None, 40_000_000)
    assert found["sensing-configurations"]["berlin-madrid-rtt"].parameters == {"count": "10"}
    again = chart("apply", "-f", EXAMPLE)
    assert again.exit_code == 0
    assert again.stdout.startswith("everything is as in the files: 10 unchanged")
    assert {name: one.revision for name, one in state()["nodes"].items()} == {
        name: one.revision for name, one in found["nodes"].items()
    }
    assert chart("apply", "-f", EXAMPLE, "--dry-run", "--prune").exit_code == 0


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_export_is_what_apply_takes(gateway: Running, form: tuple[str, ...], tmp_path: Path) -> None:
    chart("apply", "-f", EXAMPLE)
    with Client() as client:
        client.nodes.put("berlin", addresses=["10.0.1.1/32"], map_position={"x": 0.25, "y": 1.0}, tags={"off": "no"})
        client.nodes.put("madrid", addresses=["10.0.2.1/32"], edges=[{"interface": "eth2", "aggregate_bps": 10**7}])
        client.policies.put("madrid", enforcement="off", max_guaranteed_bps=0, customer_weights={"gold": 3})
        limits = {"robot": {"configurations": 5, "probe_share": 0.5}}
        client.platform_settings.put(probe_share=0.005, inference_active_pairs=0, application_limits=limits)
    exported = chart("export", *form)
    assert exported.exit_code == 0
    assert document.read([("export", exported.stdout)]).items.keys() == {
        "nodes",
        "links",
        "policies",
        "platform-settings",
        "sensing-configurations",
    }
    assert "robot" in exported.stdout
    same = chart("apply", "-f", "-", "--prune", "--dry-run", stdin=exported.stdout)
    assert (same.exit_code, same.stdout) == (0, "12 unchanged\n")
    target = tmp_path / "export.yaml"
    assert chart("export", "--kind", "nodes", "-o", str(target)).exit_code == 0
    assert document.read([("export", target.read_text())]).items.keys() == {"nodes"}
    assert chart("export", "--kind", "node").exit_code == 2


def test_the_difference_is_shown_field_by_field(gateway: Running, tmp_path: Path) -> None:
    chart("apply", "-f", EXAMPLE)
    changed = file(
        tmp_path,
        "links:\n  - {id: 'berlin:eth1', to_node: carrier, capacity_bps: 60M, delay_us: 9000}\n"
        "policies:\n  - {id: berlin, enforcement: off}\n",
    )
    shown = chart("apply", "-f", changed, "--dry-run")
    assert shown.exit_code == 3
    assert shown.stdout.splitlines() == [
        "~ link berlin:eth1",
        "    capacity_bps: 100000000 (100 Mbit/s) -> 60000000 (60 Mbit/s)",
        "~ policy berlin",
        "    enforcement: enforce -> off",
        "    max_guaranteed_bps: 40000000 (40 Mbit/s) -> none",
        "2 to change, 0 unchanged",
    ]
    as_json = json.loads(chart("apply", "-f", changed, "--dry-run", "--json").stdout)
    assert as_json["differences"][0]["fields"] == {"capacity_bps": {"before": 100_000_000, "after": 60_000_000}}
    done = json.loads(chart("apply", "-f", changed, "--json").stdout)
    assert [(one["action"], one["id"]) for one in done["applied"]] == [("change", "berlin:eth1"), ("change", "berlin")]
    assert state()["policies"]["berlin"].max_guaranteed_bps is None


def test_nothing_is_deleted_unless_said_and_only_of_kinds_in_the_file(gateway: Running, tmp_path: Path) -> None:
    chart("apply", "-f", EXAMPLE)
    with Client() as client:
        lasting = {"source_node": "berlin", "destination_node": "madrid", "destination_address": "10.0.2.1"}
        client.sensing_configurations.put(
            "made-by-an-application", **lasting, sensor="ping", period_ms=1000, valid_until="2099-01-01T00:00:00Z"
        )
    left = file(tmp_path, "links:\n  - {id: 'berlin:eth1', to_node: carrier, capacity_bps: 100M, delay_us: 9000}\n")
    assert chart("apply", "-f", left).exit_code == 0
    assert len(state()["links"]) == 4
    pruned = chart("apply", "-f", left, "--prune")
    assert pruned.exit_code == 0
    assert "link madrid:eth1: deleted" in pruned.stdout
    found = state()
    assert set(found["links"]) == {"berlin:eth1"}
    assert (len(found["nodes"]), len(found["policies"])) == (3, 2)
    none = file(tmp_path, "links: []\npolicies: []\nsensing-configurations:\n")
    assert chart("apply", "-f", none, "--prune").exit_code == 0
    found = state()
    assert (found["links"], set(found["policies"])) == ({}, {"default"})
    assert set(found["sensing-configurations"]) == {"made-by-an-application"}


NODES = "nodes:\n  - {id: a}\n  - {id: b}\n"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("nodes: [", 1, "expected"),
        ("- id: a\n", 1, "lists of items by kind"),
        ("nodez:\n  - id: a\n", 1, "there is no kind 'nodez'; did you mean 'nodes'?"),
        ("nodes:\n  id: a\n", 2, "must be a list"),
        ("nodes:\n  - a\n", 2, "must be fields of a node"),
        ("nodes:\n  - id: a\n    adresses: []\n", 3, "nodes[0].adresses: a node has no such field; did you mean"),
        ("nodes:\n  - id: a\n    addresses: [10.0.0.1, 10.0.0.300]\n", 3, "nodes[0].addresses: '10.0.0.300' is no"),
        ("nodes:\n  - id: a\n    addresses: 10.0.0.1\n", 3, "is not a list of texts"),
        ("nodes:\n  - id: a\n\n  - id: a\n", 4, "node a is stated twice, first in"),
        ("nodes:\n  - id: a\n    description: x\n    description: y\n", 4, "is stated twice"),
        (NODES + "links:\n  - id: a:x\n", 5, "links[0]: to_node is missing"),
        (NODES + "links:\n  - id: a:x\n    to_node: b\n    capacity_bps: fast\n", 7, "'fast' is not a rate"),
        (NODES + "policies:\n  - {id: a, customer_weights: {gold: x}}\n", 5, "gold: 'x' is no number"),
        ("nodes:\n  - id: a\n    tags: !!python/object:os.system {}\n", 3, "could not determine a constructor"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, place: int, words: str
) -> None:
    monkeypatch.setenv("CHART_SERVER", "http://127.0.0.1:1")
    refused(file(tmp_path, text), place, words)


def refused(name: str, place: int, words: str) -> None:
    result = chart("apply", "-f", name)
    assert result.exit_code == 2, result.output
    told = re.sub(r"\s+", " ", result.stderr)
    assert f"{name}:{place}: " in told, told
    assert words in told
    assert "nothing was applied" in told


def test_what_is_named_has_to_be_there(gateway: Running, tmp_path: Path) -> None:
    links = "links:\n  - id: a:x\n    to_node: c\n    capacity_bps: 1M\n"
    refused(file(tmp_path, NODES + links), 6, "to_node: there is no node 'c'")
    policies = "policies:\n  - {id: c, enforcement: off}\n"
    refused(file(tmp_path, NODES + policies), 5, "policy c: id: there is no node 'c'")
    assert not any(state().values())


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    name = file(tmp_path, "nodes:\n  - {id: a, x: 1}\n  - {id: b, y: 1}\n")
    faults = json.loads(chart("apply", "-f", name, "--json").stdout)["error"]["faults"]
    assert [one.removeprefix(name).split(":")[1] for one in faults] == ["2", "3"]
    assert chart("apply", "-f", str(tmp_path / "missing.yaml")).exit_code == 2


def test_what_is_deleted_cannot_be_named(gateway: Running, tmp_path: Path) -> None:
    chart("apply", "-f", EXAMPLE)
    name = file(
        tmp_path, "nodes:\n  - id: berlin\nlinks:\n  - {id: 'berlin:eth1', to_node: carrier, capacity_bps: 1M}\n"
    )
    assert chart("apply", "-f", name, "--prune", "--dry-run").exit_code == 2
    assert chart("apply", "-f", name, "--dry-run").exit_code == 3


def test_a_refusal_says_what_was_applied_and_what_was_not(gateway: Running, tmp_path: Path) -> None:
    text = NODES + (
        "links:\n  - {id: 'a:x', to_node: b, capacity_bps: 1M}\n  - id: b:x\n    to_node: a\n    capacity_bps: 0\n"
        "policies:\n  - {id: a, enforcement: off}\n"
    )
    name = file(tmp_path, text)
    result = chart("apply", "-f", name)
    assert result.exit_code == 1
    told = re.sub(r"\s+", " ", result.stderr)
    assert f"{name}:8: link b:x: capacity_bps: " in told
    assert "applied: node a, node b, link a:x not applied: link b:x, policy a" in told
    assert set(state()["links"]) == {"a:x"}
    as_json = json.loads(chart("apply", "-f", name, "--json").stdout)
    assert as_json["error"]["field"] == "capacity_bps"
    assert as_json["applied"] == []
    assert [one["id"] for one in as_json["not_applied"]] == ["b:x", "a"]
    assert chart("apply", "-f", file(tmp_path, text.replace("bps: 0", "bps: 2M"))).exit_code == 0
    assert state()["policies"]["a"].enforcement == "off"
