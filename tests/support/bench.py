"""`python -m support.bench`, run by `make bench-all`: judges everything that measures, and makes the report.

Sessions of pytest run what has no verdict yet, at most ATTEMPTS of them: a test that missed its goal while the machine
was disturbed is tried again, and at last reported as not judged, with the reason. Exit status: 0 all goals met; 1 some
missed; 2 none missed, some not judged; 3 it could not be run, or cannot go on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from chart_lab.experiments import noise
from support.figures import MET, MISSED, NOT_JUDGED

ATTEMPTS = 3
RESULTS = "results.jsonl"
TESTS_FAILED, NO_TESTS_LEFT = 1, 5


def revision() -> str:
    """The commit, and whether anything differs from it."""
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout.strip()


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Of every test that was selected the last that was found, in the order of the tests."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        told = json.loads(line)
        for test in told.get("selected", ()):
            found.setdefault(test, {"test": test, "verdict": NOT_JUDGED, "why": "not run", "figures": []})
        if "test" in told:
            found[told["test"]] = told
    return found


def report(found: dict[str, dict[str, Any]], code: str) -> dict[str, Any]:
    """The figures as every report of the project has them, and the verdict on every test."""
    return {
        "command": "make bench-all",
        "figures": [
            {
                **{key: figure[key] for key in ("value", "unit", "goal", "peer")},
                "name": f"{test}: {figure['name']}",
                "verdict": (MET if figure["met"] else one["verdict"]),
            }
            for test, one in found.items()
            for figure in one["figures"]
        ],
        "checks": [{key: one[key] for key in ("test", "verdict", "why")} for one in found.values()],
        "details": {"code": code, **{word: count(found, word) for word in (MET, MISSED, NOT_JUDGED)}},
    }


def count(found: dict[str, dict[str, Any]], verdict: str) -> int:
    """How many tests have this verdict."""
    return sum(one["verdict"] == verdict for one in found.values())


def table(found: dict[str, dict[str, Any]]) -> str:
    """A line for every test, below it its figures."""
    lines = []
    for test, one in found.items():
        lines.append(f"{one['verdict']:<10}  {test}" + (f"\n            {one['why']}" if one["why"] else ""))
        lines += [
            f"            {figure['name']}: {figure['value']:g} {figure['unit']} (goal {figure['goal']})"
            for figure in one["figures"]
        ]
    lines.append("bench: " + ", ".join(f"{count(found, word)} {word}" for word in (MET, MISSED, NOT_JUDGED)))
    return "\n".join(lines)


def measure(results: Path, code: str, tests: list[str]) -> bool:
    """Run what has no verdict until all has one, or the attempts are used up; False when pytest cannot run it."""
    results.open("a").write(json.dumps({"code": code}) + "\n")
    for attempt in range(1, ATTEMPTS + 1):
        if attempt > 1:
            noise.await_quiet()
        command = [sys.executable, "-m", "pytest", "--bench", str(results), "-p", "no:cacheprovider", *tests]
        status = subprocess.run(command, check=False).returncode
        if status not in (0, TESTS_FAILED, NO_TESTS_LEFT):
            return False
        if count(read(results), NOT_JUDGED) == 0:
            return True
        print(f"bench: attempt {attempt} of {ATTEMPTS}: {count(read(results), NOT_JUDGED)} not judged", flush=True)
    return True


def main() -> int:
    """Judge what `make bench-all` judges; the exit status is its verdict."""
    parser = argparse.ArgumentParser(prog="support.bench", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of report.json")
    parser.add_argument("--resume", action="store_true", help="go on where it stopped, at the same state of the code")
    parser.add_argument("tests", nargs="*", help="files or tests; all of the project when none is named")
    arguments = parser.parse_args()
    results: Path = arguments.out / RESULTS
    arguments.out.mkdir(parents=True, exist_ok=True)
    code = revision()
    if not arguments.resume:
        results.unlink(missing_ok=True)
    elif results.exists() and json.loads(results.read_text().partition("\n")[0])["code"] != code:
        print(f"bench: {results} is of another state of the code: begin anew, without RESUME=1", file=sys.stderr)
        return 3
    ran = False
    try:
        ran = measure(results, code, arguments.tests)
    finally:
        found = read(results)
        (arguments.out / "report.json").write_text(json.dumps(report(found, code), indent=1) + "\n")
        print(table(found))
    if not ran or not found:
        print("bench: pytest could not run all of it, see above", file=sys.stderr)
        return 3
    if count(found, MISSED):
        return 1
    return 2 if count(found, NOT_JUDGED) else 0


if __name__ == "__main__":
    sys.exit(main())
