"""A platform of docker-compose.yml that the compose test brings up: its commands, its containers, its addresses."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import page

from chart_client.commands.namespaces import NotPossibleError, cgroup2_mount

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = str(ROOT / "deploy" / "compose" / "compose")
BACKUP = str(ROOT / "deploy" / "compose" / "backup")
ENROL = str(ROOT / "deploy" / "compose" / "enrol")
PROJECT = "chart-test"
NODES = ("alpha", "delta")
# Those that are called before those that call them.
UPGRADED = (
    *("registry", "allocator", "reservations", "archiver", "inference", "tunnels", "authority", "gateway", "web"),
)
AGENTS = tuple(f"node-{node}" for node in NODES)
PODS = tuple(f"pod-{node}" for node in NODES)
UP_LIMIT_S, SERVICE_LIMIT_S, ANSWER_LIMIT_S = 900.0, 180.0, 30.0
SETTLE_LIMIT_S = 60.0
# Where compose.test.yml mounts it.
GIVEN_TOPICS_FILE = "/usr/share/chart-test/topics.yaml"
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
    """One platform of docker-compose.yml with the layers for tests and observability, on free ports."""

    def __init__(self, scratch: Path, tag: str) -> None:
        web, keycloak, authority, kafka, prometheus, grafana = free_ports(6)
        self.web = f"http://127.0.0.1:{web}"
        self.keycloak = f"http://127.0.0.1:{keycloak}"
        self.prometheus = f"http://127.0.0.1:{prometheus}"
        self.tag = tag
        self.bootstrap = f"127.0.0.1:{kafka}"
        self.authority = f"127.0.0.1:{authority}"
        self._administrator = secrets.token_hex(16)
        self._application = secrets.token_hex(16)
        self._environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": PROJECT,
            "CHART_COMPOSE_SECRETS": str(scratch / "secrets.env"),
            "CHART_COMPOSE_TARGETS": str(scratch / "test-targets"),
            "CHART_KEYCLOAK_PASSWORD": self._administrator,
            "CHART_APPLICATION_SECRET": self._application,
            "CHART_COMPOSE_WEB_PORT": str(web),
            "CHART_COMPOSE_KEYCLOAK_PORT": str(keycloak),
            "CHART_COMPOSE_AUTHORITY_PORT": str(authority),
            "CHART_COMPOSE_KAFKA_PORT": str(kafka),
            "CHART_COMPOSE_PROMETHEUS_PORT": str(prometheus),
            "CHART_COMPOSE_GRAFANA_PORT": str(grafana),
            "CHART_CGROUP_MOUNT": cgroup_mount(),
            # Until the nodes are enrolled.
            "CHART_RECORD_AUTHENTICATION": "off",
            # It begins as a version that spoke to the broker in plain.
            "LAYERS": f"{os.environ.get('LAYERS', '')} observability test{BEFORE}",
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
    def environment(self) -> dict[str, str]:
        """What programs of deploy/compose are told."""
        return {**self._environment, **self._given, "CHART_TAG": self.tag}

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
        return page.follow(self.environment, UP_LIMIT_S)

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
        done = subprocess.run(
            [program, *arguments],
            cwd=ROOT,
            env=self.environment,
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


def put(rest: httpx.Client, path: str, body: dict[str, Any]) -> None:
    """State something.

    Raises:
        ComposeTestError: it was refused.
    """
    answer = rest.put(path, json=body)
    if answer.is_error:
        msg = f"PUT {path} was refused: {answer.status_code} {answer.text}"
        raise ComposeTestError(msg)


def figure(name: str, value: float, unit: str, goal: str | None = None) -> dict[str, Any]:
    """One figure of the report."""
    return {"name": name, "value": round(value, 3), "unit": unit, "goal": goal, "peer": None}


def client(installation: Installation) -> httpx.Client:
    """As an operator, by a token of Keycloak."""
    headers = {"Authorization": f"Bearer {installation.operator()}"}
    return httpx.Client(base_url=installation.web, headers=headers, timeout=10)
