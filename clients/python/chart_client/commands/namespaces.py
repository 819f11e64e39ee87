"""Linux parts of `chart run`: cgroup v2 folders, network namespaces, addresses of this machine."""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import json
import os
import subprocess
from pathlib import Path

CLONE_NEWNET = 0x40000000


class NotPossibleError(Exception):
    """This machine or user lacks a prerequisite; the message names the fix."""


def cgroup2_mount(mounts: str) -> Path:
    """Where cgroup v2 is mounted, from the text of /proc/mounts.

    Raises:
        NotPossibleError: nowhere.
    """
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) >= 3 and fields[2] == "cgroup2":
            return Path(fields[1])
    msg = (
        "cgroup v2 is not mounted; try: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified"
    )
    raise NotPossibleError(msg)


def own_cgroup(mounts: str, own: str) -> Path:
    """The caller's cgroup v2 folder, from /proc/mounts and /proc/self/cgroup.

    Raises:
        NotPossibleError: there is none.
    """
    for line in own.splitlines():
        if line.startswith("0::"):
            return cgroup2_mount(mounts) / line[3:].lstrip("/")
    msg = "this process is in no cgroup of version 2"
    raise NotPossibleError(msg)


def make_cgroup() -> Path:
    """A new cgroup below the caller's; its id is the folder's inode number.

    Raises:
        NotPossibleError: no cgroup v2, or not allowed.
    """
    parent = own_cgroup(Path("/proc/mounts").read_text(), Path("/proc/self/cgroup").read_text())
    folder = parent / f"chart-run-{os.getpid()}"
    try:
        folder.mkdir()
    except PermissionError:
        msg = f"making a cgroup below {parent} needs root: run it with sudo"
        raise NotPossibleError(msg) from None
    except OSError as error:
        msg = f"no cgroup can be made below {parent}: {error}"
        raise NotPossibleError(msg) from error
    return folder


def own_addresses() -> set[str]:
    """Addresses of this network namespace, loopback's own aside."""
    try:
        text = subprocess.run(["ip", "-j", "address"], check=True, capture_output=True, timeout=5, text=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        msg = f"the addresses of this machine cannot be read with `ip`: {error}"
        raise NotPossibleError(msg) from error
    found = {info["local"] for interface in json.loads(text) for info in interface.get("addr_info", ())}
    return {address for address in found if not ipaddress.ip_address(address).is_loopback}


def ancestors() -> list[int]:
    """Ids of the parent, its parent and so on, as far as they can be seen."""
    found: list[int] = []
    process = os.getppid()
    with contextlib.suppress(OSError, StopIteration, ValueError):
        while process > 1:
            found.append(process)
            status = Path(f"/proc/{process}/status").read_text().splitlines()
            process = int(next(line for line in status if line.startswith("PPid:")).split()[1])
    return found


class Network:
    """The network namespace that this process was started in, to come back to after a visit elsewhere."""

    def __init__(self) -> None:
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def visit_outside(self) -> bool:
        """Go to the network that this node's was entered from, where the local platform listens; whether that worked.

        That is the network of the nearest ancestor that is in another one, or else of the machine's first process,
        which some machines do not let anybody look at.
        """
        here = Path("/proc/self/ns/net").readlink()
        for process in (*ancestors(), 1):
            with contextlib.suppress(OSError):
                network = Path(f"/proc/{process}/ns/net")
                if network.readlink() == here:
                    continue
                descriptor = os.open(network, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    return _setns(descriptor)
                finally:
                    os.close(descriptor)
        return False

    def return_home(self) -> None:
        """Back to where this process was started; raises OSError when that is refused."""
        if not _setns(self._home):
            raise OSError(ctypes.get_errno(), "setns")

    def close(self) -> None:
        """Forget the way back."""
        os.close(self._home)


def _setns(descriptor: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.setns(descriptor, CLONE_NEWNET) == 0)
