"""`make helm-test`: the Helm chart against its schema, its scenarios and a real Kubernetes control plane.

Lints and renders every scenario of helm/chart/ci, refuses every wrong value of wrong-values.yaml, and installs,
upgrades, rolls back and uninstalls on a control plane with simulated nodes, with a server-side dry run of every object
of every scenario first. Writes `objects`, `scenarios` and `schema_refusals` to the report. Exit status 1 with the first
thing that is wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from control_plane import ControlPlane, ControlPlaneError
from enrolment import EnrolmentError, check_enrolment
from manifests import broker_faults, faults

HERE = Path(__file__).resolve().parent
CHART = HERE.parents[1] / "helm" / "chart"
CI = CHART / "ci"
KUBE_VERSION = "1.34.1"
MONITORING = "monitoring.coreos.com/v1"
NAMESPACE, RELEASE = "chart-system", "chart"
ROLLOUT_LIMIT_S = 180.0
# Of production-values.yaml.
GATEWAYS = 3


class HelmTestError(RuntimeError):
    """What is wrong with the chart."""


def say(text: str) -> None:
    """Progress."""
    sys.stderr.write(f"helm: {text}\n")
    sys.stderr.flush()


class Helm:
    """The helm command."""

    def __init__(self, program: Path, kubeconfig: Path | None = None) -> None:
        self.program, self.kubeconfig = program, kubeconfig

    def run(self, *arguments: str, limit_s: float = 300.0) -> subprocess.CompletedProcess[str]:
        """One call, whatever it returns."""
        command = [str(self.program), *arguments]
        if self.kubeconfig:
            command += ["--kubeconfig", str(self.kubeconfig)]
        return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)

    def must(self, *arguments: str, limit_s: float = 300.0) -> str:
        """One call that has to succeed."""
        done = self.run(*arguments, limit_s=limit_s)
        if done.returncode:
            msg = f"helm {' '.join(arguments)}: {done.stderr.strip()[-2000:]}"
            raise HelmTestError(msg)
        return done.stdout

    def render(self, values: Path, *more: str) -> list[dict[str, Any]]:
        """The manifests of a scenario, hooks included."""
        text = self.must(
            "template",
            RELEASE,
            str(CHART),
            "--namespace",
            NAMESPACE,
            "--kube-version",
            KUBE_VERSION,
            "-f",
            str(values),
            *more,
        )
        return [document for document in yaml.safe_load_all(text) if document]


def nested(settings: dict[str, Any]) -> dict[str, Any]:
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``."""
    result: dict[str, Any] = {}
    for path, value in settings.items():
        *parents, last = path.split(".")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return result


def check_refusals(helm: Helm) -> int:
    """Every wrong value is refused, with the word that helps; returns how many."""
    cases = yaml.safe_load((HERE / "wrong-values.yaml").read_text(encoding="utf-8"))
    for case in cases:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(nested(case["set"]), file)
            file.flush()
            done = helm.run(
                "template",
                RELEASE,
                str(CHART),
                "--kube-version",
                KUBE_VERSION,
                "-f",
                str(CI / "minimal-values.yaml"),
                "-f",
                file.name,
            )
        if done.returncode == 0:
            msg = f"{case['set']} is not refused"
            raise HelmTestError(msg)
        if case["says"] not in done.stderr:
            msg = f"{case['set']} is refused without the word {case['says']!r}: {done.stderr.strip()}"
            raise HelmTestError(msg)
    return len(cases)


def check_scenarios(helm: Helm, scenarios: list[Path]) -> dict[Path, list[dict[str, Any]]]:
    """Lint and render each scenario and look at the manifests."""
    rendered = {}
    for values in scenarios:
        helm.must("lint", "--strict", "--kube-version", KUBE_VERSION, str(CHART), "-f", str(values))
        rendered[values] = helm.render(values, "--api-versions", MONITORING)
        stated = yaml.safe_load(values.read_text(encoding="utf-8"))
        wrong = faults(rendered[values], privileged=bool(stated.get("agent", {}).get("privileged")))
        wrong += broker_faults(rendered[values], stated["kafka"])
        if not stated.get("proxy", {}).get("enabled") and any(
            manifest["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "proxy"
            for manifest in rendered[values]
        ):
            wrong.append("a proxy that nobody asked for")
        if wrong:
            msg = f"{values.name}: " + "; ".join(wrong)
            raise HelmTestError(msg)
    return rendered


def monitoring_definitions() -> str:
    """The custom resources that the monitoring objects belong to, open in their contents."""
    documents = []
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
        plural = kind.lower() + "s"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
        documents.append(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.monitoring.coreos.com"},
                "spec": {
                    "group": "monitoring.coreos.com",
                    "scope": "Namespaced",
                    "names": names,
                    "versions": [version],
                },
            }
        )
    return "\n---\n".join(json.dumps(document) for document in documents)


def dry_run(cluster: ControlPlane, manifests: list[dict[str, Any]]) -> int:
    """The API server accepts every object, field by field."""
    for manifest in manifests:
        manifest["metadata"].setdefault("namespace", NAMESPACE)
        cluster.kubectl(
            "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(manifest)
        )
    return len(manifests)


def await_rollout(cluster: ControlPlane, registries: int) -> None:
    """Every workload of the release has the pods that it wants: the registry those that are stated, the gateway those
    that its autoscaler begins with.
    """
    replicas = {"chart-registry": registries, "chart-gateway": GATEWAYS}
    deadline = time.monotonic() + ROLLOUT_LIMIT_S
    while True:
        found = json.loads(cluster.kubectl("get", "deployments,daemonsets", "-n", NAMESPACE, "-o", "json"))["items"]
        waiting = []
        for item in found:
            status, name = item.get("status", {}), item["metadata"]["name"]
            wanted = item["spec"].get("replicas", status.get("desiredNumberScheduled", 1))
            ready = status.get("readyReplicas", status.get("numberReady", 0))
            current = status.get("observedGeneration") == item["metadata"]["generation"]
            if wanted != replicas.get(name, wanted):
                waiting.append(f"{name} wants {wanted}, not {replicas[name]}")
            if ready != wanted or not current:
                waiting.append(f"{name} {ready}/{wanted}")
        if found and not waiting:
            return
        if time.monotonic() > deadline:
            msg = f"not ready after {ROLLOUT_LIMIT_S:.0f} s: {', '.join(waiting)}"
            raise HelmTestError(msg)
        time.sleep(1)


def await_gone(cluster: ControlPlane) -> None:
    """Nothing of the release is left once its pods had their time to end."""
    deadline = time.monotonic() + ROLLOUT_LIMIT_S
    kinds = (
        "all,configmaps,secrets,serviceaccounts,networkpolicies,poddisruptionbudgets,ingresses,prometheusrules,"
        "servicemonitors,podmonitors,roles,rolebindings,clusterrolebindings"
    )
    instance = f"app.kubernetes.io/instance={RELEASE}"
    while left := cluster.kubectl("get", kinds, "-n", NAMESPACE, "-l", instance, "-o", "name").split():
        if time.monotonic() > deadline:
            msg = f"left after uninstall: {', '.join(left)}"
            raise HelmTestError(msg)
        time.sleep(1)


def live(helm: Helm, cluster: ControlPlane, rendered: dict[Path, list[dict[str, Any]]]) -> int:
    """Dry runs, then install, upgrade, rollback, uninstall; returns how many objects the API server saw."""
    cluster.kubectl("apply", "-f", "-", stdin=monitoring_definitions())
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    objects = 0
    for values, manifests in rendered.items():
        say(f"server-side dry run of {len(manifests)} objects of {values.name}")
        objects += dry_run(cluster, manifests)
    where = ["--namespace", NAMESPACE]
    production, trial = str(CI / "production-values.yaml"), str(CI / "trial-values.yaml")
    say("install with production values")
    helm.must("install", RELEASE, str(CHART), *where, "-f", production, "--timeout", "3m")
    await_rollout(cluster, 2)
    say("pods enrol with their service account tokens, as the API server reviews them")
    check_enrolment(cluster, NAMESPACE, RELEASE)
    say("upgrade: five registries")
    helm.must(
        "upgrade", RELEASE, str(CHART), *where, "-f", production, "--set", "registry.replicas=5", "--timeout", "3m"
    )
    await_rollout(cluster, 5)
    say("a wrong upgrade is refused and changes nothing")
    if (
        helm.run("upgrade", RELEASE, str(CHART), *where, "-f", production, "--set", "gateway.replicas=0").returncode
        == 0
    ):
        msg = "gateway.replicas=0 was not refused by helm upgrade"
        raise HelmTestError(msg)
    await_rollout(cluster, 5)
    say("rollback")
    helm.must("rollback", RELEASE, "1", *where, "--timeout", "3m")
    await_rollout(cluster, 2)
    say("uninstall")
    helm.must("uninstall", RELEASE, *where, "--wait", "--timeout", "3m")
    await_gone(cluster)
    say("install with the values of a trial, keys on a volume that outlives the release")
    helm.must("install", RELEASE, str(CHART), *where, "-f", trial, "--timeout", "3m")
    await_rollout_trial(cluster)
    helm.must("uninstall", RELEASE, *where, "--wait", "--timeout", "3m")
    if "chart-authority" not in cluster.kubectl("get", "pvc", "-n", NAMESPACE, "-o", "name"):
        msg = "the volume of the keys went with the release"
        raise HelmTestError(msg)
    return objects


def await_rollout_trial(cluster: ControlPlane) -> None:
    """One gateway; the authority waits for a volume that nobody provisions here and is left out."""
    deadline = time.monotonic() + ROLLOUT_LIMIT_S
    while True:
        item = json.loads(cluster.kubectl("get", "deployment", "chart-gateway", "-n", NAMESPACE, "-o", "json"))
        if item.get("status", {}).get("readyReplicas") == 1:
            return
        if time.monotonic() > deadline:
            msg = "the gateway of the trial is not ready"
            raise HelmTestError(msg)
        time.sleep(1)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=Path, required=True, help="folder with helm, kubernetes and kwok")
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--offline", action="store_true", help="without the control plane")
    arguments = parser.parse_args()
    # Ended from outside, it still stops what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scenarios = sorted(CI.glob("*-values.yaml"))
    helm = Helm(arguments.tools / "helm")
    state = Path(tempfile.mkdtemp(prefix="chart-helm-"))
    objects = 0
    try:
        refusals = check_refusals(helm)
        say(f"{refusals} wrong values are refused")
        rendered = check_scenarios(helm, scenarios)
        say(f"{len(rendered)} scenarios are rendered and sound")
        if not arguments.offline:
            say("starting a control plane")
            with ControlPlane(arguments.tools, state) as cluster:
                objects = live(Helm(arguments.tools / "helm", cluster.kubeconfig), cluster, rendered)
    except (HelmTestError, EnrolmentError, ControlPlaneError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"helm: {error}\n")
        sys.stderr.write(f"helm: logs are in {state}\n")
        return 1
    shutil.rmtree(state, ignore_errors=True)
    figures = [("objects", objects), ("scenarios", len(scenarios)), ("schema_refusals", refusals)]
    goals = {"scenarios": ">= 4", "schema_refusals": ">= 30"}
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "command": "make helm-test",
        "figures": [
            {"name": name, "value": value, "unit": "count", "goal": goals.get(name), "peer": None}
            for name, value in figures
        ],
    }
    arguments.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
