"""`make packages-test`: the Debian packages in a booted Debian under QEMU's software emulation.

The guest is a Debian 12 of the machine's package source with systemd and its own kernel. guest-check, which runs in it,
installs the packages, lets the agent enforce a rate, enrols it with a platform that runs beside the guest
(guest_platform.py), tries the tunnel, upgrades, removes and purges. Exit status 1 when a check fails.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import guest_platform

from chart.maintenance.postgres_server import PostgresUnavailableError
from chart_lab.platform.kafka import KafkaUnavailableError
from chart_lab.platform.laboratory import LaboratoryError
from chart_lab.platform.supervisor import SupervisorError
from report_file import replace_figures

HERE = Path(__file__).resolve().parent
COMMAND = "make packages-test"
BOOT_LIMIT_S = 1200
DISK = "2G"
# To this process's network namespace, where the platform is; the guest is 10.0.2.15 and its router 10.0.2.2.
NETWORK = "user,model=virtio-net-pci,ipv6=off"
GUEST_PACKAGES = (
    *("systemd", "systemd-sysv", "udev", "dbus", "ca-certificates", "iproute2", "iptables", "iperf3", "procps", "kmod"),
    *("linux-image-cloud-amd64", "initramfs-tools", "man-db"),
    # What ours depend on, so that the guest needs no network.
    *("libbpf1", "libcap2", "libcjson1", "libcurl4", "libfixbuf9", "libglib2.0-0", "libmicrohttpd12", "libmnl0"),
    *("libprotobuf-c1", "librdkafka1", "libssl3"),
)
# All that has to hold for `installed_and_enforcing`.
INSTALLED = (
    *("installs", "nothing_runs_yet", "starts", "enforces", "enrols", "enforces_granted", "platform_agrees"),
    *("upgrades", "enforces_upgraded", "removes", "purges"),
)


def say(text: str) -> None:
    """Progress."""
    sys.stderr.write(f"packages: {text}\n")
    sys.stderr.flush()


def make_root(folder: Path) -> Path:
    """The guest's Debian, made once."""
    root = folder / "root"
    if not (root / "sbin" / "init").exists():
        say("making the guest's Debian, some minutes")
        shutil.rmtree(root, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        include = f"--include={','.join(GUEST_PACKAGES)}"
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", include, "bookworm", str(root)], check=True)
    return root


def newer(package: Path, folder: Path) -> None:
    """The same package with a higher version, as an upgrade brings it."""
    with tempfile.TemporaryDirectory() as unpacked:
        subprocess.run(["dpkg-deb", "-R", str(package), unpacked], check=True)
        control = Path(unpacked) / "DEBIAN" / "control"
        control.write_text(re.sub(r"^(Version: .*)$", r"\1+next", control.read_text(), flags=re.M))
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", unpacked, str(folder)], check=True, capture_output=True)


def make_disk(root: Path, packages: list[Path], platform: guest_platform.Served, target: Path) -> None:
    """A file system of the guest with the packages of both versions, the tokens of its nodes and the checks."""
    inside = root / "packages"
    shutil.rmtree(inside, ignore_errors=True)
    for name in ("first", "second", "platform"):
        (inside / name).mkdir(parents=True)
    platform.write_tokens(inside / "platform")
    for package in packages:
        shutil.copy(package, inside / "first")
        newer(package, inside / "second")
    shutil.copy(HERE / "guest-check", inside)
    (inside / "guest-check").chmod(0o755)
    units = root / "etc" / "systemd" / "system"
    shutil.copy(HERE / "chart-check.service", units)
    wants = units / "multi-user.target.wants" / "chart-check.service"
    wants.unlink(missing_ok=True)
    wants.symlink_to("/etc/systemd/system/chart-check.service")
    target.unlink(missing_ok=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(target), DISK], check=True)


def boot(root: Path, disk: Path, log: Path) -> str:
    """Run the guest to its end; what it said on its console."""
    kernel = next(root.glob("boot/vmlinuz-*"))
    initrd = next(root.glob("boot/initrd.img-*"))
    command = [
        *("qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "1024", "-nographic"),
        *("-no-reboot", "-nic", NETWORK, "-monitor", "none", "-kernel", str(kernel), "-initrd", str(initrd)),
        *("-drive", f"file={disk},format=raw,if=virtio,cache=unsafe"),
        *("-append", "console=ttyS0 root=/dev/vda rw panic=-1 quiet mitigations=off systemd.show_status=false"),
    ]
    with log.open("w") as out:
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=BOOT_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            say(f"the guest did not end within {BOOT_LIMIT_S} s: {log}")
    return log.read_text(errors="replace")


def understand(console: str) -> dict[str, Any]:
    """The guest's checks and figures, and whether it came to its end."""
    checks = {
        name: (good == "ok", detail.strip())
        for name, good, detail in re.findall(r"@@ check (\S+) (ok|failed) ?(.*?)\s*$", console, re.M)
    }
    figures = {name: float(value) for name, value in re.findall(r"@@ figure (\S+) (\S+?)\s*$", console, re.M)}
    return {"checks": checks, "figures": figures, "finished": bool(re.search(r"@@ end", console, re.M))}


def report_of(found: dict[str, Any]) -> dict[str, Any]:
    """The report: what was not measured has no figure."""
    checks = found["checks"]
    enforcing = found["finished"] and all(checks.get(name, (False, ""))[0] for name in INSTALLED)
    figures = [{"name": "installed_and_enforcing", "value": float(enforcing), "unit": "", "goal": ">= 1", "peer": None}]
    for name in ("left_after_purge", "man_pages_missing"):
        if name in found["figures"]:
            value = found["figures"][name]
            figures.append({"name": name, "value": value, "unit": "objects", "goal": "<= 0", "peer": None})
    for name, (good, _) in checks.items():
        figures.append({"name": f"check/name={name}", "value": float(good), "unit": "", "goal": ">= 1", "peer": None})
    return {"figures": figures}


def main() -> int:
    """Exit status 0 when every check holds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="folder for the guest's Debian, kept")
    parser.add_argument("--packages", type=Path, required=True, help="folder of the packages")
    parser.add_argument("--report", type=Path, required=True, help="report.json to write; the console beside it")
    options = parser.parse_args()
    packages = sorted(options.packages.glob("*.deb"))
    if not packages:
        say(f"no packages in {options.packages}: make debian-packages")
        return 2
    options.report.parent.mkdir(parents=True, exist_ok=True)
    root = make_root(options.build)
    disk = options.build / "disk.ext4"
    say("starting the platform beside the guest")
    try:
        with guest_platform.running() as platform:
            make_disk(root, packages, platform, disk)
            say("booting the guest")
            with platform.watched():
                found = understand(boot(root, disk, options.report.parent / "guest.log"))
    except (LaboratoryError, SupervisorError, KafkaUnavailableError, PostgresUnavailableError, OSError) as error:
        say(f"there is no platform for the guest: {error}")
        return 2
    found["checks"]["platform_agrees"] = platform.check()
    for name, (good, detail) in found["checks"].items():
        say(f"  {'ok    ' if good else 'FAILED'} {name}{': ' + detail if detail else ''}")
    replace_figures(options.report, COMMAND, lambda name: not name.startswith("skew"), report_of(found))
    return 0 if found["finished"] and all(good for good, _ in found["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
