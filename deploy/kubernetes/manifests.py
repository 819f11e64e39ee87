"""What must hold of every rendered manifest of the Helm chart; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

AGENT = "agent"
# What starts as root: which capabilities it has, exactly. The proxy is off by default;
# `state` gives a sensor pod its folder.
ROOT_CAPABILITIES = {
    AGENT: ["BPF", "PERFMON", "NET_ADMIN"],
    "proxy": ["NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE"],
    "tunnel-ends": ["NET_ADMIN", "NET_BIND_SERVICE", "SETUID", "SETGID", "KILL"],
    "state": ["CHOWN"],
}
# What may have a capability without being root, where the values ask for it: by its programs' files, so it may
# escalate.
FILE_CAPABILITIES = {"sensor-pod": ["NET_RAW"]}
METRICS_PORT = 8080
# What calls the API server: reviews of tokens, rates for pods.
API_CALLERS = {"authority", "gateway", "rate-controller", "rate-cleanup"}
# Programs of a node, which the broker knows by the certificate of their node where the values say so.
NODE_COMPONENTS = {AGENT, "tunnel-ends", "sensor-pod"}
WORKLOADS = {"Deployment", "DaemonSet", "StatefulSet", "Job", "CronJob"}
# Those that end, and so need no probes.
JOBS = {"Job", "CronJob"}

Manifest = dict[str, Any]


def pod_of(manifest: Manifest) -> dict[str, Any]:
    """The specification of a workload's pods."""
    spec = manifest["spec"]["jobTemplate"]["spec"] if manifest["kind"] == "CronJob" else manifest["spec"]
    pod: dict[str, Any] = spec["template"]["spec"]
    return pod


def containers(manifest: Manifest) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Pod specification and container, for every container of a workload."""
    pod = pod_of(manifest)
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        yield pod, container


def container_faults(where: str, pod: dict[str, Any], container: dict[str, Any], *, privileged: bool) -> Iterator[str]:
    """What is wrong with one container's rights and resources."""
    context = {**(pod.get("securityContext") or {}), **(container.get("securityContext") or {})}
    capabilities = context.get("capabilities") or {}
    if not context.get("readOnlyRootFilesystem"):
        yield f"{where}: the root file system can be written"
    if not container.get("resources", {}).get("requests"):
        yield f"{where}: no resources are requested"
    wanted = ROOT_CAPABILITIES.get(container["name"])
    if wanted:
        if privileged and container["name"] == AGENT:
            return
        if capabilities.get("drop") != ["ALL"] or capabilities.get("add") != wanted:
            yield f"{where}: capabilities are {capabilities}, not exactly {wanted}"
        if context.get("privileged"):
            yield f"{where}: is privileged"
        return
    by_files = capabilities.get("add") == FILE_CAPABILITIES.get(container["name"], [])
    if not context.get("runAsNonRoot") or context.get("runAsUser", 0) == 0:
        yield f"{where}: may run as root"
    if capabilities.get("drop") != ["ALL"] or (capabilities.get("add") and not by_files):
        yield f"{where}: keeps capabilities"
    if context.get("allowPrivilegeEscalation", True) and not by_files:
        yield f"{where}: may gain rights"


def component_of(manifest: Manifest) -> str:
    """The part of CHART that a manifest belongs to."""
    return str(manifest["metadata"].get("labels", {}).get("app.kubernetes.io/component", ""))


def token_faults(kind: str, name: str, component: str, pod: dict[str, Any], *, enrols: bool) -> Iterator[str]:
    """What is wrong with the service account tokens of a pod: each is for one audience, but of those that call the API
    server; and where nodes enrol, an agent needs one.
    """
    sources = [source for volume in pod.get("volumes", []) for source in volume.get("projected", {}).get("sources", [])]
    tokens = [source["serviceAccountToken"] for source in sources if "serviceAccountToken" in source]
    if component not in API_CALLERS and any("audience" not in token for token in tokens):
        yield f"{kind} {name}: has a token of the API server"
    if component == AGENT and enrols:
        given = {argument.partition("=")[0] for argument in pod["containers"][0].get("args", [])}
        missing = {"--authority", "--authority-ca", "--enrolment-token-file"} - given
        if missing or not tokens:
            yield f"{kind} {name}: cannot enrol, {', '.join(sorted(missing)) or 'the token'} is missing"


def broker_faults(manifests: list[Manifest], kafka: dict[str, Any]) -> Iterator[str]:
    """Whoever speaks to the broker does it as the values say: with its own secret, with that of all, or as the node."""
    for manifest in (one for one in manifests if one["kind"] in WORKLOADS):
        component = component_of(manifest)
        for volume in pod_of(manifest).get("volumes", []):
            if volume["name"] != "kafka":
                continue
            sources = [*volume.get("projected", {}).get("sources", []), volume]
            found = [one["secret"].get("secretName", one["secret"].get("name")) for one in sources if "secret" in one]
            stated = kafka.get("nodes", {})
            if component in NODE_COMPONENTS and stated.get("identity") == "enrolment":
                wanted = [stated["caSecret"]] if stated.get("caSecret") else []
            else:
                wanted = [kafka.get("secrets", {}).get(component) or kafka.get("secret")]
            if found != wanted:
                yield f"{manifest['kind']} {manifest['metadata']['name']}: has {found} for the broker, not {wanted}"


def policy_faults(policy: Manifest) -> Iterator[str]:
    """A network policy that names the port of the metrics lets Prometheus in, from its own namespace."""
    rules = policy["spec"].get("ingress", [])
    for_metrics = [rule for rule in rules if any(port["port"] == METRICS_PORT for port in rule.get("ports", []))]
    from_elsewhere = [
        rule
        for rule in for_metrics
        if any("namespaceSelector" in one for one in rule.get("from", [{"namespaceSelector": {}}]))
    ]
    if for_metrics and not from_elsewhere:
        yield f"NetworkPolicy {policy['metadata']['name']}: Prometheus cannot scrape the metrics"


def faults(manifests: list[Manifest], *, privileged: bool) -> list[str]:
    """What is wrong with a rendering; `privileged` says whether the agent was asked to be."""
    found: list[str] = []
    enrols = any(component_of(manifest) == "authority" for manifest in manifests)
    accounts = {m["metadata"]["name"] for m in manifests if m["kind"] == "ServiceAccount"}
    for manifest in manifests:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind == "NetworkPolicy":
            found += policy_faults(manifest)
        if kind not in WORKLOADS:
            continue
        pod = pod_of(manifest)
        if pod.get("serviceAccountName") not in accounts:
            found.append(f"{kind} {name}: its service account is not in the chart")
        if pod.get("automountServiceAccountToken", True):
            found.append(f"{kind} {name}: mounts a token of the API server")
        found += token_faults(kind, name, component_of(manifest), pod, enrols=enrols)
        for spec, container in containers(manifest):
            where = f"{kind} {name}, container {container['name']}"
            found += container_faults(where, spec, container, privileged=privileged)
            if kind not in JOBS and container not in spec.get("initContainers", []):
                found += [
                    f"{where}: no {probe}" for probe in ("livenessProbe", "readinessProbe") if probe not in container
                ]
    return found
