"""Two real Kubernetes nodes on this machine, each in a network namespace of the lab, joined by an emulated link: the
kubelet, containerd and kube-proxy of a release run there, and real pods.

A node has a network namespace, a mount namespace (its own /run/chart, as another machine would have) and control groups
of its own. Pods get addresses of the node's range from the plugin ptp; those of the other node are reached over the
emulated link, and the API server over the lab's management bridge.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from control_plane import ControlPlane, ControlPlaneError

from chart_lab.network import Lab
from chart_lab.topology import MANAGEMENT_HOST, Link, Node, Topology

LAB_ID = "cluster"
NODES = ("alpha", "bravo")
POD_RANGES = {"alpha": "10.244.1.0/24", "bravo": "10.244.2.0/24"}
ALL_PODS = "10.244.0.0/16"
DNS_ADDRESS = "10.96.0.10"
PAUSE = "chart-cluster-pause:1"
CGROUPS = Path("/sys/fs/cgroup")
# Hierarchies of version 1 that the runtime uses, and the unified one.
HIERARCHIES = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd", "unified")
READY_LIMIT_S = 120.0
PLUGINS = Path("/usr/lib/cni")
# Folders of CHART on a node. Agents of one kernel share /run/chart-trinity.
OWN = ("/run/chart", "/var/lib/chart-sensor-pod")


def topology(rate_mbit: float, delay_ms: float, loss: float) -> Topology:
    """Two nodes and the link between them, the same in both directions."""
    link = Link(ends=NODES, rate_mbit=rate_mbit, delay_ms=delay_ms, loss=loss)
    return Topology(name=LAB_ID, nodes=[Node(name=name) for name in NODES], links=[link])


def cgroup_name(node: str) -> str:
    """The control group of a node, in every hierarchy."""
    return f"chart-{LAB_ID}-{node}"


class KubernetesNode:
    """One node; `start` and `stop`."""

    def __init__(self, name: str, lab: Lab, plane: ControlPlane, state: Path) -> None:
        self.name, self._lab, self._plane = name, lab, plane
        self.state = state / name
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._holder: subprocess.Popen[bytes] | None = None
        self.socket = self.state / "containerd.sock"

    def start(self) -> None:
        """Start everything; the node may not be ready yet."""
        self._prepare()
        # Holds the mount namespace. Nothing that is mounted there is seen outside of it.
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", self._mounts()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"mounted\n":
            msg = f"the mount namespace of {self.name} was not made"
            raise ControlPlaneError(msg)
        self._run("containerd", ["containerd", "--config", str(self.state / "containerd.toml")])
        self.await_("containerd", lambda: not self.ctr("version", check=False).returncode)
        kubernetes = str(self._plane.tools / "kubernetes")
        arguments = ["--config", str(self.state / "kubelet.yaml"), "--kubeconfig", str(self._plane.kubeconfig)]
        arguments += ["--hostname-override", self.name, "--node-ip", self._lab.management_address(self.name)]
        arguments += ["--root-dir", str(self.state / "kubelet"), "--cert-dir", str(self.state / "pki")]
        arguments += ["--node-labels", f"site={self.name}"]
        self._run("kubelet", [kubernetes, "kubelet", *arguments])
        self._run("kube-proxy", [kubernetes, "kube-proxy", "--config", str(self.state / "proxy.yaml")])

    def stop(self) -> None:
        """End everything, pods included, and take the control groups away."""
        for _, process in reversed(self._processes):
            process.terminate()
        for _, process in reversed(self._processes):
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        end_groups(self.name)
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            self._holder = None

    def ctr(self, *arguments: str, check: bool = True, limit_s: float = 300.0) -> subprocess.CompletedProcess[str]:
        """The client of containerd, in the namespace of the kubelet's containers."""
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=check)

    def exec(self, command: Sequence[str]) -> str:
        """What a command prints in the node's namespaces."""
        done = subprocess.run(self._inside(command), capture_output=True, text=True, timeout=60, check=False)
        return done.stdout

    def await_(self, what: str, ready: Any) -> None:
        """Until it is so; raises ControlPlaneError when a program ended or the time is over."""
        deadline = time.monotonic() + READY_LIMIT_S
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                msg = f"{what} of {self.name} is not up after {READY_LIMIT_S:.0f} s; logs are in {self.state}"
                raise ControlPlaneError(msg)
            time.sleep(0.5)

    def check(self) -> None:
        """Raise ControlPlaneError with its last words when a program ended."""
        for name, process in self._processes:
            if process.poll() is not None:
                words = (self.state / f"{name}.log").read_text(errors="replace").strip()[-1500:]
                msg = f"{name} of {self.name} ended with status {process.returncode}:\n{words}"
                raise ControlPlaneError(msg)

    def _mounts(self) -> str:
        # Another machine would have its own.
        mounts = [
            f"mkdir -p {self.state}/own{path} {path} && mount --bind {self.state}/own{path} {path} && " for path in OWN
        ]
        return "".join(mounts) + "echo mounted && exec sleep infinity"

    def _inside(self, command: Sequence[str]) -> list[str]:
        assert self._holder is not None
        inside = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--", *command]
        return self._lab.command_line(self.name, inside)

    def _run(self, name: str, command: list[str]) -> None:
        with (self.state / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self._inside(command), stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._processes.append((name, process))

    def _prepare(self) -> None:
        shutil.rmtree(self.state, ignore_errors=True)
        self.state.mkdir(parents=True)
        make_groups(self.name)
        other = next(name for name in NODES if name != self.name)
        namespace = self._lab.namespace(self.name)
        peer, source = self._lab.address(other), self._lab.address(self.name)
        gateway = json.loads(_ip(namespace, "-j", "route", "get", peer))[0]
        via = ["via", gateway["gateway"]] if "gateway" in gateway else ["dev", gateway["dev"]]
        _ip(namespace, "route", "add", POD_RANGES[other], *via, "src", source)
        # The services' own addresses: whatever they are translated to has a route of its own.
        _ip(namespace, "route", "add", "default", "via", str(MANAGEMENT_HOST.ip))
        _ip("", "route", "replace", POD_RANGES[self.name], "via", self._lab.management_address(self.name))
        self._write_configuration()

    def _write_configuration(self) -> None:
        plugins = self.state / "cni"
        plugins.mkdir()
        network = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "ptp",
                    "ipMasq": False,
                    "mtu": 1500,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": POD_RANGES[self.name]}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                        "dataDir": str(self.state / "addresses"),
                    },
                }
            ],
        }
        (plugins / "10-pods.conflist").write_text(json.dumps(network))
        containerd = f"""version = 2
root = "{self.state}/containerd"
state = "{self.state}/containerd-run"
[grpc]
address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "docker.io/library/{PAUSE}"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{PLUGINS}"
conf_dir = "{plugins}"
[plugins."io.containerd.internal.v1.opt"]
path = "{self.state}/opt"
"""
        (self.state / "containerd.toml").write_text(containerd)
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            # Within the namespace of the node, which nobody else reaches.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroup_name(self.name)}",
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "podLogsDir": str(self.state / "logs"),
            "clusterDNS": [DNS_ADDRESS],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "imageMinimumGCAge": "24h",
            "evictionHard": {"memory.available": "50Mi"},
            "nodeStatusUpdateFrequency": "5s",
            "volumePluginDir": str(self.state / "volume-plugins"),
        }
        (self.state / "kubelet.yaml").write_text(json.dumps(kubelet))
        proxy = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self._plane.kubeconfig)},
            "clusterCIDR": ALL_PODS,
            "hostnameOverride": self.name,
            "mode": "nftables",
            "bindAddress": self._lab.management_address(self.name),
            "conntrack": {"maxPerCore": 0},
        }
        (self.state / "proxy.yaml").write_text(json.dumps(proxy))


def _ip(namespace: str, *arguments: str) -> str:
    where = ["-n", namespace] if namespace else []
    return subprocess.run(["ip", *where, *arguments], capture_output=True, text=True, check=True, timeout=10).stdout


def make_groups(node: str) -> None:
    """The node's control groups, which the kubelet expects to find."""
    for hierarchy in HIERARCHIES:
        if not (CGROUPS / hierarchy).is_dir():
            continue
        group = CGROUPS / hierarchy / cgroup_name(node)
        group.mkdir(exist_ok=True)
        if hierarchy == "cpuset":
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((group.parent / name).read_text())


def end_groups(node: str) -> None:
    """End what runs in a node's control groups, and take them away."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = _processes(node)
        if not found:
            break
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.2)
    for hierarchy in HIERARCHIES:
        top = CGROUPS / hierarchy / cgroup_name(node)
        for folder in sorted((one for one in top.rglob("*") if one.is_dir()), key=lambda one: -len(one.parts)):
            folder.rmdir()
        if top.is_dir():
            top.rmdir()


def _processes(node: str) -> set[int]:
    found: set[int] = set()
    for hierarchy in HIERARCHIES:
        top = CGROUPS / hierarchy / cgroup_name(node)
        for file in [top / "cgroup.procs", *top.rglob("cgroup.procs")]:
            try:
                found |= {int(one) for one in file.read_text().split()}
            except OSError:
                continue
    return found


class Cluster:
    """A control plane and its nodes, as a context: everything ends with it."""

    def __init__(self, tools: Path, state: Path, rate_mbit: float, delay_ms: float, loss: float) -> None:
        self.lab = Lab(topology(rate_mbit, delay_ms, loss), LAB_ID, state_dir=state / "lab", management=True)
        self.plane = ControlPlane(tools, state / "plane", str(MANAGEMENT_HOST.ip))
        self.nodes = {name: KubernetesNode(name, self.lab, self.plane, state / "nodes") for name in NODES}

    def __enter__(self) -> Cluster:
        try:
            for name in NODES:
                end_groups(name)
            self.lab.up()
            self.plane.__enter__()
            for node in self.nodes.values():
                node.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End everything."""
        for node in self.nodes.values():
            node.stop()
        self.plane.__exit__(None, None, None)
        self.lab.down()
        for name in NODES:
            subprocess.run(["ip", "route", "del", POD_RANGES[name]], capture_output=True, check=False)

    def ready(self) -> bool:
        """Whether both nodes take pods; raises ControlPlaneError when a program of one ended."""
        for node in self.nodes.values():
            node.check()
        return self.plane.kubectl("get", "nodes").count(" Ready ") == len(NODES)

    def import_images(self, archives: Sequence[Path]) -> None:
        """Images of both nodes, from archives as `docker save` writes them."""

        def imported(node: KubernetesNode) -> None:
            for archive in archives:
                node.ctr("images", "import", "--snapshotter", "overlayfs", str(archive))

        with ThreadPoolExecutor() as pool:
            list(pool.map(imported, self.nodes.values()))
