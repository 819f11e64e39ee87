"""`make compose-test`: the whole platform of docker-compose.yml, up, asked for a rate as the demo does, upgraded, down.

Two agents run in network namespaces of their own (compose.test.yml), each with a sensor pod; a request counts as
enforced when the agents along its path (that of its sender, here) have confirmed it. The platform starts in the
previous version. Then the schemas are brought up to date under it and every service and agent is replaced by the new
one, one after the other, while requests are posted and a path is measured: a request that was acknowledged and is not
there afterwards is lost, and so is a measurement that a pod has taken and the archive does not have. At the end a
backup is taken, every volume is thrown away and the backup restored: every request has to be back. In the new version
both nodes are enrolled and records are checked (trust.py), and at last everything is thrown away once more and the
commands of docs/install.md are followed from nothing to an enforced rate (page.py). Exit status 1 with the first thing
that is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import page
import trust

from chart_client.commands.namespaces import NotPossibleError, cgroup2_mount
from chart_lab import demo
from chart_lab.platform import laboratory
from chart_lab.platform.process_rights import Rights

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = str(ROOT / "deploy" / "compose" / "compose")
BACKUP = str(ROOT / "deploy" / "compose" / "backup")
ENROL = str(ROOT / "deploy" / "compose" / "enrol")
ENGINE = str(ROOT / "deploy" / "images" / "engine")
PROJECT = "chart-test"
NODES = ("alpha", "delta")
CAPACITY_BPS = 1_000_000_000
# Those that are called before those that call them.
UPGRADED = (
    *("registry", "allocator", "reservations", "archiver", "inference", "tunnels", "authority", "gateway", "web"),
)
AGENTS = tuple(f"node-{node}" for node in NODES)
PODS = tuple(f"pod-{node}" for node in NODES)
# Those of others, as published or stood in for.
OTHERS = ("kafka", "database", "keycloak", "vault")
# The second is what Docker before 23 gets (deploy/compose/compose).
AGENT_CAPABILITIES = [["BPF", "NET_ADMIN", "PERFMON"], ["NET_ADMIN", "SYS_ADMIN"]]
UP_LIMIT_S, SERVICE_LIMIT_S, ANSWER_LIMIT_S = 900.0, 180.0, 30.0
SETTLE_LIMIT_S = 60.0
LOAD_PERIOD_S = 0.2
STANDING_MAX = 100
MEASURED_EVERY_MS = 500
# Where compose.test.yml mounts it.
GIVEN_TOPICS_FILE = "/usr/share/chart-test/topics.yaml"
# What a pod has stored; its file outlives the container.
POD_COUNTS = (
    "import sqlite3; file = sqlite3.connect('/var/lib/chart/sensor-pod.sqlite');"
    "print(file.execute('SELECT count(*) FROM measurement').fetchone()[0])"
)
LOAD_BPS = 100_000
# Layers of what was installed before mutual TLS at the broker.
BEFORE = " plain test-plain"


class ComposeTestError(RuntimeError):
    """What is wrong with the platform of docker-compose.yml."""


def say(text: str) -> None:
    """Progress."""
    sys.stderr.write(f"compose: {text}\n")
    sys.stderr.flush()


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has at the moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(listening.getsockname()[1]) for listening in sockets]
    for listening in sockets:
        listening.close()
    return ports


def cgroup_mount() -> str:
    """Where this machine has the cgroup v2 hierarchy: alone, or beside those of v1.

    Raises:
        ComposeTestError: nowhere.
    """
    try:
        return str(cgroup2_mount(Path("/proc/mounts").read_text(encoding="utf-8")))
    except NotPossibleError as error:
        raise ComposeTestError(str(error)) from error


def make_cgroups() -> None:
    """The cgroups of the nodes: agents without CAP_DAC_OVERRIDE cannot make any at the root of the hierarchy."""
    for node in NODES:
        (Path(cgroup_mount()) / PROJECT / node).mkdir(parents=True, exist_ok=True)


def remove_cgroups() -> None:
    """Remove them again."""
    for path in (*(Path(cgroup_mount()) / PROJECT / node for node in NODES), Path(cgroup_mount()) / PROJECT):
        if path.exists():
            path.rmdir()


class Installation:
    """One platform of docker-compose.yml with the layer for tests, on free ports."""

    def __init__(self, scratch: Path, tag: str) -> None:
        web, keycloak, authority, kafka = free_ports(4)
        self.web = f"http://127.0.0.1:{web}"
        self.keycloak = f"http://127.0.0.1:{keycloak}"
        self.tag = tag
        self.bootstrap = f"127.0.0.1:{kafka}"
        self._administrator = secrets.token_hex(16)
        self._application = secrets.token_hex(16)
        self._environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": PROJECT,
            "CHART_COMPOSE_SECRETS": str(scratch / "secrets.env"),
            "CHART_KEYCLOAK_PASSWORD": self._administrator,
            "CHART_APPLICATION_SECRET": self._application,
            "CHART_COMPOSE_WEB_PORT": str(web),
            "CHART_COMPOSE_KEYCLOAK_PORT": str(keycloak),
            "CHART_COMPOSE_AUTHORITY_PORT": str(authority),
            "CHART_COMPOSE_KAFKA_PORT": str(kafka),
            "CHART_CGROUP_MOUNT": cgroup_mount(),
            # Until the nodes are enrolled.
            "CHART_RECORD_AUTHENTICATION": "off",
            # It begins as a version that spoke to the broker in plain.
            "LAYERS": f"{os.environ.get('LAYERS', '')} test{BEFORE}",
        }
        self._given: dict[str, str] = {}
        # Decided once: it asks for the official images.
        self._environment["LAYERS"] = self.compose("layers", limit_s=2400).strip()
        self.use(tag)

    def use(self, tag: str) -> None:
        """Go on with the images of another version; the first images of the pod lack a file."""
        self.tag = tag
        has = docker("image", "inspect", "--format", "{{.Config.Env}}", f"chart-sensor-pod:{tag}")
        self._given = {} if "CHART_TOPICS_FILE=" in has else {"CHART_TEST_TOPICS_FILE": GIVEN_TOPICS_FILE}

    def compose(self, *arguments: str, limit_s: float = UP_LIMIT_S) -> str:
        """What `docker compose` prints.

        Raises:
            ComposeTestError: it failed; its last words are in the message.
        """
        return self._run(COMPOSE, *arguments, limit_s=limit_s)

    def as_installed(self) -> None:
        """Go on as installed by default: the broker takes who proves who it is, and services take records of nodes from
        these nodes alone.
        """
        del self._environment["CHART_RECORD_AUTHENTICATION"]
        self._environment["LAYERS"] = self._environment["LAYERS"].replace(BEFORE, "")
        self.compose("up", "-d")

    @property
    def needs_identity(self) -> bool:
        """Whether the broker takes enrolled nodes alone."""
        return BEFORE not in self._environment["LAYERS"]

    def enrol(self, node: str) -> None:
        """As docs/install.md does it.

        Raises:
            ComposeTestError: it failed; its last words are in the message.
        """
        self._run(ENROL, node, f"node-{node}", limit_s=120)

    def follow_page(self) -> str:
        """What the commands of docs/install.md print.

        Raises:
            page.PageError: one failed.
        """
        given = {**self._environment, **self._given, "CHART_TAG": self.tag}
        return page.follow(given, UP_LIMIT_S)

    def address(self, service: str) -> str:
        """Where a service's container is in the network of the platform."""
        networks = self.inspect(service)["NetworkSettings"]["Networks"]
        return str(next(iter(networks.values()))["IPAddress"])

    def backup(self, *arguments: str) -> str:
        """What `deploy/compose/backup` prints.

        Raises:
            ComposeTestError: it failed; its last words are in the message.
        """
        return self._run(BACKUP, *arguments, limit_s=UP_LIMIT_S).strip()

    def _run(self, program: str, *arguments: str, limit_s: float) -> str:
        environment = {**self._environment, **self._given, "CHART_TAG": self.tag}
        done = subprocess.run(
            [program, *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        if done.returncode:
            msg = f"`{Path(program).name} {' '.join(arguments)}` failed: {(done.stderr or done.stdout).strip()[-2000:]}"
            raise ComposeTestError(msg)
        return done.stdout

    def inspect(self, service: str) -> dict[str, Any]:
        """The container of a service."""
        label = "label=com.docker.compose"
        container = docker(
            "ps", "-aq", "--filter", f"{label}.project={PROJECT}", "--filter", f"{label}.service={service}"
        )
        if not container.split():
            msg = f"{service} has no container"
            raise ComposeTestError(msg)
        found: list[dict[str, Any]] = json.loads(docker("inspect", *container.split()))
        return found[0]

    def wait_healthy(self, service: str, limit_s: float = SERVICE_LIMIT_S) -> None:
        """Until the container's health check passes.

        Raises:
            ComposeTestError: not in time; the end of its log is in the message.
        """
        end = time.monotonic() + limit_s
        while True:
            state = self.inspect(service)["State"]
            if state.get("Health", {}).get("Status") == "healthy":
                return
            if time.monotonic() > end:
                words = self.compose("logs", "--tail=15", service, limit_s=60)
                msg = f"{service} is {state['Status']} and not healthy after {limit_s:.0f} s:\n{words[-2000:]}"
                raise ComposeTestError(msg)
            time.sleep(0.5)

    def operator(self) -> str:
        """An access token of Keycloak with the role operator, got by client credentials."""
        base = self.keycloak
        form = {"grant_type": "password", "client_id": "admin-cli", "username": "administrator"}
        answer = httpx.post(
            f"{base}/realms/master/protocol/openid-connect/token",
            data={**form, "password": self._administrator},
            timeout=ANSWER_LIMIT_S,
        )
        answer.raise_for_status()
        headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
        with httpx.Client(base_url=f"{base}/admin/realms/chart", headers=headers, timeout=ANSWER_LIMIT_S) as admin:
            account = "service-account-chart-example-application"
            identity = admin.get("/users", params={"username": account, "exact": "true"}).json()[0]["id"]
            role = admin.get("/roles/operator").raise_for_status().json()
            admin.post(f"/users/{identity}/role-mappings/realm", json=[role]).raise_for_status()
        form = {"grant_type": "client_credentials", "client_id": "chart-example-application"}
        answer = httpx.post(
            f"{base}/realms/chart/protocol/openid-connect/token",
            data={**form, "client_secret": self._application},
            timeout=ANSWER_LIMIT_S,
        )
        return str(answer.raise_for_status().json()["access_token"])


def docker(*arguments: str) -> str:
    """What docker prints; the engine is the one that DOCKER_HOST names."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        msg = f"`docker {' '.join(arguments)}` failed: {done.stderr.strip()}"
        raise ComposeTestError(msg)
    return done.stdout


def address_of(installation: Installation, node: str) -> str:
    """Where a node's container is in the network of the platform."""
    return installation.address(f"node-{node}")


def register(rest: httpx.Client, installation: Installation) -> None:
    """State both nodes with the addresses of their containers, and the link of each to the other."""
    for node in NODES:
        address = address_of(installation, node)
        put(rest, f"/v1/nodes/{node}", {"description": "node of the test", "addresses": [f"{address}/32"]})
    for node, other in zip(NODES, reversed(NODES), strict=True):
        put(rest, f"/v1/links/{node}:eth0", {"to_node": other, "capacity_bps": CAPACITY_BPS, "delay_us": 50})


def put(rest: httpx.Client, path: str, body: dict[str, Any]) -> None:
    """State something.

    Raises:
        ComposeTestError: it was refused.
    """
    answer = rest.put(path, json=body)
    if answer.is_error:
        msg = f"PUT {path} was refused: {answer.status_code} {answer.text}"
        raise ComposeTestError(msg)


class Load:
    """An application that goes on asking for small rates, and gives the oldest back: an agent has room for 256 grants.

    Repeats what was not answered, under the same key.
    """

    def __init__(self, rest: httpx.Client) -> None:
        self._rest = rest
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: list[str] = []
        self.released: list[str] = []
        self.releasing: list[str] = []
        self.refused: list[str] = []
        self.unanswered = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=ANSWER_LIMIT_S)

    def _run(self) -> None:
        number = 0
        key = secrets.token_hex(8)
        while not self._stop.wait(LOAD_PERIOD_S):
            body = {
                "source": NODES[0], "destination": NODES[1],
                "protocol": "tcp", "destination_port": 6000 + number % 20_000,
                "service": "variable", "guaranteed_bps": LOAD_BPS, "description": "load of the upgrade",
            }  # fmt: skip
            made = self._post("/v1/rate-requests", body, key)
            if made is not None:
                number += 1
                key = secrets.token_hex(8)
                if made:
                    self.acknowledged.append(made)
            if len(self.acknowledged) - len(self.released) > STANDING_MAX:
                oldest = self.acknowledged[len(self.released)]
                self.releasing = [oldest]
                if self._post(f"/v1/rate-requests/{oldest}/release", {}, oldest):
                    self.released.append(oldest)
                    self.releasing = []

    def _post(self, path: str, body: dict[str, Any], key: str) -> str | None:
        """The id of the request that was answered; empty when it was refused, None when it has to be repeated."""
        try:
            answer = self._rest.post(path, json=body, headers={"Idempotency-Key": key}, timeout=10)
        except httpx.HTTPError:
            self.unanswered += 1
            return None
        if answer.status_code in (429, 500, 502, 503, 504):
            self.unanswered += 1
            return None
        if answer.is_error:
            self.refused.append(answer.text)
            return ""
        return str(answer.json()["id"])


def kept(rest: httpx.Client, identity: str, *, released: bool | None) -> bool:
    """Whether a request is there as it was acknowledged last: standing, or given back; None: either.

    Raises:
        httpx.HTTPStatusError: the answer says neither yes nor no.
    """
    answer = rest.get(f"/v1/rate-requests/{identity}")
    if answer.status_code == 404:
        return False
    found = answer.raise_for_status().json()["lifecycle"] == "RELEASED"
    return released is None or found == released


class Measuring:
    """The path from the first node to the second, measured by its pod from now on."""

    NAME = "upgrade"

    def __init__(self, rest: httpx.Client, installation: Installation) -> None:
        self._rest, self._installation = rest, installation
        source, destination = NODES
        body = {
            "source_node": source, "destination_node": destination,
            "destination_address": address_of(installation, destination),
            "sensor": "ping", "parameters": {"count": "1"}, "period_ms": MEASURED_EVERY_MS,
        }  # fmt: skip
        put(rest, f"/v1/sensing-configurations/{self.NAME}", body)
        self._wait(lambda: self.archived(" AND error = ''") > 0, "no measurement of the path reached the archive")

    def taken(self) -> int:
        """Results that the pod has stored."""
        return int(self._installation.compose("exec", "-T", f"pod-{NODES[0]}", "python3", "-c", POD_COUNTS, limit_s=60))

    def archived(self, condition: str = "") -> int:
        """Those of them that the archive has; failures to measure are results as well."""
        question = f"SELECT count(*) FROM archiver.measurement WHERE source = '{NODES[0]}'{condition}"  # noqa: S608
        command = ("exec", "-T", "database", "psql", "-U", "chart", "-d", "chart", "-Atc", question)
        return int(self._installation.compose(*command, limit_s=60))

    def lost(self) -> int:
        """End it; how many results were taken and are not in the archive when everything has settled."""
        self._rest.delete(f"/v1/sensing-configurations/{self.NAME}").raise_for_status()
        seen = -1

        def settled() -> bool:
            nonlocal seen
            seen, before = self.taken(), seen
            return seen == before and self.archived() >= seen

        with contextlib.suppress(ComposeTestError):
            self._wait(settled, "they do not come")
        archived = self.archived()
        say(f"{seen} measurements were taken, {archived} are archived")
        return max(0, seen - archived)

    def _wait(self, done: Callable[[], bool], complaint: str) -> None:
        end = time.monotonic() + SETTLE_LIMIT_S
        while not done():
            if time.monotonic() > end:
                raise ComposeTestError(complaint)
            time.sleep(1)


def upgrade(installation: Installation, rest: httpx.Client, following: str) -> tuple[int, int]:
    """Replace every service and agent by the version `following`; what is lost: acknowledged requests, measurements.

    Raises:
        ComposeTestError: a service does not come back, or no request was acknowledged.
    """
    say(f"from {installation.tag} to {following}")
    measuring = Measuring(rest, installation)
    installation.use(following)
    with Load(rest) as load:
        for job in ("topics", "migrate"):
            installation.compose("up", "--no-deps", "--exit-code-from", job, job)
        # A pod lives in the network namespace of its node's agent: both are replaced, first the agent.
        for service in (*UPGRADED, *(f"{kind}-{node}" for node in NODES for kind in ("node", "pod"))):
            started = time.monotonic()
            installation.compose("up", "-d", "--no-deps", service)
            installation.wait_healthy(service)
            image = installation.inspect(service)["Config"]["Image"]
            if not image.endswith(f":{following}"):
                msg = f"{service} runs {image} after its upgrade"
                raise ComposeTestError(msg)
            say(f"{service} was replaced in {time.monotonic() - started:.0f} s")
    if load.refused or not load.acknowledged:
        msg = f"{len(load.acknowledged)} requests were acknowledged, {len(load.refused)} refused: {load.refused[:1]}"
        raise ComposeTestError(msg)
    # A release that was not answered when the load ended may have happened.
    expected: dict[str, bool | None] = dict.fromkeys(load.acknowledged, False)
    expected |= dict.fromkeys(load.released, True) | dict.fromkeys(load.releasing)
    lost = [one for one, released in expected.items() if not kept(rest, one, released=released)]
    say(
        f"{len(load.acknowledged)} requests were acknowledged during the upgrade and {len(load.released)} released, "
        f"{len(lost)} of them are lost; {load.unanswered} calls were repeated"
    )
    return len(lost), measuring.lost()


def least_rights(installation: Installation) -> None:
    """No process of any container is root but those of the agents, and those have just the capabilities that they were
    given, one of AGENT_CAPABILITIES.

    Raises:
        ComposeTestError: one has more, by its container's settings or as the kernel tells it.
    """
    for service in (*UPGRADED, *AGENTS, *PODS):
        found = installation.inspect(service)
        host = found["HostConfig"]
        added = sorted({name.removeprefix("CAP_") for name in host["CapAdd"] or ()})
        allowed = AGENT_CAPABILITIES if service in AGENTS else [[]]
        closed = host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["Privileged"]
        if added not in allowed or not closed:
            msg = f"{service} has capabilities {added}, read-only root {host['ReadonlyRootfs']}"
            raise ComposeTestError(msg)
    for service in (*UPGRADED, *AGENTS, *PODS, *OTHERS):
        found = installation.inspect(service)
        held = {name.removeprefix("CAP_") for name in found["HostConfig"]["CapAdd"] or ()}
        running = [rights for pid in pids(found["Id"]) if (rights := Rights.of(pid))]
        if not running:
            msg = f"{service} has no process"
            raise ComposeTestError(msg)
        for rights in running:
            wrong = rights.beyond(held) if service in AGENTS else rights.beyond_a_user()
            if wrong:
                msg = f"a process of {service} {wrong}"
                raise ComposeTestError(msg)


def pids(container: str) -> list[int]:
    """The processes of a container, by their ids on this machine."""
    return [int(line) for line in docker("top", container, "-eo", "pid").splitlines()[1:]]


def figure(name: str, value: float, unit: str, goal: str | None = None) -> dict[str, Any]:
    """One figure of the report."""
    return {"name": name, "value": round(value, 3), "unit": unit, "goal": goal, "peer": None}


def bring_up(installation: Installation) -> float:
    """Start everything; seconds until all of it is healthy. Pods that wait for their identity are not."""
    started = time.monotonic()
    installation.compose("up", "-d")
    for service in ("web", *AGENTS, *(() if installation.needs_identity else PODS)):
        installation.wait_healthy(service)
    return time.monotonic() - started


def client(installation: Installation) -> httpx.Client:
    """As an operator, by a token of Keycloak."""
    headers = {"Authorization": f"Bearer {installation.operator()}"}
    return httpx.Client(base_url=installation.web, headers=headers, timeout=10)


def all_requests(rest: httpx.Client) -> dict[str, tuple[str, int]]:
    """Every rate request by id: what became of it, and its granted rate."""
    found: dict[str, tuple[str, int]] = {}
    query = {"limit": "200"}
    while True:
        page = laboratory.fetch(rest, "/v1/rate-requests", **query)
        found |= {one["id"]: (one["lifecycle"], one["granted_bps"]) for one in page["items"]}
        if not page["next_cursor"]:
            return found
        query["cursor"] = page["next_cursor"]


def restored(installation: Installation, folder: Path, demonstration: str) -> list[dict[str, Any]]:
    """Back up, forget every volume, restore: every request is there as it was, and `demonstration` enforced again.

    Raises:
        ComposeTestError: it cannot be restored, or Vault does not open what it closed.
    """
    with client(installation) as rest:
        before = all_requests(rest)
    backup = installation.backup("take", str(folder))
    say(f"took a backup with {len(before)} requests; everything is thrown away")
    installation.compose("down", "--volumes", limit_s=180)
    started = time.monotonic()
    installation.backup("restore", backup)
    bring_up(installation)
    restore_s = time.monotonic() - started
    # Their certificates went with their volumes; the authority's word and keys came back.
    trust.enrol(installation, NODES)
    for pod in PODS:
        installation.wait_healthy(pod)
    with client(installation) as rest:
        after = all_requests(rest)
        lost = [identity for identity, request in before.items() if after.get(identity) != request]
        say(f"{len(before) - len(lost)} of {len(before)} requests are back after {restore_s:.0f} s")
        laboratory.wait_ready(rest)
        wait_enforced(rest, demonstration)
    return [
        figure("lost_in_restore", len(lost), "requests", "= 0"),
        figure("restore_s", restore_s, "s"),
    ]


def run(installation: Installation, following: str | None, scratch: Path) -> list[dict[str, Any]]:
    """Everything on a platform that this brings up; `following` is the version to upgrade to."""
    up_s = bring_up(installation)
    say(f"everything is up and healthy after {up_s:.0f} s")
    least_rights(installation)
    with client(installation) as rest:
        register(rest, installation)
        put(rest, "/v1/policies/default", {"enforcement": "enforce"})
        laboratory.wait_ready(rest)
        say("both agents report, every link has a load and a rate")
        request, enforced_ms = demo.ask_for_rate(rest)
        granted = f"{request['granted_bps'] / 1e6:.0f} Mb/s"
        say(f"{granted} are enforced on {request['confirming_nodes']} after {enforced_ms:.0f} ms")
        figures = [figure("up_s", up_s, "s"), figure("request_to_enforced_ms", enforced_ms, "ms", "<= 1000")]
        if following:
            requests, measurements = upgrade(installation, rest, following)
            figures.append(figure("lost_in_upgrade", requests, "requests", "= 0"))
            figures.append(figure("measurements_lost_in_upgrade", measurements, "measurements", "= 0"))
            wait_enforced(rest, request["id"])
            least_rights(installation)
        figures += trusted(installation, rest)
        wait_enforced(rest, request["id"])
    figures += restored(installation, scratch, request["id"])
    installation.compose("down", "--volumes", limit_s=180)
    say("everything is thrown away; following docs/install.md")
    started = time.monotonic()
    installation.follow_page()
    return [*figures, figure("install_page_s", time.monotonic() - started, "s")]


def trusted(installation: Installation, rest: httpx.Client) -> list[dict[str, Any]]:
    """Enrol the nodes, take their records alone from now on, and try what others write.

    Raises:
        trust.TrustError: what is wrong.
    """
    trust.enrol(installation, NODES)
    installation.as_installed()
    for service in (*UPGRADED, *AGENTS, *PODS):
        installation.wait_healthy(service)
    trust.wait_enrolled(installation, NODES)
    laboratory.wait_ready(rest)
    least_rights(installation)
    found = trust.figures(installation, rest, NODES)
    say(", ".join(f"{name} {value:g}" for name, (value, _, _) in found.items()))
    for name, (value, _, goal) in found.items():
        sign, bound = goal.split()
        if not (value >= float(bound) if sign == ">=" else value == float(bound)):
            msg = f"{name} is {value:g}, not {goal}"
            raise ComposeTestError(msg)
    trust.tokens_are_good_once(installation, *NODES)
    say("a token is good once, and its agent says so")
    return [figure(name, *facts) for name, facts in found.items()]


def wait_enforced(rest: httpx.Client, identity: str) -> None:
    """The demo's request is enforced again after its agents were replaced.

    Raises:
        ComposeTestError: not in time.
    """
    end = time.monotonic() + SETTLE_LIMIT_S
    while True:
        request = rest.get(f"/v1/rate-requests/{identity}").raise_for_status().json()
        if request["enforcement"] == "ENFORCED":
            return
        if time.monotonic() > end:
            msg = f"the demo's request is {request['enforcement']} after the upgrade: {request['reason']}"
            raise ComposeTestError(msg)
        time.sleep(0.5)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--tag", required=True, help="tag of the images")
    parser.add_argument("--previous", help="tag of the version to start with; without it nothing is upgraded")
    arguments = parser.parse_args()
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    try:
        engine = subprocess.run(
            [ENGINE, "up", str(ROOT / "build" / "docker")], capture_output=True, text=True, check=True
        )
        os.environ["DOCKER_HOST"] = engine.stdout.strip()
        installation = Installation(arguments.report.parent.resolve(), arguments.previous or arguments.tag)
        installation.compose("build", limit_s=1200)
        try:
            make_cgroups()
            with tempfile.TemporaryDirectory(prefix="chart-compose-") as scratch:
                figures = run(installation, arguments.tag if arguments.previous else None, Path(scratch))
        except Exception:
            logs = arguments.report.with_name("services.log")
            logs.write_text(installation.compose("logs", "--no-color", limit_s=120), encoding="utf-8")
            say(f"what the containers said is in {logs}")
            raise
        finally:
            installation.compose("down", "--volumes", "--remove-orphans", limit_s=180)
            remove_cgroups()
    except (
        ComposeTestError,
        trust.TrustError,
        page.PageError,
        laboratory.LaboratoryError,
        httpx.HTTPError,
        subprocess.SubprocessError,
    ) as error:
        say(f"failed: {error}")
        return 1
    report = {"command": "make compose-test", "figures": figures}
    arguments.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    say(f"wrote {arguments.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
