"""The client and the `chart` command reach every operation of the gateway, as its OpenAPI document has them."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
from typer.testing import CliRunner

from chart_client import Client, NotFoundError, ProblemError
from chart_client.cli import build

DOCUMENT = Path(__file__).parents[3] / "web" / "openapi.json"
Operation = tuple[str, str]


def operations() -> set[Operation]:
    """Method and path template of everything under /v1."""
    paths = json.loads(DOCUMENT.read_text())["paths"]
    return {(method.upper(), path) for path, methods in paths.items() if path.startswith("/v1/") for method in methods}


@contextlib.contextmanager
def recording(*, deletes: bool = False) -> Iterator[tuple[str, list[Operation]]]:
    """A server whose lists are empty and that knows nothing else, and what it was asked. ``deletes``: it deletes what
    it is told to.
    """
    asked: list[Operation] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = urlsplit(self.path).path
            asked.append((self.command, path))
            if deletes and self.command == "DELETE":
                self.send_response(204)
                self.end_headers()
                return
            empty = self.command == "GET" and path.count("/") == 2 and path != "/v1/events"
            said = {"items": []} if empty else {"title": "not found", "status": 404, "detail": "there is nothing here"}
            body = json.dumps(said).encode()
            self.send_response(200 if empty else 404)
            self.send_header("Content-Type", "application/problem+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def unreached(asked: list[Operation]) -> set[Operation]:
    """Operations that no request was for."""

    def matches(method: str, template: str) -> bool:
        pattern = re.compile(re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(template)) + "$")
        return any(method == one[0] and pattern.match(one[1]) for one in asked)

    return {operation for operation in operations() if not matches(*operation)}


CALLS: list[Callable[[Client], object]] = [
    lambda chart: chart.rate_requests.create("a", "b"),
    lambda chart: list(chart.rate_requests.list()),
    lambda chart: chart.rate_requests.preview("a", "b"),
    lambda chart: chart.rate_requests.get("x"),
    lambda chart: chart.rate_requests.change("x", guaranteed_bps=1),
    lambda chart: chart.rate_requests.preview_change("x", guaranteed_bps=1),
    lambda chart: chart.rate_requests.release("x"),
    lambda chart: chart.rate_requests.commit("x"),
    lambda chart: chart.rate_requests.receipt("x"),
    lambda chart: list(chart.audit.of_request("x")),
    lambda chart: list(chart.audit.list()),
    lambda chart: list(chart.flows.list()),
    lambda chart: list(chart.in_band_flows.list()),
    lambda chart: list(chart.advised_flows.list()),
    lambda chart: list(chart.node_keys.list()),
    lambda chart: chart.node_keys.record_checks(),
    lambda chart: list(chart.authorisations.list()),
    lambda chart: chart.authorisations.create(),
    lambda chart: chart.authorisations.delete("x"),
    lambda chart: list(chart.authorisation_policies.list()),
    lambda chart: chart.authorisation_policies.get("x"),
    lambda chart: chart.authorisation_policies.put(
        "x", subjects=["*"], services=["available"], max_guaranteed_bps=0, max_priority=0, max_duration_s=1
    ),
    lambda chart: chart.authorisation_policies.delete("x"),
    lambda chart: list(chart.enrolments.list()),
    lambda chart: chart.enrolments.create("node/x"),
    lambda chart: chart.enrolments.withdraw("x"),
    lambda chart: list(chart.identities.list()),
    lambda chart: chart.identities.revoke("node/x"),
    lambda chart: list(chart.identities.revocations()),
    lambda chart: list(chart.peers.list()),
    lambda chart: chart.peers.put("x", url="https://y", ca_pem="", pairs=[("a", "b@x")]),
    lambda chart: chart.peers.delete("x"),
    lambda chart: list(chart.next_hops.list()),
    lambda chart: chart.next_hops.get("x", "10.0.0.1"),
    lambda chart: chart.next_hops.put("x", "10.0.0.0/8", next_element="y"),
    lambda chart: chart.next_hops.delete("x", "fd00::1"),
    lambda chart: chart.signed_receipts.get("x"),
    lambda chart: chart.signed_receipts.keys(),
    lambda chart: list(chart.callbacks.list()),
    lambda chart: chart.callbacks.retry("x"),
    lambda chart: chart.callbacks.secret(),
    lambda chart: chart.callbacks.secret(replace=True),
    lambda chart: list(chart.quotas.list()),
    lambda chart: chart.quotas.get("x"),
    lambda chart: chart.quotas.put("x"),
    lambda chart: chart.quotas.delete("x"),
    lambda chart: list(chart.nodes.list()),
    lambda chart: chart.nodes.get("x"),
    lambda chart: chart.nodes.put("x"),
    lambda chart: chart.nodes.delete("x"),
    lambda chart: list(chart.links.list()),
    lambda chart: chart.links.get("x"),
    lambda chart: chart.links.put("x", to_node="y", capacity_bps=1),
    lambda chart: chart.links.delete("x"),
    lambda chart: chart.links.capacity("x"),
    lambda chart: chart.paths("a", "b"),
    lambda chart: chart.overlay.routes("x"),
    lambda chart: chart.overlay.trace("a", "b"),
    lambda chart: chart.overlay.events(),
    lambda chart: list(chart.policies.list()),
    lambda chart: chart.policies.get("x"),
    lambda chart: chart.policies.put("x", enforcement="off"),
    lambda chart: chart.policies.delete("x"),
    lambda chart: list(chart.session_rules.list()),
    lambda chart: chart.session_rules.get("x"),
    lambda chart: chart.session_rules.put("x"),
    lambda chart: chart.session_rules.enable("x"),
    lambda chart: chart.session_rules.delete("x"),
    lambda chart: list(chart.tenants.list()),
    lambda chart: chart.tenants.get("x"),
    lambda chart: chart.tenants.put("x"),
    lambda chart: chart.tenants.delete("x"),
    lambda chart: list(chart.platform_settings.list()),
    lambda chart: chart.platform_settings.get(),
    lambda chart: chart.platform_settings.put(oversubscription=2.0),
    lambda chart: list(chart.sensing_configurations.list()),
    lambda chart: chart.sensing_configurations.get("x"),
    lambda chart: chart.sensing_configurations.put("x"),
    lambda chart: chart.sensing_configurations.delete("x"),
    lambda chart: list(chart.meshes.list()),
    lambda chart: chart.meshes.get("x"),
    lambda chart: chart.meshes.put("x"),
    lambda chart: chart.meshes.delete("x"),
    lambda chart: chart.meshes.coverage("x"),
    lambda chart: list(chart.pair_groups.list()),
    lambda chart: chart.pair_groups.get("x"),
    lambda chart: chart.pair_groups.put("x"),
    lambda chart: chart.pair_groups.delete("x"),
    lambda chart: chart.pair_groups.series("x", "rtt_us"),
    lambda chart: chart.pair_groups.download(Path("x.csv"), "x", "rtt_us"),
    lambda chart: list(chart.pair_groups.minutes("x", "rtt_us")),
    lambda chart: list(chart.measurements.list()),
    lambda chart: chart.measurements.prometheus(),
    lambda chart: list(chart.tunnels.list()),
    lambda chart: chart.tunnels.get("x"),
    lambda chart: chart.tunnels.put("x"),
    lambda chart: chart.tunnels.delete("x"),
    lambda chart: chart.sensing.run("a", "ping", "10.0.0.1"),
    lambda chart: chart.sensing.report("x"),
    lambda chart: list(chart.sensing.estimates()),
    lambda chart: chart.sensing.next_pairs("rtt_us"),
    lambda chart: chart.sensing.closest("a"),
    lambda chart: chart.sensing.rank("a", "available_bandwidth_bps", candidates=["b"], direction="to"),
    lambda chart: chart.sensing.relays("a", "b", 2, candidates=["c"]),
    lambda chart: chart.sensing.roll_ups("a", "b", "rtt_us"),
    lambda chart: chart.sensing.baselines(),
    lambda chart: chart.sensing.path_changes(),
    lambda chart: chart.snapshots.list(),
    lambda chart: chart.snapshots.take(),
    lambda chart: list(chart.snapshots.rows("x")),
    lambda chart: chart.snapshots.download(Path("nowhere"), "x"),
    lambda chart: chart.alerts.list(),
    lambda chart: chart.alerts.rules(),
    lambda chart: chart.alerts.rule("x"),
    lambda chart: chart.alerts.put_rule("x", kind="above", metric="rtt_us"),
    lambda chart: chart.alerts.delete_rule("x"),
    lambda chart: chart.series("link", "x", "sent_bps"),
    lambda chart: next(chart.events(resume=False)),
]

# What a program does by reading the list of all; nobody wants it in a shell.
NOT_IN_SHELL = {
    ("GET", "/v1/nodes/{id}"),
    ("GET", "/v1/links/{id}"),
    ("GET", "/v1/quotas/{application}"),
    ("GET", "/v1/sensing-configurations/{id}"),
    ("GET", "/v1/alert-rules/{id}"),
    ("GET", "/v1/authorisation-policies/{id}"),
}

COMMANDS = """
request create --from a --to b --rate 1M
request list
request preview --from a --to b --rate 1M
request show x
request change x --rate 1M
request change x --rate 1M --preview
request release x
request commit x
request receipt x
request history x
audit
flow list
node keys
node records
authorisation list
authorisation create
authorisation delete x
authorisation policy list
authorisation policy set x --subject role/application --rate 1G --duration 8h
authorisation policy delete x
node enrol x --life 30m --token-file KEYS
node revoke x --reason stolen
identity list
identity enrol service/x
identity revoke --serial ab
identity revocations
enrolment list
enrolment withdraw x
peer list
peer set x --url https://y --ca CA.pem --pair a,b@x
peer delete x
next-hop list
next-hop list --element x
next-hop ask x 10.0.0.1
next-hop set x 10.0.0.0/8 --next y --shim 10.0.0.2
next-hop delete x 10.0.0.0/8
receipt get x
receipt keys --keys KEYS
callback list
callback retry x
callback secret
callback secret --replace
quota list
quota set x
quota delete x
node list
node set x --address 10.0.0.1/32
node edge list
node edge set x eth1 --aggregate 1M
node edge delete x eth1
node delete x
link list
link set x:y --to z --capacity 1M
link delete x:y
link capacity x:y
path a b
overlay status
overlay routes x
overlay trace a b
overlay events --of links
policy show
policy show x
policy set --enforcement off
policy delete x
export
explain 10.0.0.1:1-10.0.0.2:2
session-rule list
session-rule show x
session-rule set x --match protocol=udp,remote-ports=5004 --rate 82k
session-rule enable x
session-rule disable x
session-rule delete x
sensing list
sensing put x --from a --to b --address 10.0.0.1
sensing delete x
sensing run --from a --to b --address 10.0.0.1
mesh list
mesh show x
mesh set x --sensor ping=10
mesh delete x
mesh coverage x
pair-group list
pair-group show x
pair-group set x --to a --pair b,c
pair-group delete x
pair-group series x
pair-group download x x.csv
pair-group watch x
measurement list
measurement list --prometheus
tunnels list
tunnels show x
tunnels set x --target 1M
tunnels release x
sensing report x
sensing baselines
sensing changes
estimate list
estimate next rtt_us
estimate closest a
estimate rank a --candidate b --towards
estimate relays a b --count 2
snapshot list
snapshot take
snapshot show x
snapshot download NOWHERE.csv
snapshot rollups --from a --to b
alert list
alert rules
alert put-rule x --kind above --metric rtt_us
alert delete-rule x
series link x sent_bps
tenant list
tenant show x
tenant set x --own node=alpha
tenant delete x
settings show
settings set oversubscription=2
settings limit x --priority 3
events --count 1
"""


def test_client() -> None:
    with recording() as (url, asked), Client(url, "token", tries=1) as chart:
        for call in CALLS:
            with contextlib.suppress(NotFoundError, ProblemError, LookupError, ValueError, StopIteration):
                call(chart)
        assert unreached(asked) == set()


def test_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CHART_TOKEN", "token")
    (tmp_path / "CA.pem").touch()
    with recording() as (url, asked):
        monkeypatch.setenv("CHART_SERVER", url)
        for line in COMMANDS.strip().splitlines():
            words = [
                str(tmp_path / word) if word in ("KEYS", "NOWHERE.csv", "CA.pem") else word for word in line.split()
            ]
            result = CliRunner().invoke(build(words), words)
            assert result.exit_code != 2, f"chart {line}: {result.output}"
        left = unreached(asked) - NOT_IN_SHELL
    assert left == set()


def deleting(group: Any, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of the tree that deletes, by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from deleting(command, *before, name)
        elif name.startswith("delete"):
            yield (*before, name), command


def test_what_deletes_says_so_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHART_TOKEN", "token")
    found = dict(deleting(typer.main.get_command(build())))
    assert ("pair-group", "delete") in found
    assert [name for name, command in found.items() if "as_json" not in {one.name for one in command.params}] == []
    # An edge and an end are parts of their node, which has to be there.
    own = {name for name in found if name not in {("node", "edge", "delete"), ("node", "end", "delete")}}
    lines = [line.split() for line in COMMANDS.strip().splitlines()]
    with recording(deletes=True) as (url, _):
        monkeypatch.setenv("CHART_SERVER", url)
        for name in sorted(own):
            words = [*next(line for line in lines if tuple(line[: len(name)]) == name), "--json"]
            result = CliRunner().invoke(build(words), words)
            assert result.exit_code == 0, f"chart {' '.join(words)}: {result.output}"
            said = words[len(name) : -1]
            assert json.loads(result.stdout) == {"deleted": said[0] if len(said) == 1 else said}, words
