"""What stands beside CHART in the cluster of `make cluster-test`: names, a broker, a database, and pods that send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster_nodes import DNS_ADDRESS

Manifest = dict[str, Any]
NAMESPACE = "chart-system"
# Where pods send; its tenant is told of it by name.
TRAFFIC = "batch"
CONTROL, FAR = "alpha", "bravo"
PASSWORD = "cluster-test"  # noqa: S105 - of a database that lives as long as the test
IMAGES = {
    "dns": "chart-cluster-dns:1",
    "kafka": "chart-standin-kafka:4.1.0",
    "database": "chart-standin-database:15",
    "prometheus": "chart-standin-prometheus:1",
}
VOLUMES = ("kafka", "database", "authority")
SERVICES = ("registry", "reservations", "archiver", "authority", "tunnels")
PORT = 5301


def deployment(
    name: str,
    namespace: str,
    image: str,
    *,
    node: str,
    command: list[str] | None = None,
    environment: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **more: Any,
) -> Manifest:
    """One pod on a node."""
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
        **more.pop("container", {}),
    }
    if command:
        container["command"] = command
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "Recreate"},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations or {}},
                "spec": {
                    "nodeSelector": {"site": node},
                    "terminationGracePeriodSeconds": 2,
                    "enableServiceLinks": False,
                    "containers": [container],
                    **more,
                },
            },
        },
    }


def service(name: str, namespace: str, port: int, **more: Any) -> Manifest:
    """An address for a deployment's pod."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"app": name}, "ports": [{"port": port, "name": "port"}], **more},
    }


def namespace(name: str) -> Manifest:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def names() -> list[Manifest]:
    """CoreDNS, as the service kube-dns."""
    where = "kube-system"
    corefile = ".:53 {\n errors\n health\n kubernetes cluster.local in-addr.arpa {\n  ttl 5\n }\n cache 5\n}\n"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kube-dns", "namespace": where}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kube-dns"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"kind": "ServiceAccount", "name": "kube-dns", "namespace": where}],
    }
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "system:coredns"},
        "rules": [
            {"apiGroups": [group], "resources": kinds, "verbs": ["list", "watch"]}
            for group, kinds in (("", ["services", "pods", "namespaces"]), ("discovery.k8s.io", ["endpointslices"]))
        ],
    }
    configuration = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kube-dns", "namespace": where},
        "data": {"Corefile": corefile},
    }
    pod = deployment(
        "kube-dns",
        where,
        IMAGES["dns"],
        node=CONTROL,
        command=["coredns", "-conf", "/etc/coredns/Corefile"],
        container={"volumeMounts": [{"name": "configuration", "mountPath": "/etc/coredns"}]},
        serviceAccountName="kube-dns",
        dnsPolicy="Default",
        volumes=[{"name": "configuration", "configMap": {"name": "kube-dns"}}],
    )
    pod["spec"]["template"]["metadata"]["labels"]["k8s-app"] = "kube-dns"
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    address = service("kube-dns", where, 53, clusterIP=DNS_ADDRESS)
    address["spec"]["ports"] = ports
    return [account, role, binding, configuration, pod, address]


def kept(folder: Path, path: str) -> dict[str, Any]:
    """A folder of this machine in a deployment's container, at ``path``: it outlives the pod."""
    return {
        "container": {"volumeMounts": [{"name": "kept", "mountPath": path}]},
        "volumes": [{"name": "kept", "hostPath": {"path": str(folder), "type": "Directory"}}],
    }


def stores(volumes: Path) -> list[Manifest]:
    """A broker and a database in plain, the secret with the database's addresses, a volume for the authority's keys.

    ``volumes``: where each has its folder, as `VOLUMES` names them.
    """
    broker = {
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_NODE_ID": "1",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:9094",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9094",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://kafka.{NAMESPACE}.svc.cluster.local:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "4",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_HEAP_OPTS": "-Xmx512m -Xms128m",
    }
    database = {"POSTGRES_USER": "chart", "POSTGRES_DB": "chart", "POSTGRES_PASSWORD": PASSWORD}
    place = f"database.{NAMESPACE}.svc.cluster.local:5432/chart"
    urls = {role: f"postgresql://{role}:{PASSWORD}@{place}" for role in SERVICES}
    urls["admin"] = f"postgresql://chart:{PASSWORD}@{place}"
    return [
        deployment(
            "kafka",
            NAMESPACE,
            IMAGES["kafka"],
            node=CONTROL,
            environment=broker,
            **kept(volumes / "kafka", "/var/lib/kafka"),
        ),
        service("kafka", NAMESPACE, 9092),
        deployment(
            "database",
            NAMESPACE,
            IMAGES["database"],
            node=CONTROL,
            environment=database,
            **kept(volumes / "database", "/var/lib/postgresql"),
        ),
        service("database", NAMESPACE, 5432),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "chart-database", "namespace": NAMESPACE},
            "stringData": urls,
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "authority"},
            "spec": {
                "capacity": {"storage": "2Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(volumes / "authority"), "type": "Directory"},
            },
        },
    ]


def roles() -> str:
    """The database's roles, as whoever runs it would make them: SQL."""
    return "".join(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'; " for role in SERVICES)


def traffic(image: str, programs: Path) -> list[Manifest]:
    """A pod that sends, on one node, and one that receives, on the other; `kubectl exec` says what they run."""
    mount = {
        "command": ["sleep", "infinity"],
        "container": {
            "volumeMounts": [{"name": "programs", "mountPath": "/opt/lab", "readOnly": True}],
            # To choose BBR and CUBIC for a socket, where the node allows others than its default to root alone.
            "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}},
        },
        "volumes": [{"name": "programs", "hostPath": {"path": str(programs), "type": "Directory"}}],
    }
    return [
        deployment("sender", TRAFFIC, image, node=CONTROL, **mount),
        deployment("receiver", TRAFFIC, image, node=FAR, **mount),
        service("receiver", TRAFFIC, PORT),
    ]


def values(image_tag: str) -> dict[str, Any]:
    """The documented minimal values of a trial, and where each pod runs."""
    cgroup = "unified/chart-cluster-{}/kubepods"
    return {
        "image": {"tag": image_tag, "pullPolicy": "Never"},
        "kafka": {"bootstrap": f"kafka.{NAMESPACE}.svc.cluster.local:9092", "replicationFactor": 1},
        "podDefaults": {"nodeSelector": {"site": CONTROL}},
        "telemetry": {"serviceMonitor": {"enabled": False}, "prometheusRule": {"enabled": False}},
        "agent": {
            "pools": [
                {
                    "name": node,
                    "nodeSelector": {"site": node},
                    "links": [{"interface": f"to-{other}"}],
                    "cgroup": cgroup.format(node),
                }
                for node, other in ((CONTROL, FAR), (FAR, CONTROL))
            ]
        },
    }
