"""`make compose-test`: the whole platform of docker-compose.yml, up, asked for a rate as the demo does, upgraded, down.

Two agents run in network namespaces of their own (compose.test.yml); a request counts as enforced when both have
confirmed it. Then every service is replaced by one with another tag while requests are posted; a request that was
acknowledged and is not there afterwards is lost. Writes `up_s`, `request_to_enforced_ms` and `lost_in_upgrade`. Exit
status 1 with the first thing that is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from chart.platform import demo, laboratory
from chart_client.commands.namespaces import NotPossibleError, cgroup2_mount

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = str(ROOT / "platform" / "compose" / "compose")
ENGINE = str(ROOT / "platform" / "images" / "engine")
PROJECT = "chart-test"
NODES = ("alpha", "delta")
CAPACITY_BPS = 1_000_000_000
IMAGES = ("chart-services", "chart-web")
NEXT = "next"
# Those that are called before those that call them.
UPGRADED = (
    *("registry", "allocator", "reservations", "archiver", "inference", "tunnels", "authority", "gateway", "web"),
)
# The second is what Docker before 23 gets (platform/compose/compose).
AGENT_CAPABILITIES = [["BPF", "NET_ADMIN", "PERFMON"], ["NET_ADMIN", "SYS_ADMIN"]]
UP_LIMIT_S, SERVICE_LIMIT_S, ANSWER_LIMIT_S = 900.0, 180.0, 30.0
LOAD_PERIOD_S = 0.2
LOAD_BPS = 100_000


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
            "LAYERS": f"{os.environ.get('LAYERS', '')} test",
        }
        # Decided once: it asks for the official images.
        self._environment["LAYERS"] = self.compose("layers", limit_s=2400).strip()

    def compose(self, *arguments: str, limit_s: float = UP_LIMIT_S) -> str:
        """What `docker compose` prints.

        Raises:
            ComposeTestError: it failed; its last words are in the message.
        """
        environment = {**self._environment, "CHART_TAG": self.tag}
        done = subprocess.run(
            [COMPOSE, *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        if done.returncode:
            msg = f"`compose {' '.join(arguments)}` failed: {(done.stderr or done.stdout).strip()[-2000:]}"
            raise ComposeTestError(msg)
        return done.stdout

    def forget_next(self) -> None:
        """Remove the second tags, where they were given."""
        for image in IMAGES:
            wanted = f"{image}:{self.tag.removesuffix(f'-{NEXT}')}-{NEXT}"
            if docker("images", "-q", wanted).strip():
                docker("rmi", wanted)

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
                msg = f"{service} is {state['Status']} and not healthy after {limit_s:.0f} s:\n{words}"
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


def register(rest: httpx.Client, installation: Installation) -> None:
    """State both nodes with the addresses of their containers, and the link of each to the other."""
    for node in NODES:
        networks = installation.inspect(f"node-{node}")["NetworkSettings"]["Networks"]
        address = next(iter(networks.values()))["IPAddress"]
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
    """An application that goes on asking for small rates; repeats what was not answered, under the same key."""

    def __init__(self, rest: httpx.Client) -> None:
        self._rest = rest
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: list[str] = []
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
            try:
                answer = self._rest.post("/v1/rate-requests", json=body, headers={"Idempotency-Key": key}, timeout=10)
            except httpx.HTTPError:
                self.unanswered += 1
                continue
            if answer.status_code == 201:
                self.acknowledged.append(answer.json()["id"])
            elif answer.status_code in (429, 500, 502, 503, 504):
                self.unanswered += 1
                continue
            else:
                self.refused.append(answer.text)
            number += 1
            key = secrets.token_hex(8)


def known(rest: httpx.Client, identity: str) -> bool:
    """Whether a request is there.

    Raises:
        httpx.HTTPStatusError: the answer says neither yes nor no.
    """
    answer = rest.get(f"/v1/rate-requests/{identity}")
    return answer.status_code != 404 and bool(answer.raise_for_status())


def upgrade(installation: Installation, rest: httpx.Client) -> int:
    """Replace every service by one with another tag while requests are posted; how many acknowledged ones are lost.

    Raises:
        ComposeTestError: a service does not come back, or no request was acknowledged.
    """
    following = f"{installation.tag}-{NEXT}"
    for image in IMAGES:
        docker("tag", f"{image}:{installation.tag}", f"{image}:{following}")
    installation.tag = following
    with Load(rest) as load:
        for job in ("topics", "migrate"):
            installation.compose("up", "--no-deps", "--exit-code-from", job, job)
        for service in UPGRADED:
            started = time.monotonic()
            installation.compose("up", "-d", "--no-deps", service)
            installation.wait_healthy(service)
            image = installation.inspect(service)["Config"]["Image"]
            if not image.endswith(following):
                msg = f"{service} runs {image} after its upgrade"
                raise ComposeTestError(msg)
            say(f"{service} was replaced in {time.monotonic() - started:.0f} s")
    if load.refused or not load.acknowledged:
        msg = f"{len(load.acknowledged)} requests were acknowledged, {len(load.refused)} refused: {load.refused[:1]}"
        raise ComposeTestError(msg)
    lost = [identity for identity in load.acknowledged if not known(rest, identity)]
    say(
        f"{len(load.acknowledged)} requests were acknowledged during the upgrade, {len(lost)} of them are lost; "
        f"{load.unanswered} calls were repeated"
    )
    return len(lost)


def least_rights(installation: Installation) -> None:
    """No container of ours is root but the agents, and those have three capabilities.

    Raises:
        ComposeTestError: one has more.
    """
    for service in (*UPGRADED, *(f"node-{node}" for node in NODES)):
        found = installation.inspect(service)
        host, user = found["HostConfig"], str(found["Config"]["User"]).split(":")[0]
        added = sorted({name.removeprefix("CAP_") for name in host["CapAdd"] or ()})
        agent = service.startswith("node-")
        allowed = AGENT_CAPABILITIES if agent else [[]]
        closed = host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["Privileged"]
        if added not in allowed or not closed:
            msg = f"{service} has capabilities {added}, read-only root {host['ReadonlyRootfs']}"
            raise ComposeTestError(msg)
        if not agent and user in ("", "0", "root"):
            msg = f"{service} runs as root"
            raise ComposeTestError(msg)


def figure(name: str, value: float, unit: str, goal: str | None = None) -> dict[str, Any]:
    """One figure of the report."""
    return {"name": name, "value": round(value, 1), "unit": unit, "goal": goal, "peer": None}


def run(installation: Installation, *, with_upgrade: bool) -> list[dict[str, Any]]:
    """Everything on a platform that this brings up."""
    started = time.monotonic()
    installation.compose("up", "-d")
    for service in ("web", *(f"node-{node}" for node in NODES)):
        installation.wait_healthy(service)
    up_s = time.monotonic() - started
    say(f"everything is up and healthy after {up_s:.0f} s")
    least_rights(installation)
    headers = {"Authorization": f"Bearer {installation.operator()}"}
    with httpx.Client(base_url=installation.web, headers=headers, timeout=10) as rest:
        register(rest, installation)
        laboratory.wait_ready(rest)
        say("both agents report, every link has a load and a rate")
        request, enforced_ms = demo.ask_for_rate(rest)
        granted = f"{request['granted_bps'] / 1e6:.0f} Mb/s"
        say(f"{granted} are enforced on {request['confirming_nodes']} after {enforced_ms:.0f} ms")
        figures = [figure("up_s", up_s, "s"), figure("request_to_enforced_ms", enforced_ms, "ms", "<= 1000")]
        if with_upgrade:
            figures.append(figure("lost_in_upgrade", upgrade(installation, rest), "requests", "= 0"))
            kept = rest.get(f"/v1/rate-requests/{request['id']}").raise_for_status().json()
            if kept["enforcement"] != "ENFORCED":
                msg = f"the demo's request is {kept['enforcement']} after the upgrade: {kept['reason']}"
                raise ComposeTestError(msg)
    return figures


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--tag", required=True, help="tag of the images")
    parser.add_argument("--no-upgrade", action="store_true")
    arguments = parser.parse_args()
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    try:
        engine = subprocess.run(
            [ENGINE, "up", str(ROOT / "build" / "docker")], capture_output=True, text=True, check=True
        )
        os.environ["DOCKER_HOST"] = engine.stdout.strip()
        installation = Installation(arguments.report.parent.resolve(), arguments.tag)
        installation.compose("build", limit_s=1200)
        try:
            make_cgroups()
            figures = run(installation, with_upgrade=not arguments.no_upgrade)
        except Exception:
            logs = arguments.report.with_name("services.log")
            logs.write_text(installation.compose("logs", "--no-color", limit_s=120), encoding="utf-8")
            say(f"what the containers said is in {logs}")
            raise
        finally:
            installation.compose("down", "--volumes", "--remove-orphans", limit_s=180)
            installation.forget_next()
            remove_cgroups()
    except (ComposeTestError, laboratory.LaboratoryError, httpx.HTTPError, subprocess.SubprocessError) as error:
        say(f"failed: {error}")
        return 1
    report = {"command": "make compose-test", "figures": figures}
    arguments.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    say(f"wrote {arguments.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
