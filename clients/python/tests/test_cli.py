"""The `chart` command against a running gateway: words, JSON, exit codes."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from chart.v1 import node_state_pb2
from chart_client.cli import build, main
from chart_client.client import Client
from chart_client.commands.explain import bottleneck, first_cause
from chart_client.commands.namespaces import NotPossibleError, cgroup2_mount, own_cgroup
from chart_client.commands.run import destination_for, node_here
from chart_client.models import Link, Node, RateRequest
from support.gateway_thread import Running
from support.waiting import until


def chart(*arguments: str) -> Result:
    return CliRunner().invoke(build(arguments), list(arguments))


def as_json(*arguments: str) -> Any:
    result = chart(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_requests(gateway: Running) -> None:
    made = as_json("request", "create", "--from", "alpha", "--to", "delta", "--rate", "60M", "--port", "5201", "--wait")
    assert made["granted_bps"] == 60_000_000
    assert made["request"]["protocol"] == "tcp"
    assert made["enforcement"] == "ENFORCED"
    shown = chart("request", "show", made["id"])
    assert "60 Mbit/s" in shown.stdout
    assert made["id"] in chart("request", "list").stdout
    assert as_json("request", "list", "--lifecycle", "RELEASED") == []
    refused = chart("request", "create", "--from", "alpha", "--to", "delta", "--rate", "60M")
    assert refused.exit_code == 1
    assert "at most 40 Mbit/s" in refused.stderr
    refused = chart("request", "create", "--from", "alpha", "--to", "delta", "--rate", "60M", "--json")
    assert json.loads(refused.stdout)["error"]["ceiling"] == 40_000_000
    assert chart("request", "preview", "--from", "alpha", "--to", "delta", "--rate", "60M").exit_code == 1
    assert chart("request", "preview", "--from", "alpha", "--to", "delta", "--rate", "10M").exit_code == 0
    assert as_json("request", "release", made["id"])["lifecycle"] == "RELEASED"


def offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What bash offers in place of the last word."""
    monkeypatch.setattr("sys.argv", ["chart"])
    monkeypatch.setenv("_CHART_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(("chart", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    return capsys.readouterr().out.split()


def test_completion(gateway: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made = as_json("request", "create", "--from", "alpha", "--to", "delta", "--rate", "1M")
    assert offered(monkeypatch, capsys, "req") == ["request"]
    assert offered(monkeypatch, capsys, "la") == ["lab"], "also what other distributions add"
    assert "--lifecycle" in offered(monkeypatch, capsys, "request", "list", "--l")
    assert offered(monkeypatch, capsys, "request", "create", "--service", "g") == ["guaranteed"]
    assert offered(monkeypatch, capsys, "request", "release", "req") == [made["id"]]
    assert offered(monkeypatch, capsys, "explain", "nothing") == []
    with Client() as client:
        client.nodes.put("alpha", addresses=["10.1.0.1/32"])
    assert offered(monkeypatch, capsys, "request", "create", "--from", "al") == ["alpha"]
    # A gateway that does not answer offers nothing, and soon.
    monkeypatch.setenv("CHART_SERVER", "http://127.0.0.1:1")
    began = time.monotonic()
    assert offered(monkeypatch, capsys, "request", "release", "r") == []
    assert time.monotonic() - began < 3


def test_not_enforced_in_time(gateway: Running) -> None:
    gateway.place.reservations.enforce = False
    arguments = ("request", "create", "--from", "alpha", "--to", "delta", "--rate", "1M", "--wait", "--timeout", "0.1")
    result = chart(*arguments)
    assert result.exit_code == 1
    assert "no report yet from alpha" in result.stderr


def test_network(gateway: Running) -> None:
    with Client() as client:
        client.nodes.put("alpha", addresses=["10.1.0.1/32"])
        client.links.put("alpha:to-delta", to_node="delta", capacity_bps=10**8)
    assert "no agent" in chart("node", "list").stdout
    assert "100 Mbit/s" in chart("link", "list").stdout
    assert chart("policy", "set").exit_code == 2
    assert as_json("policy", "set", "--enforcement", "observe")[0]["enforcement"] == "observe"
    changed = as_json("policy", "set", "--link-controller", "rcp")[0]
    assert (changed["enforcement"], changed["link_controller"]) == ("observe", "rcp")
    assert as_json("policy", "set", "--weight", "gold=3")[0]["customer_weights"] == {"gold": 3}
    assert as_json("policy", "set", "--enforcement", "off")[0]["customer_weights"] == {"gold": 3}
    assert "gold 3" in chart("policy", "show").stdout
    assert chart("policy", "set", "--enforcement", "observe").exit_code == 0
    assert "observe" in chart("policy", "show").stdout
    assert "1234.5 us" in chart("measurement", "list").stdout


def test_what_a_link_advises(gateway: Running) -> None:
    words = ("link", "set", "alpha:to-bravo", "--to", "bravo", "--capacity", "100M", "--scone", "--scone-police")
    more = ("--quick-start", "--quick-start-threshold", "0.8", "--quick-start-share", "0.25")
    prefixes = ("--advice-prefix", "10.4.0.0/16", "--advice-prefix", "2001:db8::/32")
    stored = as_json(*words, *more, *prefixes)
    assert (stored["scone_police"], stored["quick_start_threshold"], stored["quick_start_share"]) == (True, 0.8, 0.25)
    assert stored["advice_prefixes"] == ["10.4.0.0/16", "2001:db8::/32"]
    assert as_json(*words, "--advice-prefix", "all")["advice_prefixes"] == []


def test_what_a_nodes_policy_does_not_say_follows_the_default(gateway: Running) -> None:
    as_json("policy", "set", "--enforcement", "observe", "--link-controller", "rcp", "--max-guaranteed", "50M")
    own = as_json("policy", "set", "alpha", "--max-guaranteed", "40M")[0]
    assert (own["enforcement"], own["link_controller"], own["max_guaranteed_bps"]) == (None, None, 40_000_000)
    assert own["in_force"] == {
        "enforcement": "observe",
        "link_controller": "rcp",
        "max_guaranteed_bps": 40_000_000,
        "quick_start_request_bps": 0,
    }
    assert "default (observe)" in chart("policy", "show", "alpha").stdout
    as_json("policy", "set", "--enforcement", "enforce")
    assert as_json("policy", "show", "alpha")[0]["in_force"]["enforcement"] == "enforce"
    as_json("policy", "set", "--quick-start", "80M")
    assert as_json("policy", "show", "alpha")[0]["in_force"]["quick_start_request_bps"] == 80_000_000
    own = as_json("policy", "set", "alpha", "--quick-start", "none")[0]
    assert (own["quick_start_request_bps"], own["in_force"]["quick_start_request_bps"]) == (0, 0)
    own = as_json("policy", "set", "alpha", "--enforcement", "off", "--max-guaranteed", "unlimited")[0]
    assert (own["enforcement"], own["link_controller"], own["max_guaranteed_bps"]) == ("off", None, 0)
    own = as_json("policy", "set", "alpha", "--enforcement", "inherit", "--max-guaranteed", "inherit")[0]
    assert own["in_force"] == {
        "enforcement": "enforce",
        "link_controller": "rcp",
        "max_guaranteed_bps": 50_000_000,
        "quick_start_request_bps": 0,
    }
    assert chart("policy", "set", "alpha", "--max-guaranteed", "fast").exit_code == 2
    assert chart("policy", "delete", "alpha").exit_code == 0
    assert [one["id"] for one in as_json("policy", "show")] == ["default"]
    assert chart("policy", "delete", "default").exit_code == 1


def test_a_request_without_a_flow_says_so(gateway: Running) -> None:
    made = as_json("request", "create", "--from", "alpha", "--to", "delta", "--rate", "60M")
    assert (made["state"], made["warning"], made["unmatched_since"]) == ("ENFORCED", "", None)
    request = gateway.place.reservations.requests[made["id"]]
    request.unmatched_since_us = request.created_at_us
    request.warning = "no flow matches: tcp from 10.1.0.1/32 to 10.4.0.1/32"
    assert as_json("request", "show", made["id"])["state"] == "NO_MATCHING_FLOW"
    assert "no matching flow" in chart("request", "list").stdout
    assert "no flow matches: tcp from 10.1.0.1/32" in chart("request", "show", made["id"]).stdout
    request.waits_until_us = request.created_at_us + 60_000_000
    assert as_json("request", "show", made["id"])["waits_until"] > made["created_at"]
    assert "in force" in chart("request", "show", made["id"]).stdout
    as_json("request", "release", made["id"])
    assert "released" in chart("request", "list").stdout
    request = gateway.place.reservations.requests[made["id"]]
    request.draining_until_us = request.created_at_us + 60_000_000
    request.draining_nodes.append("alpha")
    assert as_json("request", "show", made["id"])["draining_nodes"] == ["alpha"]
    assert "at the latest, on alpha" in chart("request", "show", made["id"]).stdout
    assert as_json("measurement", "list", "--metric", "loss_ratio") == []


def test_explain(gateway: Running) -> None:
    with Client() as client:
        client.links.put("alpha:to-delta", to_node="delta", capacity_bps=10**8)
        request = client.rate_requests.create("alpha", "delta", guaranteed_bps=10**6)
        client.rate_requests.release(request.id)
    found = as_json("explain", request.id)
    assert found["cause"] == "the request is released"
    assert found["bottleneck"] == "alpha:to-delta"
    assert "cause" in chart("explain", request.id).stdout
    assert chart("explain", "nothing").exit_code == 1


def test_explain_of_an_in_band_flow(gateway: Running) -> None:
    ends: dict[str, Any] = {"source": "10.0.0.1:40000", "destination": "10.0.0.4:5001", "protocol": 6}
    origin: dict[str, Any] = {"carrier": "option", "element": 2, "key_epoch": 3, "agreed_bps": 97_000_000}
    hops: dict[str, tuple[int, dict[str, Any]]] = {
        "alpha": (1, {"role": "origin", "state": "agreed", **origin}),
        "delta": (2, {"role": "last", "state": "answered", "element": 1}),
    }
    for node, (element, hop) in hops.items():
        flow = node_state_pb2.InBandFlow(**ends, **hop)
        state = node_state_pb2.NodeState(
            node=node, element=element, in_band_flows=[flow], reported_at_us=time.time_ns() // 1000
        )
        published = gateway.place.broker.publish("chart.node-state.v1", node, state)
        asyncio.run_coroutine_threadsafe(published, gateway.loop).result(10)
    until(lambda: len(gateway.place.gateway.live.node_states) == 2, "both nodes have reported")
    (found,) = as_json("explain", "10.0.0.1:40000-10.0.0.4:5001")
    assert [(hop["node"], hop["role"]) for hop in found["hops"]] == [("alpha", "origin"), ("delta", "last")]
    told = chart("explain", ":5001").stdout
    assert "97 Mbit/s by option" in told
    assert "epoch 3 with delta" in told
    assert chart("explain", "10.9.9.9:1").exit_code == 1


def test_explain_of_a_flow_that_was_told_a_rate(gateway: Running) -> None:
    ends: dict[str, Any] = {"source": "10.0.0.1:40000", "destination": "10.0.0.4:443"}
    advice: dict[str, Any] = {"standard": "scone", "link_id": "bravo:to-delta", "advised_bps": 10_000_000}
    state = node_state_pb2.NodeState(
        node="bravo",
        advised_flows=[node_state_pb2.AdvisedFlow(**ends, **advice, protocol=17, age_ms=3000)],
        reported_at_us=time.time_ns() // 1000,
    )
    published = gateway.place.broker.publish("chart.node-state.v1", "bravo", state)
    asyncio.run_coroutine_threadsafe(published, gateway.loop).result(10)
    until(lambda: gateway.place.gateway.live.node_states, "the node has reported")
    (found,) = as_json("explain", "10.0.0.1:40000-")
    (told,) = found["advised"]
    assert (
        told | ends | {"node": "bravo", "link": "bravo:to-delta", "advised_bps": 10_000_000, "protocol": "udp"} == told
    )
    shown = chart("explain", ":443").stdout
    assert "bravo:to-delta" in shown
    assert "10 Mbit/s" in shown


def test_token_and_version(gateway: Running) -> None:
    token = chart("token", "--role", "viewer", "--subject", "me").stdout.strip()
    result = chart("policy", "set", "--enforcement", "off", "--token", token)
    assert result.exit_code == 1
    assert "Forbidden" in result.stderr
    assert as_json("version")["gateway"]


def test_gateway_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHART_SERVER", "http://127.0.0.1:1")
    result = chart("node", "list", "--token", "t")
    assert result.exit_code == 1
    assert "chart doctor" in result.stderr
    assert as_json("version")["gateway"] is None


def test_usage() -> None:
    for wrong in (
        ["request", "create"],
        ["request", "create", "--from", "a", "--to", "b", "--rate", "much"],
        ["policy", "set", "--enforcement", "maybe"],
        ["nothing"],
        ["run", "--rate", "5M"],
    ):
        assert chart(*wrong).exit_code == 2, wrong
    for arguments in (["--help"], ["request", "--help"], ["run", "--help"]):
        assert chart(*arguments).exit_code == 0


def test_doctor(gateway: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CHART_BUILD_DIR", str(tmp_path))
    monkeypatch.setenv("CHART_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    result = chart("doctor", "--json")
    assert result.exit_code == 1
    found = {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert found["gateway"]["status"] == found["clock"]["status"] == "ok"
    assert found["streams"]["status"] == "failed"
    assert found["programs"]["fix"] == "make setup"
    assert all(finding["fix"] for finding in found.values() if finding["status"] == "failed")


def link(name: str, rate_bps: int | None = None, dropped: int = 0) -> Link:
    load = {
        "sent_bps": 1, "explicit_rate_bps": 0, "legacy_bps": 0, "utilisation": 0, "queue_bytes": 0,
        "dropped_packets": dropped, "at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    rate = {"available_bps": rate_bps, "explicit_rate_capacity_bps": 1, "valid_until": "2026-01-01T00:00:00Z"}
    return Link.model_validate(
        {
            "id": name, "revision": 1, "from_node": "a", "interface": "x", "to_node": "b", "capacity_bps": 10**8,
            "delay_us": 0, "admission_share": 0.8, "tags": {}, "load": load, "rate": rate if rate_bps else None,
        }
    )  # fmt: skip


def request(confirmation: dict[str, Any] | None = None, **change: Any) -> RateRequest:
    known = {"node": "a", "state": "APPLIED", "kernel_rate_bps": 9, "matching_flows": 1, **(confirmation or {})}
    document: dict[str, Any] = {
        "id": "r", "revision": 1, "owner": "o", "lifecycle": "ACTIVE", "enforcement": "ENFORCED",
        "service_state": "GRANTED", "granted_bps": 8, "path": ["a:x"], "confirmations": [known],
        "confirming_nodes": ["a"], "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
        "request": {"source": "a", "destination": "b", "service": "variable", "guaranteed_bps": 8},
    }  # fmt: skip
    return RateRequest.model_validate({**document, **change})


@pytest.mark.parametrize(
    ("asked", "path", "measured_bps", "cause"),
    [
        (request(), [link("a:x", 5)], 9.0, None),
        (request(), [link("a:x", 5)], None, None),
        (request(lifecycle="EXPIRED"), [], None, "expired"),
        (request(granted_bps=4, reason="a:x is full"), [], None, "a:x is full"),
        (request(service_state="PREEMPTED"), [], None, "preempted"),
        (request(enforcement="PENDING", confirmations=[]), [], None, "no report yet from a"),
        (request({"state": "FAILED", "reason": "no trinity"}, enforcement="FAILED"), [], None, "no trinity"),
        (request({"state": "OBSERVED"}, enforcement="PENDING"), [], None, "is in mode observe"),
        (request({"matching_flows": 0}), [], None, "no flow on a matches"),
        (request(), [link("a:x")], None, "no valid link rate for a:x"),
        (request({"kernel_rate_bps": 7}), [link("a:x", 5)], None, "the kernel of a enforces 7 bit/s"),
        (request(), [link("a:x", 5, dropped=3)], 1.0, "a:x drops packets"),
        (request(), [link("a:x", 5)], 1.0, "the application"),
    ],
)
def test_first_cause(asked: RateRequest, path: list[Link], measured_bps: float | None, cause: str | None) -> None:
    found = first_cause(asked, path, measured_bps)
    assert (found is None) if cause is None else (found is not None and cause in found)


def test_bottleneck() -> None:
    narrow = link("b:y", 3)
    assert bottleneck([link("a:x", 5), narrow, link("c:z", 4)]) is narrow
    assert bottleneck([]) is None


MOUNTS = "proc /proc proc rw 0 0\nnone /sys/fs/cgroup/unified cgroup2 rw 0 0\n"


def test_own_cgroup() -> None:
    assert cgroup2_mount(MOUNTS) == Path("/sys/fs/cgroup/unified")
    assert own_cgroup(MOUNTS, "1:cpu:/x\n0::/chart/demo/alpha\n") == Path("/sys/fs/cgroup/unified/chart/demo/alpha")
    with pytest.raises(NotPossibleError, match="not mounted"):
        cgroup2_mount("")
    with pytest.raises(NotPossibleError):
        own_cgroup(MOUNTS, "1:cpu:/x\n")


def nodes(stale: bool = False) -> list[Node]:
    state = {
        "enforcement": "enforce", "agent_version": "1", "capabilities": [], "faults": [],
        "reported_at": "2026-01-01T00:00:00Z", "stale": stale,
    }  # fmt: skip
    common = {"revision": 1, "description": "", "sensor_pod_target": "", "tags": {}, "state": state}
    return [
        Node.model_validate({**common, "id": "alpha", "addresses": ["10.1.0.1/32"]}),
        Node.model_validate({**common, "id": "bravo", "addresses": ["10.1.0.2/32"]}),
    ]


def test_node_here() -> None:
    assert node_here(nodes(), {"10.1.0.2", "192.0.2.1"}, None).id == "bravo"
    assert node_here(nodes(), set(), "alpha").id == "alpha"
    assert destination_for(nodes()[0], nodes(), None) == "bravo"
    assert destination_for(nodes()[0], nodes(), "10.9.0.0/16") == "10.9.0.0/16"
    with pytest.raises(NotPossibleError, match="not a CHART node"):
        node_here(nodes(), {"192.0.2.1"}, None)
    with pytest.raises(NotPossibleError, match="no report from the agent"):
        node_here(nodes(stale=True), set(), "alpha")


def test_session_rules(gateway: Running) -> None:
    words = ("--match", "protocol=udp,remote-ports=16384-32767", "--match", "protocol=udp,dscp=46", "--rate", "82k")
    made = as_json(
        "session-rule", "set", "calls", *words, "--delay-class", "6", "--node-tag", "site=lab", "--class", "voice"
    )
    assert made["selectors"][1]["dscp"] == 46
    assert (made["service"], made["guaranteed_bps"], made["expedited"]) == ("guaranteed", 82_000, True)
    assert as_json("session-rule", "disable", "calls")["enabled"] is False
    assert as_json("session-rule", "set", "calls", "--priority", "9", "--all-nodes")["node_tags"] == {}
    enabled = as_json("session-rule", "enable", "calls")
    assert (enabled["enabled"], enabled["priority"], enabled["delay_class"]) == (True, 9, 6)
    shown = chart("session-rule", "show", "calls").stdout
    assert "protocol=udp,remote-ports=16384-32767" in shown
    assert "enabled, expedited" in shown
    assert "calls" in chart("session-rule", "list").stdout
    wrong = chart("session-rule", "set", "calls", "--match", "port=5")
    assert wrong.exit_code == 2
    assert chart("session-rule", "set", "new", "--rate", "1M").exit_code == 2
    assert as_json("session-rule", "delete", "calls") == {"deleted": "calls"}
    assert chart("session-rule", "show", "calls").exit_code == 1


def test_settings_of_the_platform(gateway: Running) -> None:
    made = as_json(
        "settings", "set", "oversubscription=2", "authority-free-available-bps=5M", "inference_active_pairs=0"
    )
    assert (made["oversubscription"], made["authority_free_available_bps"]) == (2, 5_000_000)
    limited = as_json("settings", "limit", "robot", "--configurations", "5")
    assert limited["application_limits"]["robot"]["configurations"] == 5
    assert as_json("settings", "limit", "robot", "--probe-share", "0.5")["application_limits"]["robot"] == {
        **{"configurations": 5, "probe_share": 0.5},
        **dict.fromkeys(("priority", "period_ms", "one_shots_per_minute")),
    }
    shown = chart("settings", "show").stdout
    assert "configurations 5, probe_share 0.5" in shown
    assert "snapshot_period_s             as started" in shown
    assert as_json("settings", "limit", "robot", "--remove")["application_limits"] == {}
    assert as_json("settings", "set", "oversubscription=unset")["oversubscription"] is None
    for wrong in (["set", "oversubscribe=2"], ["set", "probe_share=much"], ["limit", "robot"]):
        assert chart("settings", *wrong).exit_code == 2
    refused = chart("settings", "set", "oversubscription=0.5")
    assert refused.exit_code == 1
    assert "oversubscription" in refused.output


def test_tenants(gateway: Running) -> None:
    words = ("--own", "prefix=10.4.1.9/16", "--own", "node=alpha,protocol=tcp,ports=8000-8099", "--member", "shop")
    made = as_json("tenant", "set", "shop", *words, "--namespace", "shop")
    assert made["ends"][0] == {
        **{"node": None, "prefix": "10.4.0.0/16", "protocol": None, "ports": None, "cgroup_id": None},
    }
    assert made["ends"][1]["ports"] == "8000-8099"
    changed = as_json("tenant", "set", "shop", "--description", "Web shop")
    assert (changed["description"], changed["members"], changed["namespaces"]) == ("Web shop", ["shop"], ["shop"])
    assert "node=alpha,protocol=tcp,ports=8000-8099" in chart("tenant", "show", "shop").stdout
    assert "shop" in chart("tenant", "list").stdout
    assert chart("tenant", "set", "shop", "--own", "port=5").exit_code == 2
    assert chart("tenant", "set", "shop", "--own", "node=a", "--nothing").exit_code == 2
    twice = chart("tenant", "set", "other", "--member", "shop")
    assert twice.exit_code == 1
    assert "belongs to the tenant 'shop' already" in " ".join(twice.output.split())
    assert as_json("tenant", "set", "shop", "--nothing")["ends"] == []
    assert as_json("tenant", "delete", "shop") == {"deleted": "shop"}
