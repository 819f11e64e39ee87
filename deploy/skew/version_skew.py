"""`make version-skew`: agents of the previous version with this platform, and the reverse, under load.

The previous version is the commit that the file `previous` names; it is built in a folder of its own. Each direction
brings up a whole platform of one version with nodes whose agents are of the other (trial.py): enrolment, grants, rates
agreed in band, records; an upgrade and a rollback of the agents while flows run. Exit status 1 when a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report_file import replace_figures

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PREVIOUS = HERE / "previous"
COMMAND = "make version-skew"
BUILD_LIMIT_S = 900
TRIAL_LIMIT_S = 600
# Folders that Python is to find before those of the environment.
SOURCES = ("services", "lab", "clients/python")
AGENT = "dataplane/chart-agent"


class SkewError(RuntimeError):
    """Why the previous version cannot be had."""


@dataclass(frozen=True)
class Version:
    """One version: its sources and its programs."""

    tree: Path
    build: Path


def say(text: str) -> None:
    """Progress."""
    sys.stderr.write(f"skew: {text}\n")
    sys.stderr.flush()


def previous_commit(text: str) -> str:
    """The commit that the file names."""
    found = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if len(found) != 1 or not re.fullmatch(r"[0-9a-f]{40}", found[0]):
        raise SkewError(f"{PREVIOUS.name}: one commit of 40 hexadecimal digits is wanted")
    return found[0]


def run(command: list[str], folder: Path, limit_s: float = BUILD_LIMIT_S, **more: Any) -> None:
    """A command that must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False, **more)
    if done.returncode:
        raise SkewError(f"{' '.join(command[:6])}: {(done.stderr or done.stdout).strip()[-600:]}")


def unpack(commit: str, tree: Path) -> None:
    """The sources of a commit."""
    if subprocess.run(["git", "-C", ROOT, "cat-file", "-e", f"{commit}^{{commit}}"], check=False).returncode:
        raise SkewError(f"this clone does not have the commit {commit}: git fetch --unshallow")
    tree.mkdir(parents=True)
    archive = tree.with_suffix(".tar")
    run(["git", "archive", "-o", str(archive), commit], ROOT)
    run(["tar", "-xf", str(archive), "-C", str(tree)], ROOT)
    archive.unlink()


def make_previous(folder: Path, build: Path) -> Version:
    """The previous version, built once: services, agent, tunnel and proxy are its own; broker, sensors and the lab's
    tools are this version's.
    """
    commit = previous_commit(PREVIOUS.read_text())
    version = Version(folder / commit / "tree", folder / commit / "build")
    if (folder / commit / "made").exists():
        return version
    say(f"building {commit[:10]}")
    shutil.rmtree(folder / commit, ignore_errors=True)
    unpack(commit, version.tree)
    (version.build / "gen").mkdir(parents=True)
    protocol = sorted(str(one.relative_to(version.tree)) for one in version.tree.glob("proto/chart/v1/*.proto"))
    streams = [one for one in protocol if not re.search(r"^service ", (version.tree / one).read_text(), re.M)]
    (version.tree / "services" / "chart" / "v1").mkdir(exist_ok=True)
    (version.tree / "services" / "chart" / "v1" / "__init__.py").touch()
    python = [sys.executable, "-m", "grpc_tools.protoc", "-I", "proto", "--python_out=services"]
    run([*python, "--grpc_python_out=services", *protocol], version.tree)
    run(["protoc-c", "-I", "proto", f"--c_out={version.build / 'gen'}", *streams], version.tree)
    for part in ("dataplane", "dataplane/tunnel", "dataplane/proxy"):
        run(["make", "-C", part, f"BUILD={version.build}", "all"], version.tree)
    (version.build / "allocator").mkdir()
    loads = ["gcc", "-std=gnu11", "-O2", "-fPIC", "-shared", "-o", str(version.build / "allocator" / "libloads.so")]
    run([*loads, "dataplane/lib/loads/loads.c"], version.tree)
    fill(version.build, build)
    (folder / commit / "made").touch()
    return version


def fill(target: Path, source: Path) -> None:
    """Links for what a folder of programs lacks and another has."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        if not (target / entry.name).exists():
            (target / entry.name).symlink_to(entry)


def with_agent_link(folder: Path, programs: Path) -> Path:
    """A folder of the same programs in which chart-agent is a link that can be changed."""
    shutil.rmtree(folder, ignore_errors=True)
    fill(folder / "dataplane", programs / "dataplane")
    fill(folder, programs)
    return folder


def try_direction(name: str, platform: Version, agents: Version, folder: Path) -> list[dict[str, Any]]:
    """What trial.py found of a platform with the agents of another version."""
    programs = with_agent_link(folder / name, platform.build)
    environment = {
        **os.environ,
        "CHART_BUILD_DIR": str(programs),
        "PYTHONPATH": os.pathsep.join(str(platform.tree / part) for part in SOURCES),
    }
    command = [sys.executable, str(HERE / "trial.py"), "--agent", str(programs / AGENT)]
    command += ["--other", str(agents.build / AGENT), "--own", str(platform.build / AGENT)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=TRIAL_LIMIT_S, check=False, cwd=folder, env=environment
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode and all(one["good"] for one in found):
        found.append({"check": "end", "good": False, "detail": f"the trial ended with {done.returncode}"})
    for one in found:
        say(f"  {'ok    ' if one['good'] else 'FAILED'} {name} {one['check']}: {one['detail']}")
    return found


def figures_of(found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The report's figures."""

    def figure(name: str, value: float, goal: str) -> dict[str, Any]:
        return {"name": name, "value": value, "unit": "checks", "goal": goal, "peer": None}

    checks = [(direction, one) for direction, ones in found.items() for one in ones]
    failed = sum(not one["good"] for _, one in checks)
    made = [figure("skew_tried", len(checks), ">= 20"), figure("skew_failures", failed, "<= 0")]
    return made + [
        figure(f"skew/platform={direction}/check={one['check']}", float(one["good"]), ">= 1")
        for direction, one in checks
    ]


def main() -> int:
    """Exit status 0 when every check holds in both directions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="folder of built programs")
    parser.add_argument("--report", type=Path, required=True, help="report.json to write into")
    options = parser.parse_args()
    folder = options.build / "skew"
    try:
        previous, this = make_previous(folder, options.build), Version(ROOT, options.build)
    except (SkewError, subprocess.TimeoutExpired) as error:
        say(str(error))
        return 2
    found = {
        "this": try_direction("this", this, previous, folder),
        "previous": try_direction("previous", previous, this, folder),
    }
    replace_figures(options.report, COMMAND, lambda name: name.startswith("skew"), {"figures": figures_of(found)})
    return 0 if all(one["good"] for ones in found.values() for one in ones) else 1


if __name__ == "__main__":
    sys.exit(main())
