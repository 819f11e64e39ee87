"""`make cluster-test`: CHART on a real Kubernetes cluster of two nodes with an emulated link between them.

With the previous version: it is installed first, upgraded to this one under load, rolled back, upgraded again and
uninstalled. Then: installed with the values of a trial; registered; a request enforced; a pod's transfer with the rate
of its annotation beside the same pod under CUBIC and BBR; a RateRequest, through a Service; every part killed under
load; scraped by Prometheus, and alerts made to fire; uninstalled without a trace. Figures go to
var/cluster/report.json. Exit status 1 with the first thing that is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from cluster_alerts import Alerts, alert_names, prometheus
from cluster_load import Load
from cluster_manifests import (
    CONTROL,
    FAR,
    NAMESPACE,
    TRAFFIC,
    VOLUMES,
    names,
    namespace,
    roles,
    stores,
    traffic,
    values,
)
from cluster_nodes import NODES, POD_RANGES, Cluster
from control_plane import ControlPlaneError
from helm_test import CHART, CI, RELEASE, Helm, HelmTestError
from pod_rates import PodRates

from chart_lab.errors import LabError

LINK = {"rate_mbit": 50.0, "delay_ms": 50.0, "loss": 0.05}
CAPACITY_BPS = 50_000_000
# Guaranteed: what admission may commit of the link is four fifths. The available rate comes on top (service variable).
POD_RATE = "30M"
READY_LIMIT_S = 300.0
RECOVERY_LIMIT_S = 120.0
TELL_EVERY_S = 20.0
TENANT = "batch"
ROOT = Path(__file__).resolve().parents[2]
# Of what a cluster has beside CHART; what is killed is CHART's own and these.
STORES = ("kafka", "database", "prometheus")
# All is well for so long, after a moment, and alerts are looked at.
SETTLE_S, REST_S = 15.0, 30.0
# ValueError: an answer that is no JSON, of what was just ended.
ERRORS = (
    ControlPlaneError,
    HelmTestError,
    LabError,
    subprocess.SubprocessError,
    httpx.HTTPError,
    OSError,
    ValueError,
    LookupError,
)


def say(text: str) -> None:
    """Progress."""
    sys.stderr.write(f"cluster: {text}\n")
    sys.stderr.flush()


class ClusterTestError(ControlPlaneError):
    """What is wrong."""


def until(what: str, condition: Any, limit_s: float = READY_LIMIT_S, every_s: float = 0.5) -> float:
    """Wait; returns the seconds that it took. Raises ClusterTestError with what was missing at last."""
    started = told = time.monotonic()
    while True:
        missing: Any
        try:
            missing = condition()
            if not missing:
                return time.monotonic() - started
        except ERRORS as error:
            missing = error
        now = time.monotonic()
        if now - started > limit_s:
            msg = f"{what}: not within {limit_s:.0f} s: {missing}"
            raise ClusterTestError(msg)
        if now - told > TELL_EVERY_S:
            told = now
            say(f"waiting for {what}: {str(missing)[:300]}")
        time.sleep(every_s)


@dataclass
class Trial:
    """The cluster with what is known of it, and the figures so far."""

    cluster: Cluster
    helm: Helm
    state: Path
    tag: str
    figures: list[dict[str, Any]] = field(default_factory=list)

    def figure(self, name: str, value: float, unit: str, goal: str | None = None, peer: str | None = None) -> None:
        """One more figure."""
        self.figures.append({"name": name, "value": value, "unit": unit, "goal": goal, "peer": peer})
        say(f"{name} {value:g} {unit}")

    def kubectl(self, *arguments: str, **more: Any) -> str:
        """What kubectl prints."""
        return self.cluster.plane.kubectl(*arguments, **more)

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Objects as they are stated."""
        for manifest in manifests:
            self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))

    def pods(self, where: str = NAMESPACE) -> list[dict[str, Any]]:
        """Pods that are not done."""
        items: list[dict[str, Any]] = json.loads(self.kubectl("-n", where, "get", "pods", "-o", "json"))["items"]
        return [one for one in items if one["status"].get("phase") != "Succeeded"]

    def not_ready(self, where: str = NAMESPACE) -> list[str]:
        """Pods that are not Ready, workloads without the pods that they want."""
        waiting = []
        for pod in self.pods(where):
            conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
            if conditions.get("Ready") != "True" or pod["metadata"].get("deletionTimestamp"):
                waiting.append(pod["metadata"]["name"])
        for item in json.loads(self.kubectl("-n", where, "get", "deployments,daemonsets", "-o", "json"))["items"]:
            status = item.get("status", {})
            wanted = item["spec"].get("replicas", status.get("desiredNumberScheduled", 1))
            if status.get("readyReplicas", status.get("numberReady", 0)) != wanted:
                waiting.append(item["metadata"]["name"])
            if status.get("updatedReplicas", status.get("updatedNumberScheduled", 0)) != wanted:
                waiting.append(f"{item['metadata']['name']} (being replaced)")
        return waiting

    def gateway(self) -> str:
        """The gateway's address: that of its service, translated as for any client on a node."""
        service = json.loads(self.kubectl("-n", NAMESPACE, "get", "endpoints", f"{RELEASE}-gateway", "-o", "json"))
        address = service["subsets"][0]["addresses"][0]["ip"]
        return f"http://{address}:8080"

    def token(self) -> str:
        """An operator's, of the development issuer."""
        answer = httpx.post(
            f"{self.gateway()}/dev-issuer/token", json={"subject": "operator", "roles": ["admin"]}, timeout=10
        )
        answer.raise_for_status()
        return str(answer.json()["access_token"])

    def rest(self) -> httpx.Client:
        """As an operator."""
        headers = {"Authorization": f"Bearer {self.token()}"}
        return httpx.Client(base_url=self.gateway(), headers=headers, timeout=10)

    def chart(self, *arguments: str) -> str:
        """The command `chart`, as an operator."""
        program = Path(sys.executable).with_name("chart")
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.state), "CHART_TOKEN": self.token()}
        environment["CHART_SERVER"] = self.gateway()
        done = subprocess.run(
            [str(program), *arguments], capture_output=True, text=True, timeout=60, check=False, env=environment
        )
        if done.returncode:
            msg = f"chart {' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-800:]}"
            raise ClusterTestError(msg)
        return done.stdout


def prepare(trial: Trial, archives: list[Path]) -> None:
    """Nodes, images, and what stands beside CHART."""
    until("the nodes", lambda: "" if trial.cluster.ready() else "a node is not Ready", 120)
    say("importing images")
    trial.cluster.import_images(archives)
    trial.apply(namespace(NAMESPACE), namespace(TRAFFIC), *names())
    fresh_stores(trial)
    trial.apply(*traffic(f"chart-agents:{trial.tag}", ROOT / "build" / "lab"))
    until("names", lambda: trial.not_ready("kube-system"))
    until("pods that send", lambda: trial.not_ready(TRAFFIC))


def fresh_stores(trial: Trial) -> None:
    """An empty broker and database."""
    volumes = trial.state / "volumes"
    shutil.rmtree(volumes, ignore_errors=True)
    for name in VOLUMES:
        (volumes / name).mkdir(parents=True)
        (volumes / name).chmod(0o777)
    trial.apply(*stores(volumes))
    until("broker and database", lambda: [one for one in trial.not_ready() if one.startswith(STORES)])

    def made() -> str:
        trial.kubectl(
            "-n", NAMESPACE, "exec", "deploy/database", "--",
            "psql", "-q", "-h", "/var/run/postgresql", "-U", "chart", "-d", "chart", "-c", roles(),
        )  # fmt: skip
        return ""

    until("roles of the database", made, 60)


def helm_values(trial: Trial, tag: str) -> Path:
    """Our own values beside those of a trial."""
    path = trial.state / f"values-{tag}.yaml"
    path.write_text(yaml.safe_dump(values(tag)))
    return path


def install(trial: Trial, chart: Path, tag: str) -> float:
    """Install a version; returns the seconds until everything is Ready."""
    say(f"helm install, version {tag}")
    started = time.monotonic()
    where = ("--namespace", NAMESPACE)
    files = ("-f", str(chart / "ci" / "trial-values.yaml"), "-f", str(helm_values(trial, tag)))
    trial.helm.must("install", RELEASE, str(chart), *where, *files, "--timeout", "5m", limit_s=400)
    until("pods", trial.not_ready)
    return time.monotonic() - started


def register(trial: Trial) -> None:
    """Nodes, links, the tenant of the namespace, and that nodes enforce."""
    say("registering the topology, enforcing")
    prefixes = {name: POD_RANGES[name] for name in NODES}
    lab = trial.cluster.lab
    document = {
        "nodes": [{"id": name, "addresses": [f"{lab.address(name)}/32", prefixes[name]]} for name in NODES],
        "links": [
            {"id": f"{CONTROL}:to-{FAR}", "to_node": FAR, "capacity_bps": CAPACITY_BPS},
            {"id": f"{FAR}:to-{CONTROL}", "to_node": CONTROL, "capacity_bps": CAPACITY_BPS},
        ],
    }
    path = trial.state / "topology.yaml"
    path.write_text(yaml.safe_dump(document))
    trial.chart("apply", "-f", str(path))
    trial.chart("tenant", "set", TENANT, "--namespace", TRAFFIC)
    trial.chart("policy", "set", "--enforcement", "enforce")


def enforced(trial: Trial) -> float:
    """Seconds from a request by REST until every node confirmed."""

    def one() -> float:
        with trial.rest() as client:
            started = time.monotonic()
            body = {
                "source": CONTROL,
                "destination": FAR,
                "protocol": "tcp",
                "destination_port": 5999,
                "guaranteed_bps": 1_000_000,
            }
            made = client.post("/v1/rate-requests", json=body)
            if made.status_code != 201:
                raise ClusterTestError(made.text[:500])
            path = f"/v1/rate-requests/{made.json()['id']}"
            try:
                until("the request", lambda: client.get(path).json()["enforcement"] != "ENFORCED", 20, 0.005)
                return time.monotonic() - started
            finally:
                client.post(f"{path}/release")

    # Until links and policies have arrived everywhere, the first one may be late.
    until("a first request", lambda: "" if one() else "no", 120, 1.0)
    return sorted(one() for _ in range(5))[2]


def pod_rates(trial: Trial, turns: int, seconds: float) -> None:
    """Transfers of a pod with and without its annotation."""
    rates = PodRates(trial.cluster.plane, POD_RATE, FAR, say)
    name = rates.pod("sender")["metadata"]["name"]
    trial.figure("pod_request_to_enforced_ms", round(rates.annotate(name, on=True) * 1e3), "ms", "<= 5000")
    described = trial.kubectl("-n", TRAFFIC, "describe", "pod", name)
    if "granted and enforced" not in described:
        msg = f"kubectl describe does not tell of the rate: {described[-800:]}"
        raise ClusterTestError(msg)
    rates.annotate(name, on=False)
    found = rates.compare(turns, seconds)
    for way in ("chart", "cubic", "bbr"):
        trial.figure(f"pod_goodput_bps/{way}", round(found.median_bps(way)), "bit/s")
    chart_bps = found.median_bps("chart")
    trial.figure("gain_over_cubic", round(chart_bps / found.median_bps("cubic"), 2), "ratio", ">= 5", "CUBIC")
    trial.figure("gain_over_bbr", round(chart_bps / found.median_bps("bbr"), 3), "ratio", ">= 1", "BBR")


def rate_request(trial: Trial, seconds: float) -> None:
    """The same as an object, followed with kubectl, used through a Service, and deleted."""
    say("a RateRequest")
    document = {
        "apiVersion": "chart.io/v1alpha1",
        "kind": "RateRequest",
        "metadata": {"name": "copy", "namespace": TRAFFIC},
        "spec": {"podSelector": {"matchLabels": {"app": "sender"}}, "destination": FAR, "rate": POD_RATE},
    }
    trial.apply(document)
    trial.kubectl("-n", TRAFFIC, "wait", "raterequest/copy", "--for=condition=Enforced", "--timeout=60s")
    told = trial.kubectl("-n", TRAFFIC, "get", "rr", "copy")
    if "Enforced" not in told or POD_RATE not in told:
        msg = f"kubectl get rr says {told!r}"
        raise ClusterTestError(msg)
    if "granted and enforced" not in trial.kubectl("-n", TRAFFIC, "describe", "rr", "copy"):
        msg = "kubectl describe rr does not tell of the rate"
        raise ClusterTestError(msg)
    trial.kubectl("explain", "raterequest.spec.rate")
    rates = PodRates(trial.cluster.plane, POD_RATE, FAR, say)
    address = json.loads(trial.kubectl("-n", TRAFFIC, "get", "service", "receiver", "-o", "json"))["spec"]["clusterIP"]
    trial.figure("service_goodput_bps", round(rates.transfer(address, seconds)), "bit/s")
    # One that cannot be had is refused with words, and does not stop the other.
    impossible = json.loads(json.dumps(document))
    impossible["metadata"]["name"], impossible["spec"]["rate"] = "impossible", "40G"
    trial.apply(impossible)

    def refused() -> str:
        state = json.loads(trial.kubectl("-n", TRAFFIC, "get", "rr", "impossible", "-o", "json")).get("status", {})
        return "" if state.get("state") == "Refused" else f"its state is {state}"

    until("the refusal", refused, 30)
    trial.kubectl("-n", TRAFFIC, "delete", "rr", "copy", "impossible", "--timeout=30s")
    with trial.rest() as client:
        page = client.get("/v1/rate-requests", params={"lifecycle": "ACTIVE", "tag": "kubernetes.namespace=batch"})
        trial.figure("pod_requests_left", len(page.json()["items"]), "count", "0")


def kills(trial: Trial) -> None:
    """Kill the main process of every pod, one by one, while requests are made."""
    with Load(trial.gateway, trial.token) as load:
        recovered, tried = 0, 0
        for pod in trial.pods():
            name = pod["metadata"]["name"]
            node = trial.cluster.nodes[pod["spec"]["nodeName"]]
            before = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
            say(f"killing {name}")
            tried += 1
            node.ctr("task", "kill", "--signal", "SIGKILL", before)

            def back(name: str = name, before: str = before) -> str:
                found = json.loads(trial.kubectl("-n", NAMESPACE, "get", "pod", name, "-o", "json"))
                state = found["status"]["containerStatuses"][0]
                if before in state.get("containerID", "") or not state.get("ready"):
                    return f"{name} is not back"
                return ", ".join(trial.not_ready())

            try:
                until(name, back, RECOVERY_LIMIT_S)
                marker = load.made
                until(
                    "a request after it", lambda marker=marker: "" if load.made > marker else "none", RECOVERY_LIMIT_S
                )
                recovered += 1
            except ClusterTestError as error:
                say(f"{name}: {error}")
    lost = load.lost()
    trial.figure("kills_recovered_share", round(recovered / tried, 3), "ratio", "1")
    trial.figure("kills_tried", tried, "count")
    trial.figure("lost_in_kills", len(lost), "count", "0")
    trial.figure("lost_in_kills_tried", load.made, "count")


def watched(trial: Trial) -> Alerts:
    """Prometheus in the cluster: whether it scrapes every part, and alerts nothing while all is well."""
    folder = trial.state / "prometheus"
    trial.apply(*prometheus(folder))
    until("Prometheus", trial.not_ready)
    found = Alerts(trial, folder, say)

    def scraped() -> str:
        silent = found.silent_targets()
        return f"not scraped: {', '.join(silent)}" if silent or not found.targets() else ""

    until("what Prometheus scrapes", scraped, 60)
    unsigned = "chart_agent_records_signed_ratio == 0 or chart_node_record_key_valid == 0"
    until("keys of every node", lambda: [one["metric"].get("pod") for one in found.query(unsigned)], 120)
    trial.figure("targets_not_scraped", len(found.silent_targets()), "count", "0")
    trial.figure("targets_not_scraped_tried", found.targets(), "count")
    # What is not scraped yet is missing, and that is alerted.
    time.sleep(SETTLE_S)
    found.begin()
    time.sleep(REST_S)
    at_rest = found.fired()
    if at_rest:
        say(f"alerts although all is well: {', '.join(sorted(at_rest))}")
    trial.figure("alerts_at_rest", len(at_rest), "count", "0")
    return found


def alerts(trial: Trial, in_prometheus: Alerts) -> None:
    """Alerts fire when there is something to alert."""
    in_prometheus.begin()
    every = alert_names()
    fired = in_prometheus.run() & set(every)
    say(f"alerts that did not fire: {', '.join(sorted(set(every) - fired))}")
    trial.figure("alerts_fired_share", round(len(fired) / len(every), 3), "ratio", "1")
    trial.figure("alerts_fired_share_tried", len(every), "count")
    trial.kubectl("-n", NAMESPACE, "delete", "deployment", "prometheus", "--timeout=60s")


def upgrade(trial: Trial, previous: Path, previous_tag: str) -> None:
    """The previous version, upgraded, rolled back and upgraded again, while requests are made."""
    install(trial, previous, previous_tag)
    register(trial)
    enforced(trial)
    where = ("--namespace", NAMESPACE)
    files = ("-f", str(CI / "trial-values.yaml"), "-f", str(helm_values(trial, trial.tag)))
    with Load(trial.gateway, trial.token) as load:
        say("helm upgrade")
        trial.helm.must("upgrade", RELEASE, str(CHART), *where, *files, "--timeout", "5m", limit_s=400)
        until("pods after the upgrade", trial.not_ready)
        say("helm rollback")
        trial.helm.must("rollback", RELEASE, "1", *where, "--timeout", "5m", limit_s=400)
        until("pods after the rollback", trial.not_ready)
        say("helm upgrade, again")
        trial.helm.must("upgrade", RELEASE, str(CHART), *where, *files, "--timeout", "5m", limit_s=400)
        until("pods after the second upgrade", trial.not_ready)
        marker = load.made
        until("requests afterwards", lambda: "" if load.made > marker + 5 else f"{load.made - marker}", 60)
    trial.figure("lost_in_upgrade", len(load.lost()), "count", "0")
    trial.figure("lost_in_upgrade_tried", load.made, "count")
    uninstall(trial)
    fresh_stores_after(trial)


def fresh_stores_after(trial: Trial) -> None:
    """Nothing of the first installation is left for the next."""
    trial.kubectl("-n", NAMESPACE, "delete", "pvc", "--all", "--timeout=60s")
    trial.kubectl("delete", "pv", "authority", "--timeout=60s")
    trial.kubectl("-n", NAMESPACE, "delete", "deployment", *STORES, "--ignore-not-found", "--timeout=60s")
    until("empty stores", lambda: [one["metadata"]["name"] for one in trial.pods()])
    fresh_stores(trial)


def uninstall(trial: Trial) -> None:
    """Uninstall, and wait until the pods are gone."""
    say("helm uninstall")
    trial.helm.must("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "3m", limit_s=240)
    until(
        "pods that are left",
        lambda: [one["metadata"]["name"] for one in trial.pods() if not one["metadata"]["name"].startswith(STORES)],
    )


def kernel_state(trial: Trial) -> dict[str, str]:
    """What CHART could leave on nodes, by where it is."""
    found: dict[str, str] = {}
    for name, node in trial.cluster.nodes.items():
        # Pods come and go, and their devices with them; those have no queue of their own.
        found[f"{name}: qdiscs"] = node.exec(["sh", "-c", "tc qdisc show | grep -v 'noqueue 0: dev veth'"])
        for direction in ("ingress", "egress"):
            filters = ["tc", "filter", "show", "dev", f"to-{_other(name)}", direction]
            found[f"{name}: {direction} filters"] = node.exec(filters)
        found[f"{name}: rules"] = node.exec(["ip", "rule"])
        found[f"{name}: devices"] = node.exec(["sh", "-c", "ip -o link | grep -v veth | cut -d: -f2"])
        group = f"/sys/fs/cgroup/unified/chart-cluster-{name}/kubepods"
        found[f"{name}: programs of the group"] = node.exec(["bpftool", "cgroup", "show", group])
        # Certificate, key and mode of the node stay there: docs/kubernetes.md.
        found[f"{name}: sockets"] = node.exec(["find", "/run/chart", "-type", "s"])
        found[f"{name}: pinned"] = node.exec(["find", "/sys/fs/bpf", "-name", "*chart*"])
    return found


def _other(name: str) -> str:
    return next(one for one in NODES if one != name)


def left(trial: Trial, before: dict[str, str]) -> None:
    """Compare with what was there before the installation."""
    after = kernel_state(trial)
    rest = [where for where, text in after.items() if text.strip() != before[where].strip()]
    for where in rest:
        say(f"left: {where}: {after[where].strip()[:300]!r} before {before[where].strip()[:300]!r}")
    trial.figure("left_on_nodes", len(rest), "count", "0")
    trial.figure("left_on_nodes_tried", len(after), "count")


@contextlib.contextmanager
def running(arguments: argparse.Namespace) -> Iterator[Trial]:
    """The cluster; its folder is kept when something failed."""
    state = Path(tempfile.mkdtemp(prefix="chart-cluster-"))
    try:
        with Cluster(arguments.tools.resolve(), state, **LINK) as cluster:
            yield Trial(cluster, Helm(arguments.tools / "helm", cluster.plane.kubeconfig), state, arguments.tag)
    except ERRORS:
        say(f"logs are in {state}")
        raise
    except SystemExit:
        shutil.rmtree(state, ignore_errors=True)
        raise
    shutil.rmtree(state, ignore_errors=True)


def run(trial: Trial, arguments: argparse.Namespace) -> None:
    """Everything, in order."""
    trial.figure("nodes", len(NODES), "count", ">= 2")
    prepare(trial, sorted(arguments.images.glob("*.tar")))
    before = kernel_state(trial)
    if arguments.previous:
        upgrade(trial, arguments.previous_chart, arguments.previous)
    trial.figure("ready_s", round(install(trial, CHART, trial.tag), 1), "s")
    trial.figure("pods_not_ready", len(trial.not_ready()), "count", "0")
    register(trial)
    trial.figure("request_to_enforced_ms", round(enforced(trial) * 1e3), "ms", "<= 1000")
    in_prometheus = watched(trial)
    wrong: list[str] = []
    # Each of them is tried, also after one that failed.
    for name, part in (
        ("pods' rates", lambda: pod_rates(trial, arguments.pairs, arguments.seconds)),
        ("RateRequest", lambda: rate_request(trial, arguments.seconds)),
        ("kills", lambda: kills(trial)),
        ("alerts", lambda: alerts(trial, in_prometheus)),
    ):
        try:
            part()
        except ERRORS as error:
            say(f"{name}: {error}")
            wrong.append(f"{name}: {error}")
    if wrong:
        raise ClusterTestError("; ".join(wrong))
    uninstall(trial)
    left(trial, before)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=Path, required=True, help="folder with helm, kubernetes and coredns")
    parser.add_argument("--images", type=Path, required=True, help="folder with archives of the images")
    parser.add_argument("--tag", required=True, help="of CHART's images")
    parser.add_argument("--previous", default="", help="tag of the previous version's images; empty: no upgrade")
    parser.add_argument("--previous-chart", type=Path, default=CHART, help="the previous version's chart")
    parser.add_argument("--pairs", type=int, default=5, help="turns of transfers")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each transfer")
    parser.add_argument("--report", type=Path, required=True)
    arguments = parser.parse_args()
    # Ended from outside, it still stops what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        with running(arguments) as trial:
            run(trial, arguments)
    except ERRORS as error:
        sys.stderr.write(f"cluster: {error}\n")
        return 1
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    report = {"command": "make cluster-test", "figures": trial.figures}
    arguments.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
