"""A real Kubernetes control plane on loopback: etcd, API server, controller manager, scheduler, and simulated nodes.

For trying the Helm chart: what the API server accepts, the controllers create and the scheduler places is what a
cluster would do; only the containers do not run (KWOK says of each pod that it is ready, and of a job's that it is
done). Everything lives in one folder and ends with the context.
"""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

START_LIMIT_S = 120.0
NODES = 3
LOOPBACK = "127.0.0.1"


class ControlPlaneError(RuntimeError):
    """A part did not start or a command failed; the message has its last words."""


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class ControlPlane:
    """``tools`` holds the programs `kubernetes` and `kwok`; ``state`` is emptied and used. ``address``: where the API
    server listens; on another one than loopback it waits for nodes that somebody else starts.
    """

    def __init__(self, tools: Path, state: Path, address: str = LOOPBACK) -> None:
        self.tools, self.state, self.address = tools, state, address
        self.kubeconfig = state / "kubeconfig"
        # Where the API server is, and what its certificate is checked with.
        self.server = ""
        self.ca_file = state / "certificates" / "apiserver.crt"
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> ControlPlane:
        self.state.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def kubectl(self, *arguments: str, stdin: str | None = None, limit_s: float = 60.0) -> str:
        """What kubectl prints; raises ControlPlaneError with what it complains."""
        command = [str(self.tools / "kubernetes"), "kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=limit_s, check=False)
        if done.returncode:
            msg = f"kubectl {' '.join(arguments)}: {done.stderr.strip()[-2000:]}"
            raise ControlPlaneError(msg)
        return done.stdout

    def _start(self) -> None:
        etcd, peer, api = free_port(), free_port(), free_port()
        token = secrets.token_hex(16)
        (self.state / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
        (self.state / "tokens.csv").chmod(0o600)
        key = self.state / "service-account.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True, timeout=60)
        self._run(
            "etcd",
            [
                "etcd",
                "--data-dir",
                str(self.state / "etcd"),
                "--listen-client-urls",
                f"http://127.0.0.1:{etcd}",
                "--advertise-client-urls",
                f"http://127.0.0.1:{etcd}",
                "--listen-peer-urls",
                f"http://127.0.0.1:{peer}",
                "--initial-advertise-peer-urls",
                f"http://127.0.0.1:{peer}",
                "--initial-cluster",
                f"default=http://127.0.0.1:{peer}",
                "--unsafe-no-fsync",
            ],
        )
        kubernetes = str(self.tools / "kubernetes")
        self._run(
            "kube-apiserver",
            [
                kubernetes,
                "kube-apiserver",
                "--etcd-servers",
                f"http://127.0.0.1:{etcd}",
                "--secure-port",
                str(api),
                "--bind-address",
                self.address,
                "--advertise-address",
                self.address,
                "--cert-dir",
                str(self.state / "certificates"),
                "--token-auth-file",
                str(self.state / "tokens.csv"),
                "--authorization-mode",
                "RBAC",
                "--service-account-issuer",
                "https://kubernetes.default.svc",
                "--service-account-key-file",
                str(key),
                "--service-account-signing-key-file",
                str(key),
                "--kubelet-preferred-address-types",
                "InternalIP",
                "--service-cluster-ip-range",
                "10.96.0.0/16",
                "--allow-privileged=true",
                # It needs a newer etcd than the distribution's: every watch would fail once and begin anew, late.
                "--feature-gates=WatchList=false",
            ],
        )
        self.server = f"https://{self.address}:{api}"
        self._write_kubeconfig(self.server, token)
        self._await("the API server", lambda: "ok" in self.kubectl("get", "--raw", "/readyz", limit_s=5))
        common = ["--kubeconfig", str(self.kubeconfig), "--leader-elect=false", "--bind-address", "127.0.0.1"]
        self._run(
            "kube-controller-manager",
            [
                kubernetes,
                "kube-controller-manager",
                *common,
                "--secure-port",
                str(free_port()),
                "--cert-dir",
                str(self.state / "certificates"),
                "--service-account-private-key-file",
                str(key),
                # Pods check the API server with it.
                "--root-ca-file",
                str(self.ca_file),
            ],
        )
        self._run(
            "kube-scheduler",
            [
                kubernetes,
                "kube-scheduler",
                *common,
                "--secure-port",
                str(free_port()),
                "--cert-dir",
                str(self.state / "certificates"),
            ],
        )
        if self.address != LOOPBACK:
            return
        self._run(
            "kwok",
            [
                str(self.tools / "kwok"),
                "--kubeconfig",
                str(self.kubeconfig),
                "--manage-all-nodes=true",
                "--server-address",
                f"127.0.0.1:{free_port()}",
                "--node-lease-duration-seconds",
                "40",
            ],
        )
        self._add_nodes()

    def _write_kubeconfig(self, server: str, token: str) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            # The API server signed its own certificate a moment ago, on loopback.
            "clusters": [{"name": "test", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }
        self.kubeconfig.write_text(json.dumps(document))
        self.kubeconfig.chmod(0o600)

    def _add_nodes(self) -> None:
        resources = {"cpu": "32", "memory": "256Gi", "pods": "110"}
        for number in range(NODES):
            node = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": f"node-{number}",
                    # What the scenarios place by.
                    "labels": {
                        "kubernetes.io/hostname": f"node-{number}",
                        "role": ("edge", "site")[number % 2],
                        "disk": "fast",
                    },
                    "annotations": {"kwok.x-k8s.io/node": "fake"},
                },
                "status": {"capacity": resources, "allocatable": resources},
            }
            self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(node))
        self._await("the nodes", lambda: self.kubectl("get", "nodes").count(" Ready ") == NODES)

    def _run(self, name: str, command: list[str]) -> None:
        with (self.state / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._processes.append((name, process))

    def _await(self, what: str, ready: object) -> None:
        assert callable(ready)
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            for name, process in self._processes:
                if process.poll() is not None:
                    words = (self.state / f"{name}.log").read_text(errors="replace").strip()[-1500:]
                    msg = f"{name} ended with status {process.returncode}:\n{words}"
                    raise ControlPlaneError(msg)
            try:
                if ready():
                    return
            except (ControlPlaneError, subprocess.TimeoutExpired):
                pass
            if time.monotonic() > deadline:
                msg = f"{what} did not come up in {START_LIMIT_S:.0f} s; logs are in {self.state}"
                raise ControlPlaneError(msg)
            time.sleep(0.5)

    def _stop(self) -> None:
        for _, process in reversed(self._processes):
            process.terminate()
        for _, process in reversed(self._processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
