"""`python -m support.stages STAGE...`, run by `make test`: every stage, also after one that failed, and the report.

What was run is counted where it is known: pytest, vitest and Playwright leave files below var/test/parts/STAGE, the
programs of cmocka and the simulation say it in their output. A stage that fails without a test that failed, such as a
lint, counts as one failure. `--left-out` prints what the last run did not try, and why; `--record DATE` adds what it
repeated to tests/repeated.yaml, which no run changes by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from support import skips

ROOT = Path(__file__).resolve().parents[2]
REPEATED = ROOT / "tests" / "repeated.yaml"
REPEATED_GOAL, SKIPPED_GOAL, DURATION_GOAL_S = 20, 25, 1800
# Whoever finds a test with so many repetitions that nobody has mended mends it.
REPETITIONS_TO_MEND = 3
CMOCKA = re.compile(r"\[  (PASSED|FAILED|SKIPPED) +\] (\d+) test\(s\)")
# A program that could not try what it is for: `qos_probe: skipped: loading a BPF program needs root`.
SKIPPED = re.compile(r"([\w-]+): skipped: (.+)$")
SIMULATED = re.compile(r"simulated (\d+) seeds with .*: (no rule broken|\{.*\})$")


@dataclass
class Counts:
    """What a stage ran; of the tests that did not simply pass, their names."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    duration_s: float = 0.0

    def add(self, other: Counts) -> None:
        """Take another's tests into this one."""
        self.passed += other.passed
        self.failed += other.failed
        self.repeated += other.repeated
        self.skipped |= other.skipped
        self.duration_s += other.duration_s

    def summary(self) -> dict[str, Any]:
        """As numbers."""
        numbers = {name: len(getattr(self, name)) for name in ("failed", "repeated", "skipped")}
        return {"passed": self.passed, **numbers, "duration_s": round(self.duration_s, 1)}


def of_pytest(told: dict[str, Any]) -> Counts:
    """What support.counting has written."""
    failed = [test for test, outcome in told["outcomes"].items() if outcome == "failed"]
    return Counts(told["passed"], failed, told["repeated"], told["reasons"])


def of_vitest(told: dict[str, Any]) -> Counts:
    """The JSON report of vitest."""
    counts = Counts()
    for file in told["testResults"]:
        name = Path(file["name"]).name
        if file["status"] == "failed" and not file["assertionResults"]:
            counts.failed.append(name)
        for one in file["assertionResults"]:
            test = f"{name}: {one['fullName']}"
            if one["status"] == "passed":
                counts.passed += 1
            elif one["status"] == "failed":
                counts.failed.append(test)
            else:
                counts.skipped[test] = one["status"]
    return counts


def of_playwright(told: dict[str, Any]) -> Counts:
    """The JSON report of Playwright; what passed at a repetition is called flaky there."""
    counts = Counts(failed=[error["message"].partition("\n")[0] for error in told.get("errors", [])])

    def walk(suite: dict[str, Any], path: str) -> None:
        for inner in suite.get("suites", []):
            walk(inner, f"{path}{inner['title']}: ")
        for spec in suite.get("specs", []):
            name = path + spec["title"]
            for test in spec["tests"]:
                if test["status"] == "skipped":
                    told_why = [note.get("description", "") for note in test.get("annotations", [])]
                    counts.skipped[name] = "; ".join(filter(None, told_why)) or "no reason given"
                elif test["status"] == "unexpected":
                    counts.failed.append(name)
                else:
                    counts.passed += 1
                if len(test["results"]) > 1:
                    counts.repeated.append(name)

    walk({"suites": told["suites"]}, "")
    return counts


READERS = {".pytest.json": of_pytest, ".vitest.json": of_vitest, ".playwright.json": of_playwright}


def of_line(line: str) -> Counts:
    """A line of output that says how many tests there were."""
    if found := CMOCKA.search(line):
        word, number = found[1], int(found[2])
        names = [f"cmocka: {line.strip()} ({index})" for index in range(1, number + 1)]
        if word == "PASSED":
            return Counts(number)
        return Counts(failed=names) if word == "FAILED" else Counts(skipped=dict.fromkeys(names, "see its output"))
    if found := SKIPPED.match(line.rstrip()):
        return Counts(skipped={found[1]: found[2]})
    if found := SIMULATED.search(line.rstrip()):
        broken = found[2] != "no rule broken"
        return Counts(int(found[1]) - broken, [f"simulation: {found[2]}"] if broken else [])
    return Counts()


def of_parts(folder: Path) -> Counts:
    """What the runners have left in a stage's folder."""
    counts = Counts()
    for path in sorted(folder.glob("*.json")):
        reader = next((reader for ending, reader in READERS.items() if path.name.endswith(ending)), None)
        if reader is not None:
            counts.add(reader(json.loads(path.read_text())))
    return counts


def run(stage: str, out: Path) -> Counts:
    """Run a stage, showing and keeping its output."""
    parts, began, counts = out / "parts" / stage, time.monotonic(), Counts()
    command = [os.environ.get("MAKE", "make"), "-k", stage, f"TEST_PARTS={parts}"]
    print(f"test: {stage}", flush=True)
    with (
        (out / f"{stage}.log").open("w") as log,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            log.write(line)
            counts.add(of_line(line))
    counts.add(of_parts(parts))
    refuse_skips(counts, skips.read(skips.LIST))
    if process.returncode != 0 and not counts.failed:
        counts.failed.append(f"make {stage}: exit status {process.returncode}, see {log.name}")
    counts.duration_s = time.monotonic() - began
    return counts


def refuse_skips(counts: Counts, allowed: tuple[skips.Allowed, ...]) -> None:
    """A skip of any runner that is not on the list is a failure."""
    for test, reason in list(counts.skipped.items()):
        if not any(entry.allows(test, reason) for entry in allowed):
            del counts.skipped[test]
            counts.failed.append(f"{test}: skipped, and not on the list {skips.LIST.name}: {reason}")


def figure(name: str, value: float, unit: str, goal: int | None) -> dict[str, Any]:
    """One number as every report of the project has it."""
    told = None if goal is None else f"<= {goal}"
    return {"name": name, "value": value, "unit": unit, "goal": told, "peer": None}


def report(stages: dict[str, Counts]) -> dict[str, Any]:
    """Every number in sum and per stage, and the names behind them."""
    total = Counts()
    for counts in stages.values():
        total.add(counts)
    figures = []
    for name, counts in {"": total, **stages}.items():
        goals = (0, REPEATED_GOAL, SKIPPED_GOAL, DURATION_GOAL_S) if not name else (0, None, None, None)
        numbers, suffix = counts.summary(), f"/stage={name}" if name else ""
        figures.append(figure(f"passed{suffix}", numbers["passed"], "tests", None))
        for key, goal in zip(("failed", "repeated", "skipped"), goals, strict=False):
            figures.append(figure(f"{key}{suffix}", numbers[key], "tests", goal))
        figures.append(figure(f"duration_s{suffix}", numbers["duration_s"], "s", goals[3]))
    return {
        "command": "make test",
        "figures": figures,
        "details": {
            "stages": {name: counts.summary() for name, counts in stages.items()},
            "failed": total.failed,
            "repeated": total.repeated,
            "skipped": [{"test": test, "reason": why} for test, why in total.skipped.items()],
        },
    }


def known_repetitions() -> dict[str, dict[str, Any]]:
    """The file of the repository: of every test that was ever repeated when, and what it was."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(REPEATED.read_text())["tests"]
    return found


def function_of(test: str) -> str:
    """A test's id without its parameters."""
    return test.partition("[")[0]


def open_repetitions(entry: dict[str, Any]) -> int:
    """How often a test was repeated since it was last mended."""
    return sum(str(day) > str(entry.get("mended", "")) for day in entry["repeated"])


def record(repeated: list[str], day: str) -> None:
    """Add repetitions to the file."""
    text, known = REPEATED.read_text(), known_repetitions()
    for test in map(function_of, repeated):
        known.setdefault(test, {"repeated": [], "cause": "not known"})["repeated"].append(day)
    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    REPEATED.write_text(head + yaml.safe_dump({"tests": known}, sort_keys=True, width=120, allow_unicode=True))


def tell(made: dict[str, Any]) -> None:
    """The end of the run, for whoever reads it."""
    details, known = made["details"], known_repetitions()
    print()
    for stage, one in details["stages"].items():
        told = ", ".join(f"{one[word]} {word}" for word in ("passed", "failed", "repeated", "skipped"))
        print(f"{stage:<10} {told}, {one['duration_s']:.0f} s")
    for test in details["failed"]:
        print(f"failed: {test}")
    print_left_out(made)
    for test in details["repeated"]:
        before = open_repetitions(known[function_of(test)]) if function_of(test) in known else 0
        mend = "; mend it now, or say in the file what was mended" if before + 1 >= REPETITIONS_TO_MEND else ""
        print(f"repeated: {test} (before: {before}{mend})")
    if details["repeated"]:
        print("repeated: `make record-repeated` adds them to tests/repeated.yaml")
    for one in made["figures"]:
        if one["goal"] and "/" not in one["name"] and one["value"] > int(one["goal"].removeprefix("<= ")):
            print(f"goal missed: {one['name']} {one['value']:g}, goal {one['goal']}")
    numbers = {one["name"]: one["value"] for one in made["figures"]}
    print(f"test: {numbers['passed']} passed, {numbers['failed']} failed, {numbers['skipped']} skipped", flush=True)


def print_left_out(made: dict[str, Any]) -> None:
    """Skipped tests by their reasons."""
    by_reason = defaultdict(list)
    for one in made["details"]["skipped"]:
        by_reason[one["reason"]].append(one["test"])
    for reason, tests in sorted(by_reason.items()):
        print(f"skipped: {len(tests)} of {tests[0].partition('::')[0]}{' and others' * (len(tests) > 1)}: {reason}")


def left_out(out: Path, apart: list[str]) -> None:
    """What `make verify-all` did not try: skipped tests of all its parts, what targets that could not run noted, and
    targets that are no part of it.
    """
    total = Counts()
    for folder in sorted((out / "parts").glob("*/")):
        total.add(of_parts(folder))
    noted = (out / "left-out").read_text().splitlines() if (out / "left-out").exists() else []
    noted += [f"make {target}: not part of it, run it by itself" for target in apart]
    print("left out:" if total.skipped or noted else "left out: nothing")
    print_left_out(report({"verify-all": total}))
    for line in noted:
        print(line)


def main() -> int:
    """Run stages, or tell of the last run; the exit status is that of the run."""
    parser = argparse.ArgumentParser(prog="support.stages", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of report.json")
    parser.add_argument("--left-out", action="store_true", help="print what was skipped, and why")
    parser.add_argument("--record", metavar="DATE", help="add what the last run repeated to tests/repeated.yaml")
    parser.add_argument("stages", nargs="*", help="with --left-out: targets that were not tried")
    arguments = parser.parse_args()
    out: Path = arguments.out.resolve()
    path = out / "report.json"
    if arguments.left_out:
        left_out(out, arguments.stages)
        return 0
    if arguments.record:
        record(json.loads(path.read_text())["details"]["repeated"], arguments.record)
        return 0
    shutil.rmtree(out / "parts", ignore_errors=True)
    (out / "left-out").unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    done: dict[str, Counts] = {}
    try:
        for stage in arguments.stages:
            done[stage] = run(stage, out)
    except KeyboardInterrupt:
        print("test: interrupted", file=sys.stderr)
    for stage in arguments.stages:
        done.setdefault(stage, Counts(failed=[f"make {stage}: not run to its end"]))
    made = report(done)
    path.write_text(json.dumps(made, indent=1) + "\n")
    tell(made)
    return 1 if made["details"]["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
