"""Kernels of the machine's package source: which ones there are, and one of them unpacked.

The source's address is the machine's own; other suites of it are asked for in a state of their own, so that the
machine's package manager learns nothing of them.
"""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

META_PACKAGE = "linux-image-cloud-amd64"
SUITES = ("bookworm", "bookworm-backports", "trixie", "trixie-backports", "forky", "sid")
# A kernel's image, its modules where they are packages of their own.
PARTS = re.compile(r"^linux-(image|binary|modules)-\d")
LIMIT_S = 600
# What the suites have is asked for again after a day.
KEEP_LISTS_S = 86400.0


class PackageError(RuntimeError):
    """What could not be had of the package source."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that the package source has: ``6.12`` and the version of its package."""

    release: str
    package_version: str


class PackageSource:
    """The machine's package source with more suites, in a state of its own below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lists, cache = folder / "apt" / "lists", folder / "apt" / "cache"
        for needed in (self.lists / "partial", cache / "archives" / "partial"):
            needed.mkdir(parents=True, exist_ok=True)
        self.sources = folder / "apt" / "sources.list"
        self.options = [
            *("-o", f"Dir::Etc::SourceList={self.sources}", "-o", "Dir::Etc::SourceParts=-"),
            *("-o", f"Dir::State::Lists={self.lists}", "-o", f"Dir::Cache={cache}"),
            *("-o", "APT::Architecture=amd64", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"),
        ]

    def update(self) -> None:
        """Learn what the suites have, once a day; a suite that the source does not keep is no error."""
        address = debian_address()
        fresh_s = time.time() - self.sources.stat().st_mtime if self.sources.exists() else KEEP_LISTS_S
        if fresh_s < KEEP_LISTS_S and any(self.lists.glob("*Packages*")):
            return
        self.sources.write_text("".join(f"deb {address} {suite} main\n" for suite in SUITES))
        self._run("apt-get", "update", check=False)

    def kernels(self) -> list[Kernel]:
        """The newest package of each kernel release, the oldest release first."""
        newest: dict[str, str] = {}
        for line in self._run("apt-cache", "madison", META_PACKAGE).splitlines():
            version = line.split("|")[1].strip()
            found = re.match(r"\d+\.\d+", version)
            if found and (found[0] not in newest or is_newer(version, newest[found[0]])):
                newest[found[0]] = version
        ordered = sorted(newest, key=lambda release: tuple(int(part) for part in release.split(".")))
        return [Kernel(release, newest[release]) for release in ordered]

    def unpack(self, kernel: Kernel) -> Path:
        """The folder of a kernel, its image and its modules; downloaded once."""
        folder = self.folder / kernel.package_version
        if kernel_image(folder):
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        for part in self._parts(f"{META_PACKAGE}={kernel.package_version}"):
            self._run("apt-get", "download", part, cwd=folder)
        for archive in folder.glob("*.deb"):
            self._run("dpkg-deb", "-x", str(archive), str(folder))
            archive.unlink()
        if not kernel_image(folder):
            raise PackageError(f"{META_PACKAGE} {kernel.package_version} has no kernel image")
        return folder

    def _parts(self, package: str) -> list[str]:
        """The packages with a kernel's files that a package needs, and those that they need in turn."""
        found: dict[str, None] = {}
        waiting = [package]
        while waiting:
            fields = self._run("apt-cache", "show", waiting.pop())
            depends = re.search(r"^Depends: (.+)$", fields, re.M)
            for wanted in re.split(r"[,|]\s*", depends[1] if depends else ""):
                named = re.match(r"(\S+)(?: \(= ([^)]+)\))?", wanted)
                if not named or not PARTS.match(named[1]):
                    continue
                part = f"{named[1]}={named[2]}" if named[2] else named[1]
                if part not in found:
                    found[part] = None
                    waiting.append(part)
        if not found:
            raise PackageError(f"{package}: no package of a kernel image is known")
        return list(found)

    def _run(self, program: str, *arguments: str, check: bool = True, cwd: Path | None = None) -> str:
        options = self.options if program.startswith("apt") else []
        done = subprocess.run(
            [program, *options, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=cwd
        )
        if check and done.returncode:
            raise PackageError(f"{program} {' '.join(arguments)}: {done.stderr.strip()[-600:]}")
        return done.stdout


def kernel_image(folder: Path) -> Path | None:
    """What boots, in the folder of a kernel: beside other kernels, or since Linux 7 beside its modules."""
    places = (*folder.glob("boot/vmlinuz-*"), *folder.glob("usr/lib/modules/*/vmlinuz"))
    return next(iter(places), None)


def is_newer(version: str, other: str) -> bool:
    """Whether a package version is above another, as the package manager orders them."""
    return (
        subprocess.run(["dpkg", "--compare-versions", version, "gt", other], timeout=LIMIT_S, check=False).returncode
        == 0
    )


def debian_address(folder: Path = Path("/etc/apt")) -> str:
    """Where the machine takes Debian from."""
    for path in [folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))]:
        lines = path.read_text().splitlines() if path.is_file() else []
        for line in lines:
            found = re.search(r"\bhttps?://\S+/debian/?(?=\s|$)", line)
            if found and not line.lstrip().startswith("#"):
                return found[0]
    raise PackageError(f"no package source of Debian stands in {folder}")
