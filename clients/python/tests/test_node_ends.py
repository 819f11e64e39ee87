"""`chart node end`, `chart node proxy`, and tunnel ends in a file."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from chart_client.cli import build
from chart_client.commands.node_ends import class_of, with_application, with_end
from chart_client.models import TunnelEnd
from chart_client.registry.node_ends import FieldError, proxied_traffic, tunnel_end
from support.gateway_thread import Running


def run(*words: str) -> str:
    """The command against the gateway that the environment names."""
    result = CliRunner().invoke(build(["node"]), ["node", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_ends_are_set_changed_listed_and_deleted(gateway: Running) -> None:
    run("set", "alpha", "--address", "10.1.0.1/32")
    run("end", "set", "alpha", "a-b", "--role", "origin", "--address", "10.0.0.2", "--peer", "bravo")
    run("end", "set", "alpha", "a-b", "--prefix", "192.0.2.0/24", "--class", "gold=3:dscp=46")
    (end,) = json.loads(run("end", "list", "--json"))["alpha"]
    assert (end["port"], end["prefixes"], end["period_ms"]) == (7400, ["192.0.2.0/24"], 1000)
    assert end["classes"] == [{"name": "gold", "weight": 3, "selector": "dscp=46"}]
    # Other changes of the node leave them.
    run("set", "alpha", "--description", "a router")
    assert "a-b" in run("end", "list")
    run("end", "delete", "alpha", "a-b")
    assert "no tunnel ends" in run("end", "list")


def test_an_application_is_loaded_changed_and_removed(gateway: Running) -> None:
    run("set", "alpha", "--address", "10.1.0.1/32")
    run("end", "set", "alpha", "a-b", "--role", "origin", "--address", "10.0.0.2", "--peer", "bravo")
    run("end", "application", "alpha", "a-b", "pacing", "--file", "aimd.so", "--argument", "5,1,1")
    run("end", "application", "alpha", "a-b", "pacing", "--off")
    run("end", "set", "alpha", "a-b", "--prefix", "192.0.2.0/24")
    (end,) = json.loads(run("end", "list", "--json"))["alpha"]
    pacing = {"name": "pacing", "file": "aimd.so", "argument": "5,1,1", "limit_ms": 20, "on": False}
    assert (end["applications"], end["prefixes"]) == ([pacing], ["192.0.2.0/24"])
    assert "pacing=aimd.so (off)" in run("end", "list")
    assert "no applications" in run("end", "application", "alpha", "a-b", "pacing", "--delete")


def test_the_proxy_is_set_and_taken_back(gateway: Running) -> None:
    run("set", "alpha", "--address", "10.1.0.1/32")
    assert "nothing is proxied" in run("proxy", "alpha")
    run("proxy", "alpha", "--interface", "eth1", "--mode", "new-ports")
    assert "connections of all hosts through eth1, from new ports" in run("proxy", "alpha")
    assert "nothing is proxied" in run("proxy", "alpha", "--off")


def test_what_a_new_end_lacks_is_named() -> None:
    with pytest.raises(typer.BadParameter, match="state --address and --peer"):
        with_end([], "a-b", {"role": "origin"})
    before = TunnelEnd(tunnel="a-b", role="destination", address="10.0.0.2", peer_node="bravo", port=7500)
    (after,) = with_end([before], "a-b", {"interface": "itm3"})
    assert (after["port"], after["interface"], after["role"]) == (7500, "itm3", "destination")
    with pytest.raises(typer.BadParameter, match="must be NAME=WEIGHT:SELECTOR"):
        class_of("gold=high:any")


def test_what_a_new_application_lacks_is_named() -> None:
    end = TunnelEnd(tunnel="a-b", role="destination", address="10.0.0.2", peer_node="bravo")
    with pytest.raises(typer.BadParameter, match="no end of b-a; its ends: a-b"):
        with_application([end], "b-a", "pacing", {"file": "aimd.so"})
    for changes in (None, {"on": True}):
        with pytest.raises(typer.BadParameter, match="state --file for a new one"):
            with_application([end], "a-b", "pacing", changes)


def test_a_file_states_ends_with_defaults() -> None:
    stated: dict[str, Any] = {
        "tunnel": "a-b",
        "role": "origin",
        "address": "10.0.0.2",
        "peer_node": "bravo",
        "classes": [{"name": "a"}],
        "applications": [{"name": "pacing", "file": "aimd.so"}],
    }
    end = tunnel_end(stated)
    assert (end["interface"], end["congestion"]) == ("chart-itm0", "cubic")
    assert end["classes"] == [{"name": "a", "weight": 1, "selector": "any"}]
    pacing = {"name": "pacing", "file": "aimd.so", "argument": "", "limit_ms": 20, "on": True}
    assert end["applications"] == [pacing]
    assert proxied_traffic({"interfaces": ["eth1"], "prefixes": ["10.1.2.3/16"]})["prefixes"] == ["10.1.0.0/16"]
    with pytest.raises(FieldError, match="peer_node of a tunnel end is missing"):
        tunnel_end({name: value for name, value in stated.items() if name != "peer_node"})
    with pytest.raises(FieldError, match="proxied traffic has no hosts"):
        proxied_traffic({"hosts": []})
