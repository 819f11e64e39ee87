"""`chart tunnels` and the client's tunnels against a running gateway."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from chart_client import Client, NotFoundError, RefusedError
from chart_client.cli import build
from support.gateway_thread import Running


def chart(*arguments: str) -> Result:
    return CliRunner().invoke(build(arguments), list(arguments))


def as_json(*arguments: str) -> Any:
    result = chart(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_client(gateway: Running) -> None:
    with Client() as client:
        made = client.tunnels.put("gold", target_bps=20_000_000)
        assert made.settings is not None
        assert (made.settings.controller, made.target_source) == ("pi", "none")
        assert [one.id for one in client.tunnels.list()] == ["gold"]
        with pytest.raises(RefusedError, match="cannot be reached"):
            client.tunnels.put("gold", target_bps=20, capacity_bps=10)
        client.tunnels.delete("gold")
        with pytest.raises(NotFoundError):
            client.tunnels.get("nobody")


def test_command(gateway: Running) -> None:
    set_up = as_json("tunnels", "set", "gold", "--target", "20M", "--capacity", "100M", "--weight", "vip=3")
    assert set_up["settings"]["target_bps"] == 20_000_000
    # What is not stated stays.
    changed = as_json("tunnels", "set", "gold", "--schedule", "2026-03-01T09:00Z/2026-03-01T10:00Z=5M")
    assert changed["settings"]["capacity_bps"] == 100_000_000
    assert changed["settings"]["weights"] == {"vip": 3}
    assert changed["settings"]["schedule"][0]["target_bps"] == 5_000_000
    assert as_json("tunnels", "set", "gold", "--no-schedule")["settings"]["schedule"] == []
    as_json("tunnels", "set", "gold", "--controller", "p", "--kp", "2")
    # The gain of P is none of PI's.
    assert as_json("tunnels", "set", "gold", "--controller", "pi")["settings"]["kp"] is None
    text = chart("tunnels", "show", "gold").stdout
    assert "controller pi" in text
    assert "gold" in chart("tunnels", "list").stdout
    assert as_json("tunnels", "list")[0]["id"] == "gold"
    assert as_json("tunnels", "release", "gold")["controlled"] is False


def test_wrong_usage_is_told(gateway: Running) -> None:
    for arguments, words in (
        ((), "set at least one option"),
        (("--schedule", "tomorrow=5M"), "must be START/END=RATE"),
        (("--schedule", "2026-03-01T09:00Z/=fast"), "not a rate"),
        (("--schedule", "/2026-03-01T09:00Z=5M"), "has no start"),
        (("--weight", "vip"), "CUSTOMER=WEIGHT"),
        (("--target", "quick"), "not a rate"),
    ):
        result = chart("tunnels", "set", "gold", *arguments)
        assert result.exit_code == 2, result.output
        assert words in " ".join(result.stderr.replace("│", " ").split())
    refused = chart("tunnels", "set", "gold", "--target", "20M", "--capacity", "10M")
    assert refused.exit_code == 1
    assert "at most 10 Mbit/s" in refused.stderr
