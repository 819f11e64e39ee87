"""The kernel objects a lab is made of: namespaces, the management bridge, cgroups."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from chart_lab.errors import LabError
from chart_lab.topology import MANAGEMENT_HOST

NAMESPACES = Path("/run/netns")
BRIDGE = "chart-mgmt"
MANAGEMENT_INTERFACE = "mgmt"
CGROUP_FALLBACK_MOUNT = Path("/sys/fs/cgroup/unified")
KILL_TIMEOUT_S = 5.0

# Windows up to 64 MB and 1 MB from the start (Brassil et al., The CHART System, section 7: "1-MByte initial windows at
# both sender and receiver"); no memory of earlier connections; forwarding without reverse path checks; silent IPv6.
SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/tcp_rmem": "4096 1048576 67108864",
    "net/ipv4/tcp_wmem": "4096 1048576 67108864",
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv6/conf/all/addr_gen_mode": "1",
    "net/ipv6/conf/default/addr_gen_mode": "1",
}


def require_root() -> None:
    """Raises LabError unless this process may build networks."""
    if os.geteuid() != 0:
        raise LabError("the lab builds network namespaces and needs root: run it with sudo")
    if not Path("/dev/net/tun").exists():
        raise LabError("/dev/net/tun is missing: the kernel needs CONFIG_TUN")


def cgroup_root() -> Path:
    """Mount point of the cgroup v2 hierarchy; mounts it beside the v1 hierarchies when there is none."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount_point, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(mount_point)
    CGROUP_FALLBACK_MOUNT.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "cgroup2", "none", str(CGROUP_FALLBACK_MOUNT)], check=True)
    return CGROUP_FALLBACK_MOUNT


def cgroup_processes(path: Path) -> list[int]:
    """Ids of the processes in a cgroup (not below); none when it does not exist."""
    try:
        return [int(pid) for pid in (path / "cgroup.procs").read_text().split()]
    except OSError:
        return []


@contextlib.contextmanager
def exclusive(lock: Path, timeout_s: float) -> Iterator[None]:
    """Holds a file as a lock, which the kernel releases when its holder dies.

    Raises LabError when another process holds it for longer than timeout_s.
    """
    deadline = time.monotonic() + timeout_s
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LabError(f"another process has been building a lab for {timeout_s:g} s") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def cgroup_populated(path: Path) -> bool:
    """Whether a process runs in a cgroup or below it."""
    try:
        return "populated 1" in (path / "cgroup.events").read_text()
    except FileNotFoundError:
        return False


def remove_cgroup(path: Path) -> None:
    """Kills every process in a cgroup and below, waits until they are gone, and removes the folders.

    Raises LabError when a process survives SIGKILL for 5 s.
    """
    if not path.exists():
        return
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while True:
        with contextlib.suppress(FileNotFoundError):
            (path / "cgroup.kill").write_text("1")
        busy = None
        for folder, _, _ in os.walk(path, topdown=False):
            try:
                Path(folder).rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.ENOTEMPTY):
                    raise
                busy = folder
        if busy is None:
            return
        if time.monotonic() > deadline:
            raise LabError(f"processes in cgroup {busy} do not end")
        time.sleep(0.01)


def namespace_path(name: str) -> Path:
    """The file that stands for a named namespace."""
    return NAMESPACES / name


def ip(*arguments: str, namespace: str | None = None) -> str:
    """Runs ip(8), in a namespace where one is given, and returns what it prints. Raises LabError with its complaint."""
    where = ["-n", namespace] if namespace else []
    result = subprocess.run(["ip", *where, *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LabError(f"ip {' '.join([*where, *arguments])}: {result.stderr.strip()}")
    return result.stdout


def ip_batch(lines: Sequence[str], namespace: str | None = None) -> None:
    """Runs several commands of ip(8) in one process. Raises LabError with its complaint."""
    where = ["-n", namespace] if namespace else []
    text = "\n".join(lines) + "\n"
    result = subprocess.run(["ip", *where, "-batch", "-"], input=text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LabError(f"ip {' '.join(where)}: {result.stderr.strip()}; of: {'; '.join(lines)}")


def create_namespace(name: str) -> None:
    """A new network namespace with lo up and the lab's sysctls.

    Raises LabError when one of that name exists: somebody else's lab must not be touched.
    """
    if namespace_path(name).exists():
        raise LabError(f"network namespace {name} exists already: `chart lab down` removes what is left of a lab")
    ip("netns", "add", name)
    ip("link", "set", "lo", "up", namespace=name)
    script = "; ".join(f'echo "{value}" > /proc/sys/{key}' for key, value in SYSCTLS.items())
    subprocess.run(in_namespace(name, ["/bin/sh", "-ec", script]), check=True)


def remove_namespace(name: str) -> None:
    """Takes a namespace off the management bridge, unmounts and forgets it.

    Its other devices go when the last process in it is gone.
    """
    if not namespace_path(name).exists():
        return
    with contextlib.suppress(LabError):
        ip("link", "delete", MANAGEMENT_INTERFACE, namespace=name)
    ip("netns", "delete", name)


def in_namespace(name: str, command: Sequence[str]) -> list[str]:
    """The command line that runs a command in a namespace, with the machine's own /sys and /run."""
    return ["nsenter", f"--net={namespace_path(name)}", "--", *command]


def in_cgroup(path: Path, command: Sequence[str]) -> list[str]:
    """The command line that runs a command in a cgroup; the process is in it before the command starts."""
    return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(path / "cgroup.procs"), *command]


def bridge_exists() -> bool:
    """Whether the management bridge is there."""
    return Path("/sys/class/net", BRIDGE).exists()


def create_bridge() -> bool:
    """The management bridge; returns whether it is new."""
    if bridge_exists():
        return False
    ip_batch(
        [
            f"link add {BRIDGE} type bridge",
            f"address add {MANAGEMENT_HOST} dev {BRIDGE}",
            f"link set {BRIDGE} up",
        ]
    )
    return True


def bridge_in_use() -> bool:
    """Whether a server of the platform listens on the bridge's address."""
    command = ["ss", "--no-header", "--listening", "--tcp", "--numeric", "src", str(MANAGEMENT_HOST.ip)]
    return bool(subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())


def remove_bridge() -> None:
    """Removes the management bridge when no node is on it."""
    if bridge_exists() and not list(Path("/sys/class/net", BRIDGE, "brif").iterdir()):
        ip("link", "delete", BRIDGE)


def join_bridge(namespace: str, host_interface: str, address: str) -> None:
    """Gives a namespace the interface `mgmt` with an address (ADDRESS/LENGTH) on the management bridge."""
    ip_batch(
        [
            f"link add {host_interface} type veth peer name {MANAGEMENT_INTERFACE} netns {namespace}",
            f"link set {host_interface} master {BRIDGE} up",
        ]
    )
    configure_interface(namespace, MANAGEMENT_INTERFACE, address)


def configure_interface(namespace: str, interface: str, address: str) -> None:
    """Gives an interface its address (ADDRESS/LENGTH) and takes it up."""
    ip_batch([f"address add {address} dev {interface}", f"link set {interface} up"], namespace)


def add_routes(namespace: str, routes: Iterable[tuple[str, str, str]]) -> None:
    """Static routes: destination prefix, gateway, preferred source."""
    lines = [f"route add {destination} via {gateway} src {source}" for destination, gateway, source in routes]
    if lines:
        ip_batch(lines, namespace)


def device_drops(namespace: str) -> dict[str, int]:
    """Packets that each interface of a namespace dropped before the emulator saw them."""
    links = json.loads(ip("-j", "-s", "link", "show", namespace=namespace))
    return {link["ifname"]: int(link["stats64"]["tx"]["dropped"]) for link in links}
