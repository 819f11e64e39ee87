"""Alerts in the cluster of `make cluster-test`: a real Prometheus scrapes every part, what an alert warns of is made to
happen, and the alert fires.

The rules are those that are installed, but what an alert warns of need not last longer than ``FOR_S`` before it fires.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import yaml
from cluster_load import BODY, Load
from cluster_manifests import CONTROL, FAR, IMAGES, NAMESPACE, Manifest, deployment, kept
from control_plane import ControlPlaneError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from helm_test import RELEASE
from pod_rates import PodRates

if TYPE_CHECKING:
    from cluster_test import Trial

RULES = Path(__file__).resolve().parents[2] / "helm" / "chart" / "files" / "alerts.yaml"
SCRAPE_S = 2
FOR_S = 4
# Everything is well again within this after each cause.
WELL_LIMIT_S = 240.0
PORT = 9090
# More failures and packets than the alerts allow.
OVERLAY_FAILURES, OVERLAY_STRANGERS = 8, 50
OVERLAY_PORT = 18480
LAB_LINK = f"{CONTROL}-{FAR}"
FILES = "/etc/prometheus"
# Records that nobody can read, and one in a node's name that it did not write.
RUBBISH = """
import os
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": os.environ["CHART_KAFKA_BOOTSTRAP"]})
producer.produce("chart.topology.v1", bytes([255, 255, 255]), key=b"alpha")
# A report of loads in the name of alpha, with nothing in it and not signed.
producer.produce("chart.link-load.v1", bytes([10, 5]) + b"alpha", key=b"alpha")
raise SystemExit(producer.flush(20))
"""


def alert_names() -> list[str]:
    """Every alert that is installed."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]


def prometheus(folder: Path) -> list[Manifest]:
    """Prometheus with the alerts. ``folder``: where its files are, with the list of what it scrapes, kept by the test
    (Debian's Prometheus cannot ask Kubernetes).
    """
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = f"{FOR_S}s"
    interval = f"{SCRAPE_S}s"
    configuration = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [f"{FILES}/rules.yaml"],
        "scrape_configs": [{"job_name": "chart", "file_sd_configs": [{"files": [f"{FILES}/targets.json"]}]}],
    }
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    (folder / "prometheus.yml").write_text(json.dumps(configuration))
    (folder / "rules.yaml").write_text(json.dumps(rules))
    (folder / "targets.json").write_text("[]")
    command = ["prometheus", f"--config.file={FILES}/prometheus.yml", "--storage.tsdb.path=/prometheus"]
    image = IMAGES["prometheus"]
    return [deployment("prometheus", NAMESPACE, image, node=CONTROL, command=command, **kept(folder, FILES))]


def targets(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the chart's ServiceMonitor and PodMonitor select: CHART's ports `http` and `metrics`."""
    found = []
    for pod in pods:
        address = pod["status"].get("podIP")
        labels = pod["metadata"]["labels"]
        if (
            labels.get("app.kubernetes.io/name") != "chart"
            or labels.get("app.kubernetes.io/component") == "web"
            or not address
        ):
            continue
        ports = [port for one in pod["spec"]["containers"] for port in one.get("ports", [])]
        at = [f"{address}:{port['containerPort']}" for port in ports if port.get("name") in ("http", "metrics")]
        found.append({"targets": at, "labels": {"pod": pod["metadata"]["name"]}})
    return found


@dataclass(frozen=True)
class Cause:
    """What makes alerts fire, as long as its context lasts."""

    what: str
    alerts: tuple[str, ...]
    make: Callable[[], AbstractContextManager[None]]
    limit_s: float = 60.0


class Alerts:
    """Prometheus, and the causes."""

    def __init__(self, trial: Trial, folder: Path, say: Callable[[str], None]) -> None:
        """``folder``: as `prometheus` got it."""
        self._trial, self._folder, self._say = trial, folder, say
        self._began = time.monotonic()

    def begin(self) -> None:
        """Forget what fired so far."""
        self._began = time.monotonic()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Rows of an instant query; what is scraped follows the pods with each."""
        new = self._folder / "targets.new"
        new.write_text(json.dumps(targets(self._trial.pods())))
        new.rename(self._folder / "targets.json")
        address = self._trial.kubectl(
            "-n", NAMESPACE, "get", "pods", "-l", "app=prometheus", "-o", "jsonpath={.items[0].status.podIP}"
        )
        answer = httpx.get(f"http://{address}:{PORT}/api/v1/query", params={"query": expression}, timeout=10)
        rows: list[dict[str, Any]] = answer.raise_for_status().json()["data"]["result"]
        return rows

    def fired(self) -> set[str]:
        """Alerts that fired since `begin`, or now."""
        seconds = max(SCRAPE_S * 2, round(time.monotonic() - self._began))
        rows = self.query(f'count by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}[{seconds}s]))')
        return {row["metric"]["alertname"] for row in rows}

    def silent_targets(self) -> list[str]:
        """What Prometheus finds and cannot scrape."""
        return sorted(row["metric"].get("pod", row["metric"]["instance"]) for row in self.query("up == 0"))

    def targets(self) -> int:
        """What Prometheus scrapes."""
        return len(self.query("up"))

    def run(self) -> set[str]:
        """Make every cause, one by one; returns the alerts that fired."""
        for cause in self.causes():
            self._say(f"alerts: {cause.what}")
            try:
                with cause.make():
                    self._watch(cause)
            except (httpx.HTTPError, ControlPlaneError, subprocess.SubprocessError) as error:
                self._say(f"alerts: {cause.what}: {error}")
            self._await("everything is well", self._well)
        return self.fired()

    def _watch(self, cause: Cause) -> None:
        started = time.monotonic()
        while missing := set(cause.alerts) - self.fired():
            if time.monotonic() - started > cause.limit_s:
                self._say(f"alerts: not fired: {', '.join(sorted(missing))}")
                break
            time.sleep(1)

    def _well(self) -> bool:
        """Whether everything is Ready, and a rate can be had."""
        if self._trial.not_ready():
            return False
        with self._trial.rest() as client:
            answer = client.post("/v1/rate-requests:preview", json={**BODY, "destination_port": 7000})
            return bool(answer.json()["granted"])

    def causes(self) -> list[Cause]:
        """Every cause, in an order in which none hides another."""
        return [
            Cause("records that nobody can read", ("ChartDeadLetters", "ChartRecordsRefused"), self._rubbish),
            Cause("a token that nobody made", ("ChartEnrolmentsRefused",), self._unknown_token),
            Cause("a link that is not registered", ("ChartUnknownLinks",), self._link_deleted),
            Cause(
                "a link that its node does not name", ("ChartCommandOutOfBounds", "ChartNodeFault"), self._unnamed_link
            ),
            Cause("an agent that stands still", ("ChartGrantsSlow",), self._slow_agent),
            Cause("a tunnel without ends", ("ChartTunnelDown",), self._tunnel_without_ends),
            Cause("a neighbour that does not answer", ("ChartNeighbourSilent",), self._silent_neighbour, 120),
            Cause(
                "an overlay link that fails again and again",
                ("ChartOverlayLinkFailed", "ChartOverlayNodeUnreachable", "ChartOverlayLinkUnsteady"),
                self._overlay_fails,
                90,
            ),
            Cause("packets of the overlay from a stranger", ("ChartOverlayPacketsRefused",), self._overlay_stranger),
            Cause("no allocator", ("ChartNoAllocator",), lambda: self._away(f"{RELEASE}-allocator")),
            Cause("no gateway", ("ChartRateControllerAway",), lambda: self._away(f"{RELEASE}-gateway"), 90),
            Cause(
                "no database",
                ("ChartGatewayErrorsFast", "ChartGatewayErrorsSlow", "ChartArchiverDatabase", "ChartArchiverBehind"),
                lambda: self._away("database", load=True),
                120,
            ),
            Cause(
                "no broker",
                ("ChartOutboxStuck", "ChartAgentDisconnected", "ChartLinkRatesUnpublished", "ChartMeasurementsWait"),
                self._no_broker,
                180,
            ),
            Cause(
                "no authority",
                ("ChartAuthorityAway", "ChartRevocationsUnknown"),
                lambda: self._away(f"{RELEASE}-authority"),
                90,
            ),
            Cause("a revoked node", ("ChartNodeRevoked", "ChartNodeUnsigned"), self._revoked, 90),
        ]

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WELL_LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception):
                if condition():
                    return
            time.sleep(1)
        self._say(f"alerts: {what}: not well again after {WELL_LIMIT_S:.0f} s")

    def _put(self, path: str, body: dict[str, Any]) -> None:
        with self._trial.rest() as client:
            client.put(path, json=body).raise_for_status()

    def _delete(self, path: str) -> None:
        with self._trial.rest() as client:
            client.delete(path).raise_for_status()

    @contextlib.contextmanager
    def _away(self, name: str, *, load: bool = False) -> Iterator[None]:
        """None of its pods runs. ``load``: while requests are made."""
        with Load(self._trial.gateway, self._trial.token) if load else contextlib.nullcontext():
            self._trial.kubectl("-n", NAMESPACE, "scale", "deployment", name, "--replicas=0")
            try:
                yield
            finally:
                self._trial.kubectl("-n", NAMESPACE, "scale", "deployment", name, "--replicas=1")
                self._await(name, lambda: not self._trial.not_ready())

    @contextlib.contextmanager
    def _rubbish(self) -> Iterator[None]:
        self._trial.kubectl("-n", NAMESPACE, "exec", f"deploy/{RELEASE}-registry", "--", "python", "-c", RUBBISH)
        yield

    @contextlib.contextmanager
    def _unknown_token(self) -> Iterator[None]:
        address = self._trial.kubectl(
            "-n", NAMESPACE, "get", "endpoints", f"{RELEASE}-authority", "-o", "jsonpath={.subsets[0].addresses[0].ip}"
        )
        body = {"csr": signing_request(), "token": "0" * 43, "identity": f"node/{CONTROL}"}
        # Whoever guesses checks no certificate either.
        answer = httpx.post(f"https://{address}:8443/v1/certificates", json=body, verify=False, timeout=10)  # noqa: S501
        if answer.status_code != 403:
            self._say(f"alerts: the token is answered with {answer.status_code}: {answer.text[:200]}")
        yield

    @contextlib.contextmanager
    def _link_deleted(self) -> Iterator[None]:
        path = f"/v1/links/{CONTROL}:to-{FAR}"
        with self._trial.rest() as client:
            found = client.get(path).raise_for_status().json()
        self._delete(path)
        try:
            yield
        finally:
            self._put(path, {"to_node": found["to_node"], "capacity_bps": found["capacity_bps"]})

    @contextlib.contextmanager
    def _unnamed_link(self) -> Iterator[None]:
        """The lab's own interface, by which the node reaches the API server."""
        path = f"/v1/links/{CONTROL}:mgmt"
        self._put(path, {"to_node": FAR, "capacity_bps": 1_000_000_000})
        try:
            yield
        finally:
            self._delete(path)

    @contextlib.contextmanager
    def _slow_agent(self) -> Iterator[None]:
        pods = [one for one in self._trial.pods() if "-agent-" in one["metadata"]["name"]]
        (pod,) = [one for one in pods if one["spec"]["nodeName"] == CONTROL]
        container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
        node = self._trial.cluster.nodes[CONTROL]
        for _ in range(2):
            made: list[str] = []
            node.ctr("task", "pause", container)
            try:
                made = self._requests(6)
                time.sleep(4)
            finally:
                node.ctr("task", "resume", container)
            time.sleep(2)
            with self._trial.rest() as client:
                for identity in made:
                    client.post(f"/v1/rate-requests/{identity}/release").raise_for_status()
        yield

    def _requests(self, count: int) -> list[str]:
        with self._trial.rest() as client:
            made = [
                client.post("/v1/rate-requests", json={**BODY, "destination_port": 7000 + one}) for one in range(count)
            ]
        return [one.raise_for_status().json()["id"] for one in made]

    @contextlib.contextmanager
    def _tunnel_without_ends(self) -> Iterator[None]:
        self._put("/v1/tunnels/nowhere", {"target_bps": 1_000_000})
        try:
            yield
        finally:
            self._delete("/v1/tunnels/nowhere")

    @contextlib.contextmanager
    def _silent_neighbour(self) -> Iterator[None]:
        """The other node takes no part, and flows towards it ask for more than a minute."""
        self._put(f"/v1/policies/{FAR}", {"enforcement": "off"})
        rates = PodRates(self._trial.cluster.plane, "1M", FAR, self._say)
        try:
            rates.transfer(rates.pod("receiver")["status"]["podIP"], 80)
            yield
        finally:
            self._delete(f"/v1/policies/{FAR}")

    def _overlay_alive(self, node: str) -> bool:
        """Whether the node's overlay link answers."""
        with self._trial.rest() as client:
            state = client.get(f"/v1/nodes/{node}").raise_for_status().json()["state"]
        links = (state["overlay"] or {"links": []})["links"]
        return bool(links) and all(link["alive"] for link in links)

    @contextlib.contextmanager
    def _overlay(self) -> Iterator[None]:
        """Both nodes route for the overlay, and their link answers."""
        for node in (CONTROL, FAR):
            self._trial.chart("overlay", "join", node)
        try:
            self._await("overlay", lambda: self._overlay_alive(CONTROL) and self._overlay_alive(FAR))
            yield
        finally:
            for node in (CONTROL, FAR):
                self._trial.chart("overlay", "leave", node)

    @contextlib.contextmanager
    def _overlay_fails(self) -> Iterator[None]:
        """Short failures, then one that lasts until the alerts fire."""
        with self._overlay():
            for _ in range(OVERLAY_FAILURES):
                self._trial.cluster.lab.outage(LAB_LINK, 1.0)
                time.sleep(2.0)
                self._await("overlay link", lambda: self._overlay_alive(CONTROL))
            self._trial.cluster.lab.outage(LAB_LINK, SCRAPE_S * 4 + FOR_S)
            yield

    @contextlib.contextmanager
    def _overlay_stranger(self) -> Iterator[None]:
        """Well-formed VXLAN packets that are no neighbour's."""
        with self._overlay(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            to = (self._trial.cluster.lab.management_address(CONTROL), OVERLAY_PORT)
            # The VXLAN header with a network, Ethernet, and the beginning of IPv4.
            packet = bytes([8]) + bytes(7) + bytes(12) + bytes([0x08, 0x00, 0x45]) + bytes(59)
            for _ in range(OVERLAY_STRANGERS):
                sender.sendto(packet, to)
                time.sleep(0.2)
            yield

    @contextlib.contextmanager
    def _no_broker(self) -> Iterator[None]:
        """While measurements are made."""
        address = self._trial.cluster.lab.address(FAR)
        body = {"source_node": CONTROL, "destination_node": FAR, "destination_address": address, "sensor": "ping"}
        self._put("/v1/sensing-configurations/alert", {**body, "period_ms": 2000})
        time.sleep(10)
        with self._away("kafka", load=True):
            yield
        self._delete("/v1/sensing-configurations/alert")

    @contextlib.contextmanager
    def _revoked(self) -> Iterator[None]:
        """Both nodes are revoked, and enrolled again."""
        with self._trial.rest() as client:
            body = {"identity": f"node/{FAR}", "reason": "an alert is tried"}
            client.post("/v1/revocations", json=body).raise_for_status()
            yield
            client.post("/v1/enrolments", json={"identity": f"node/{FAR}"}).raise_for_status()


def signing_request() -> str:
    """Of a key that is thrown away."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"node/{CONTROL}")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode()
