"""The guest's first file system: a shell, the programs with their libraries, and the modules that the test needs."""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import stat
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOST_PROGRAMS = ("ip", "tc", "ss", "iperf3", "nsenter", "bpftool")
MODULES = (
    *("veth", "sch_netem", "sch_htb", "sch_ingress", "cls_bpf", "tcp_bbr", "tun"),
    *("tcp_diag", "inet_diag", "virtio_net"),
)
DIRECTORIES = ("bin", "usr/bin", "lib", "lib64", "modules", "sys/fs/cgroup")
SUFFIXES = (".ko", ".ko.xz", ".ko.gz")


class ImageError(RuntimeError):
    """What is missing for the guest."""


def make_image(kernel: Path, programs: list[Path], target: Path, first: str = "guest-init") -> None:
    """Write the archive (cpio, compressed) for a kernel's folder; ``first`` is process 1."""
    files: dict[str, tuple[int, bytes]] = {}
    found = [*programs, *(Path(required(name)) for name in HOST_PROGRAMS), Path(required("dash"))]
    for program in found:
        files[f"usr/bin/{program.name}"] = (0o755, program.read_bytes())
    for library in libraries(found):
        files[str(library).lstrip("/")] = (0o755, library.read_bytes())
    files["bin/dash"] = files.pop("usr/bin/dash")
    files["bin/busybox"] = (0o755, Path(required("busybox")).read_bytes())
    files["init"] = (0o755, (HERE / first).read_bytes())
    files["guest-common"] = (0o644, (HERE / "guest-common").read_bytes())
    names = []
    for module in in_order(kernel, MODULES):
        name = module.name.split(".ko")[0] + ".ko"
        names.append(name)
        files[f"modules/{name}"] = (0o644, contents(module))
    files["modules/list"] = (0o644, "".join(f"{name}\n" for name in names).encode())
    target.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(target, "wb", compresslevel=1) as out:
        for data in archive(files):
            out.write(data)


def required(name: str) -> str:
    """The path of a program of this machine."""
    path = shutil.which(name)
    if path is None:
        raise ImageError(f"{name} is not installed")
    return path


def libraries(programs: list[Path]) -> set[Path]:
    """What the programs load, by the paths they know."""
    done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, timeout=60, check=False)
    return {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.M)}


def in_order(kernel: Path, wanted: tuple[str, ...]) -> list[Path]:
    """The files of modules, each after those that it needs; what is built into the kernel has none."""
    known = {
        path.name.split(".ko")[0].replace("-", "_"): path
        for path in kernel.rglob("*.ko*")
        if path.name.endswith(SUFFIXES)
    }
    ordered: dict[Path, None] = {}

    def add(name: str) -> None:
        path = known.get(name)
        if path is None or path in ordered:
            return
        for needed in re.findall(rb"\0depends=([^\0]*)\0", contents(path)):
            for each in needed.decode().split(","):
                add(each.replace("-", "_"))
        ordered[path] = None

    for name in wanted:
        add(name)
    return list(ordered)


def contents(module: Path) -> bytes:
    """A module, uncompressed."""
    data = module.read_bytes()
    if module.suffix == ".xz":
        return lzma.decompress(data)
    return gzip.decompress(data) if module.suffix == ".gz" else data


def archive(files: dict[str, tuple[int, bytes]]) -> list[bytes]:
    """The members of a cpio archive (newc) with their parent folders, and its end."""
    folders = {str(parent) for name in files for parent in Path(name).parents} | set(DIRECTORIES)
    folders |= {str(parent) for name in DIRECTORIES for parent in Path(name).parents}
    entries = [(folder, stat.S_IFDIR | 0o755, b"") for folder in sorted(folders - {"."})]
    entries += [(name, stat.S_IFREG | mode, data) for name, (mode, data) in files.items()]
    entries.append(("TRAILER!!!", 0, b""))
    return [member(number, *entry) for number, entry in enumerate(entries, start=1)]


def member(number: int, name: str, mode: int, data: bytes) -> bytes:
    """One member: header of 13 fields, name and data, each filled up to words."""
    path = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields)
    head = header + path
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
