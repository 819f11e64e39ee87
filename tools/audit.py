"""`make lint-dependencies`: known weaknesses of what the locks name, asked of the advisory databases.

Every lock is asked about each time: Python's by pip-audit, npm's by npm audit, Go modules by govulncheck. A line per
lock says which tool asked about how many packages, what is known, and what stayed unasked and why. A database that
cannot be reached is told loudly and fails nothing. A weakness of what ships fails, one of what only tests and builds
use is told. `tools/accepted-weaknesses.txt` lists those that are known and borne, each with its reason.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ACCEPTED = ROOT / "tools" / "accepted-weaknesses.txt"
ANSWER_LIMIT_S = 300
# Whether what the lock names is part of what an operator runs.
PYTHON_LOCKS = {
    "services/requirements.txt": True,
    "services/requirements-analysis.txt": True,
    "services/requirements-pod.txt": True,
    "services/requirements-build.txt": False,
    "tests/requirements.txt": False,
}
GO_MODULES = ("deploy/kubernetes", "deploy/vault")
NPM_GRAVE = ("high", "critical")


@dataclass(frozen=True)
class Weakness:
    """One advisory about one package."""

    package: str
    identifiers: frozenset[str]

    def __str__(self) -> str:
        return f"{self.package} ({', '.join(sorted(self.identifiers))})"


@dataclass
class Answer:
    """What a tool said about one lock."""

    lock: str
    tool: str
    ships: bool
    packages: int = 0
    weaknesses: list[Weakness] = field(default_factory=list)
    # What nobody answered for, and why; all of it when `unasked` equals `packages`.
    unasked: int = 0
    reason: str = ""

    def line(self) -> str:
        """The answer as `make lint` prints it."""
        head = f"audit: {self.lock}, {self.tool}: "
        found = f"WEAK: {'; '.join(map(str, self.weaknesses))}" if self.weaknesses else "nothing known"
        if not self.reason:
            return f"{head}{self.packages} packages, {found}"
        unasked = f"NOT AUDITED: {self.unasked} of {self.packages} packages: {self.reason}"
        return f"{head}{unasked}" if self.unasked == self.packages else f"{head}{found}; {unasked}"


def last_line(text: str, fallback: str) -> str:
    """Where programs put the reason of a failure."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else fallback


def pins(lock: str) -> set[str]:
    """The names of a Python lock."""
    return set(re.findall(r"^([a-z0-9-]+)(?:\[[^]]*\])?==", lock, re.MULTILINE))


def read_pip_audit(report: str, complaint: str, locks: dict[str, str]) -> Iterator[Answer]:
    """One run of pip-audit over all Python locks, lock by lock; `locks` are their texts."""
    try:
        dependencies = {one["name"]: one for one in json.loads(report)["dependencies"]}
    except (ValueError, KeyError):
        dependencies = {}
    for name, text in locks.items():
        answer = Answer(name, "pip-audit", PYTHON_LOCKS.get(name, True))
        named = pins(text)
        answer.packages = len(named)
        for package in sorted(named):
            found = dependencies.get(package, {"skip_reason": last_line(complaint, "pip-audit gave no report")})
            if "skip_reason" in found:
                answer.unasked += 1
                answer.reason = answer.reason or found["skip_reason"]
            for one in found.get("vulns", ()):
                answer.weaknesses.append(Weakness(package, frozenset([one["id"], *one.get("aliases", ())])))
        yield answer


def read_npm_audit(report: str, lock: str, packages: int, *, ships: bool) -> Answer:
    """The report of `npm audit`; only weaknesses of high and critical severity count."""
    answer = Answer(lock, "npm audit", ships, packages)
    try:
        told: dict[str, Any] = json.loads(report)
    except ValueError:
        told = {}
    if "vulnerabilities" not in told:
        answer.unasked, answer.reason = packages, told.get("message", "npm audit gave no report")
        return answer
    for package, found in sorted(told["vulnerabilities"].items()):
        if found["severity"] in NPM_GRAVE:
            advisories = [str(via["url"]).rpartition("/")[2] for via in found["via"] if isinstance(via, dict)]
            # Without one of its own the package is weak by another one, which has an entry itself.
            if advisories:
                answer.weaknesses.append(Weakness(package, frozenset(advisories)))
    return answer


def json_values(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a text that holds one after the other."""
    decoder, position = json.JSONDecoder(), 0
    while (start := text.find("{", position)) >= 0:
        value, position = decoder.raw_decode(text, start)
        yield value


def read_govulncheck(report: str, complaint: str, lock: str, *, failed: bool) -> Answer:
    """The stream of objects that `govulncheck -scan module -format json` writes."""
    answer = Answer(lock, "govulncheck", ships=False)
    found: dict[str, set[str]] = {}
    for value in json_values(report):
        answer.packages = len(value.get("SBOM", {}).get("modules", ())) or answer.packages
        if "finding" in value:
            found.setdefault(value["finding"]["trace"][0]["module"], set()).add(value["finding"]["osv"])
    if failed:
        answer.unasked, answer.reason = answer.packages, last_line(complaint, "govulncheck gave no report")
    answer.weaknesses = [
        Weakness(module, frozenset([one])) for module, advisories in sorted(found.items()) for one in sorted(advisories)
    ]
    return answer


def ask(*command: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a tool; one that hangs or is not there counts as one that failed with that reason."""
    try:
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=ANSWER_LIMIT_S,
            env={**os.environ, **environment},
        )  # fmt: skip
    except (subprocess.TimeoutExpired, FileNotFoundError) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def ask_python() -> Iterator[Answer]:
    """All Python locks in one run: they name mostly the same packages."""
    locks = {name: (ROOT / name).read_text(encoding="utf-8") for name in PYTHON_LOCKS}
    files = [word for name in locks for word in ("-r", name)]
    audit = (sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off")
    done = ask(*audit, "--format", "json", *files)
    yield from read_pip_audit(done.stdout, done.stderr, locks)


def ask_npm() -> Iterator[Answer]:
    """The dashboard as it ships, what builds and tests it, and the database of the contract tests."""
    for folder, ships in (("web", True), ("web", False), ("deploy/timescale", False)):
        locked = json.loads((ROOT / folder / "package-lock.json").read_text(encoding="utf-8"))["packages"]
        packages = sum(bool(path) and not (ships and entry.get("dev")) for path, entry in locked.items())
        command = ["npm", "audit", "--json", "--package-lock-only", *(["--omit=dev"] if ships else [])]
        part = " as it ships" if ships else ""
        yield read_npm_audit(ask(*command, folder=ROOT / folder).stdout, f"{folder}{part}", packages, ships=ships)


def ask_go(govulncheck: str) -> Iterator[Answer]:
    """Programs that tests build of published modules. In copies: a go.sum that is not kept is made on the way."""
    for name in GO_MODULES:
        with tempfile.TemporaryDirectory(prefix="chart-audit-") as folder:
            for path in (ROOT / name).glob("*.*"):
                if path.name in ("go.mod", "go.sum", "main.go"):
                    shutil.copy(path, folder)
            done = ask(govulncheck, "-scan", "module", "-format", "json", folder=Path(folder), GOFLAGS="-mod=mod")
        yield read_govulncheck(done.stdout, done.stderr, name, failed=done.returncode != 0)


def accepted(text: str) -> set[str]:
    """The identifiers of a list of `IDENTIFIER REASON` lines.

    Raises:
        ValueError: a line without a reason.
    """
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if bare := [line[0] for line in lines if len(line) < 2]:
        msg = f"accepted without a reason: {', '.join(bare)}"
        raise ValueError(msg)
    return {line[0] for line in lines}


def judge(answers: list[Answer], borne: set[str]) -> bool:
    """Drops what is borne from the answers; whether what ships is without a weakness then."""
    for answer in answers:
        answer.weaknesses = [weak for weak in answer.weaknesses if not weak.identifiers & borne]
    return not any(answer.ships and answer.weaknesses for answer in answers)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--govulncheck", default="govulncheck", help="the program (default: the one on the PATH)")
    arguments = parser.parse_args()
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(list, answers) for answers in (ask_python(), ask_npm(), ask_go(arguments.govulncheck))]
    answers = [answer for one in asked for answer in one.result()]
    sound = judge(answers, accepted(ACCEPTED.read_text(encoding="utf-8")))
    for answer in answers:
        sys.stdout.write(answer.line() + "\n")
    if any(answer.reason for answer in answers):
        sys.stdout.write("audit: WARNING: an advisory database did not answer, see NOT AUDITED above\n")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
