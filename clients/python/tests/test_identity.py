"""Enrolling, revoking, neighbours, next hops and policies in the shell: words, JSON, files, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from chart_client.cli import build
from chart_client.identities import _parts
from chart_client.units import parse_duration_s
from support.gateway_thread import Running


def chart(*arguments: str) -> Result:
    return CliRunner().invoke(build(arguments), list(arguments))


def as_json(*arguments: str) -> Any:
    result = chart(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_enrol_a_node(gateway: Running, tmp_path: Path) -> None:
    shown = chart("node", "enrol", "alpha", "--life", "30m")
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert "token-of-node/alpha" in lines
    command = next(line for line in lines if line.startswith("chart-agent "))
    for words in ("--node alpha", "--authority https://", "--authority-ca ", "--enrolment-token-file token"):
        assert words in command
    # Into a file that only its owner reads, also where a file of another mode stood.
    file, ca = tmp_path / "alpha token", tmp_path / "ca.pem"
    file.write_text("something longer than the token that comes here")
    file.chmod(0o644)
    told = as_json("node", "enrol", "alpha", "--token-file", str(file), "--ca-file", str(ca))
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("token-of-node/alpha\n", 0o600)
    assert ca.read_text() == told["authority_ca_pem"]
    assert (told["token"], told["token_file"]) == (None, str(file))
    assert told["command"].endswith(f"--enrolment-token-file '{file}'")
    assert as_json("identity", "enrol", "service/records")["command"] is None
    # A file that cannot be written: nothing is asked for.
    before = as_json("enrolment", "list")
    assert chart("node", "enrol", "alpha", "--token-file", str(tmp_path / "no" / "file")).exit_code == 2
    assert chart("node", "enrol", "alpha", "--life", "soon").exit_code == 2
    assert as_json("enrolment", "list") == before
    assert {one["state"] for one in before} == {"open"}
    assert chart("node", "enrol", "Alpha").exit_code == 1


def test_withdraw_and_revoke(gateway: Running) -> None:
    made = as_json("node", "enrol", "alpha")
    assert "is withdrawn" in chart("enrolment", "withdraw", made["id"]).stdout
    assert "withdrawn" in chart("enrolment", "list").stdout
    assert chart("enrolment", "withdraw", "nothing").exit_code == 1
    unknown = chart("node", "revoke", "alpha")
    assert (unknown.exit_code, "ever issued to node/alpha" in unknown.stderr) == (1, True)
    gateway.place.authority.enrol("node/alpha")
    assert as_json("identity", "list")[0]["state"] == "enrolled"
    assert "node/alpha is revoked" in chart("node", "revoke", "alpha", "--reason", "stolen").stdout
    assert as_json("identity", "list")[0]["reason"] == "stolen"
    assert as_json("identity", "revocations")[0]["identity"] == "node/alpha"
    assert chart("identity", "revoke").exit_code == 2


def test_next_hops(gateway: Running) -> None:
    stated = as_json("next-hop", "set", "alpha", "10.9.0.0/16", "--next", "bravo", "--shim", "10.0.0.2")
    assert (stated["source"], stated["shim_address"]) == ("operator", "10.0.0.2")
    asked = chart("next-hop", "ask", "alpha", "10.9.1.7")
    assert asked.stdout.strip() == "alpha towards 10.9.0.0/16: bravo (operator, shim at 10.0.0.2)"
    assert as_json("next-hop", "list", "--element", "bravo") == []
    none = chart("next-hop", "ask", "alpha", "192.0.2.1")
    assert (none.exit_code, "no next hop towards 192.0.2.1" in none.stderr) == (1, True)
    assert chart("next-hop", "delete", "alpha", "10.9.0.0/16").exit_code == 0
    assert as_json("next-hop", "list") == []


def test_peers(gateway: Running, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("a certificate")
    words = ("peer", "set", "b.example", "--url", "https://authority.b.example", "--ca", str(ca))
    assert as_json(*words, "--pair", "edge,border@b.example")["pairs"] == [["edge", "border@b.example"]]
    assert "edge > border@b.example" in chart("peer", "list").stdout
    assert chart(*words, "--pair", "edge").exit_code == 2
    assert chart("peer", "delete", "b.example").exit_code == 0
    assert chart("peer", "delete", "b.example").exit_code == 1


def test_policies_of_authorisations(gateway: Running) -> None:
    assert chart("authorisation", "policy", "set", "apps", "--rate", "1G").exit_code == 2
    words = ("authorisation", "policy", "set", "apps")
    made = as_json(*words, "--subject", "role/application", "--rate", "1G", "--duration", "2h")
    assert (made[0]["max_guaranteed_bps"], made[0]["max_duration_s"]) == (10**9, 7200)
    changed = as_json(*words, "--priority", "9", "--any-address")
    assert (changed[0]["max_priority"], changed[0]["max_guaranteed_bps"], changed[0]["any_address"]) == (9, 10**9, True)
    assert "1 Gbit/s" in chart("authorisation", "policy", "list").stdout
    assert chart("authorisation", "policy", "delete", "apps").exit_code == 0
    assert "the authority's default holds" in chart("authorisation", "policy", "list").stdout


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("30m", 1800), ("1.5h", 5400), ("7d", 604_800)])
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration_s(text) == seconds
    with pytest.raises(ValueError, match="is not a time"):
        parse_duration_s(f"{text}y")


def test_prefixes_in_paths() -> None:
    assert [_parts(one) for one in ("10.9.0.0/16", "10.0.0.1", "fd00::1")] == [
        ("10.9.0.0", "16"), ("10.0.0.1", "32"), ("fd00::1", "128")
    ]  # fmt: skip
