"""The plugins that count and judge cannot be fooled: a skip off the list fails, a goal is judged where it should be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import bench, stages
from support.figures import MET, MISSED, NOT_JUDGED, STEAL_LIMIT_CORES, Figures, judge
from support.skips import Allowed

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = [word for name in ("skips", "counting", "figures") for word in ("-p", f"support.{name}")]
# Without the plugins of others, whose import takes seconds.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
QUIET, DISTURBED = 0.0, 10 * STEAL_LIMIT_CORES

SKIPPING = """
import pytest

def test_good():
    pass

def test_bad():
    assert False

def test_allowed():
    pytest.skip("no ship: none in the harbour")

@pytest.mark.skip("just so")
def test_off_the_list():
    pass

@pytest.fixture
def lazy():
    pytest.skip("no ship, says a fixture")

def test_of_a_fixture(lazy):
    pass
"""
SKIPS = r"""
skips:
  - tests: test_it\.py::test_(allowed|of_a_fixture)
    reason: no ship
    why: there is no harbour
"""
MEASURING = """
import pytest
from pathlib import Path

def test_of_function():
    pass

def test_measures(figures):
    figures.at_most("slow", 3, 2, "s", sound=60)

@pytest.mark.timed
def test_compares(figures):
    figures.at_least("ahead", 1.5, 1, "ratio", sound=None, peer="bbr")

@pytest.mark.timed
def test_disturbed(figures):
    figures.disturbed("others used 2 cores")
    figures.within("share", 0.5, (0.9, 1.1), "ratio", sound=None)

@pytest.mark.timed
def test_broken():
    raise OSError("no such device")
"""


def session(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    timed: compares\n")
    (folder / "test_it.py").write_text(text)
    (folder / "skips.yaml").write_text(SKIPS)
    command = [sys.executable, "-m", "pytest", *PLUGINS, "--skips", "skips.yaml", "-q", "-rf", *options]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "xdist"])
def test_a_skip_off_the_list_fails(tmp_path: Path, workers: tuple[str, ...]) -> None:
    ended = session(tmp_path, SKIPPING, "--count-into", "counted.json", *workers)
    assert ended.returncode == 1
    assert "skipped, and not on the list skips.yaml: just so" in ended.stdout
    counted = stages.of_pytest(json.loads((tmp_path / "counted.json").read_text()))
    assert counted.passed == 1
    assert set(counted.failed) == {"test_it.py::test_bad", "test_it.py::test_off_the_list"}
    assert counted.skipped == {
        "test_it.py::test_allowed": "no ship: none in the harbour",
        "test_it.py::test_of_a_fixture": "no ship, says a fixture",
    }
    assert counted.repeated == []


def test_a_module_that_skips_itself_is_no_exception(tmp_path: Path) -> None:
    text = 'import pytest\npytest.skip("not today", allow_module_level=True)\n'
    ended = session(tmp_path, text, "--count-into", "counted.json")
    assert ended.returncode != 0
    assert json.loads((tmp_path / "counted.json").read_text())["failed"] == 1


def test_repetitions_are_counted(tmp_path: Path) -> None:
    flaky = (
        "from pathlib import Path\n\n"
        "def test_steady():\n    pass\n\n"
        'def test_second_time():\n    seen = Path("seen")\n    assert seen.exists() or seen.write_text("") is None\n\n'
    ).replace('or seen.write_text("") is None', 'or seen.write_text("")')
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(flaky)
    # Without its pause between the sessions.
    quick = (ROOT / "tools/pytest-again").read_text().replace("sleep 10", "sleep 0")
    command = ["sh", "-c", quick, "pytest-again", "2", sys.executable, "-m", "pytest", *PLUGINS]
    command += ["--count-into", "counted.json"]
    ended = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    counted = stages.of_pytest(json.loads((tmp_path / "counted.json").read_text()))
    assert (counted.passed, counted.failed, counted.repeated) == (2, [], ["test_it.py::test_second_time"])


def test_without_bench_no_goal_is_judged_and_nothing_only_compares(tmp_path: Path) -> None:
    ended = session(tmp_path, MEASURING, "--count-into", "counted.json")
    assert ended.returncode == 0, ended.stdout
    told = json.loads((tmp_path / "counted.json").read_text())
    assert told["outcomes"] == {"test_it.py::test_of_function": "passed", "test_it.py::test_measures": "passed"}
    assert told["skipped"] == 0


def test_what_no_machine_excuses_fails_without_bench(tmp_path: Path) -> None:
    text = 'def test_it(figures):\n    figures.at_most("slow", 99, 2, "s", sound=60)\n'
    ended = session(tmp_path, text)
    assert ended.returncode == 1
    assert "more than 60 on any machine" in ended.stdout


def test_bench_judges_everything_that_measures_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    assert session(tmp_path, MEASURING, "--bench", "results.jsonl").returncode == 1
    found = bench.read(tmp_path / "results.jsonl")
    verdicts = {test.partition("::")[2]: one["verdict"] for test, one in found.items()}
    # A machine that takes the processor away here leaves the two that miss without a verdict.
    assert verdicts.pop("test_measures") in (MISSED, NOT_JUDGED)
    assert verdicts.pop("test_broken") in (MISSED, NOT_JUDGED)
    assert verdicts == {"test_compares": MET, "test_disturbed": NOT_JUDGED}
    assert "others used 2 cores" in found["test_it.py::test_disturbed"]["why"]
    again = session(tmp_path, MEASURING, "--bench", "results.jsonl", "-v")
    assert "test_disturbed" in again.stdout
    assert "test_compares" not in again.stdout


def test_bench_does_not_pass_over_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import no_such_module\n")
    command = [sys.executable, "-m", "support.bench", "--out", str(tmp_path / "bench"), str(tmp_path / "test_it.py")]
    ended = subprocess.run(
        [*command, "--resume"], cwd=ROOT, env=dict(ENVIRONMENT), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 3, ended.stdout
    assert json.loads((tmp_path / "bench/report.json").read_text())["checks"] == []


def measured(value: float) -> Figures:
    figures = Figures()
    figures.at_most("slow", value, 2, "s", sound=None)
    return figures


@pytest.mark.parametrize(
    ("value", "error", "stolen_cores", "verdict"),
    [
        (1, None, QUIET, MET),
        (1, None, DISTURBED, MET),
        (3, None, QUIET, MISSED),
        (3, None, DISTURBED, NOT_JUDGED),
        (1, AssertionError("no flow"), QUIET, MISSED),
        (1, AssertionError("no flow"), DISTURBED, NOT_JUDGED),
    ],
)
def test_only_a_disturbed_machine_excuses_a_miss(
    value: float, error: BaseException | None, stolen_cores: float, verdict: str
) -> None:
    assert judge(measured(value), error, stolen_cores)[0] == verdict


def test_the_report_of_bench_has_every_figure_and_every_verdict(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"code": "c"},
        {"selected": ["a", "b", "c"]},
        {"test": "a", "verdict": NOT_JUDGED, "why": "the hypervisor took 0.120 cores", "figures": []},
        {
            "test": "a",
            "verdict": MET,
            "why": "",
            "figures": [{"name": "x", "value": 1.0, "unit": "s", "goal": "<= 2", "peer": None, "met": True}],
        },
        {"test": "b", "verdict": MISSED, "why": "x 3 s, goal <= 2", "figures": []},
    ]
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = bench.read(path)
    made = bench.report(found, "c")
    assert made["figures"] == [
        {"name": "a: x", "value": 1.0, "unit": "s", "goal": "<= 2", "peer": None, "verdict": MET}
    ]
    assert [(one["test"], one["verdict"], one["why"]) for one in made["checks"]] == [
        ("a", MET, ""),
        ("b", MISSED, "x 3 s, goal <= 2"),
        ("c", NOT_JUDGED, "not run"),
    ]
    assert bench.table(found).splitlines()[-1] == "bench: 1 met, 1 missed, 1 not judged"


def test_output_of_other_runners_is_counted() -> None:
    assert stages.of_line("[  PASSED  ] 12 test(s).\n").passed == 12
    assert len(stages.of_line("[  FAILED  ] 2 test(s), listed below:\n").failed) == 2
    probe = stages.of_line("qos_probe: skipped: loading a BPF program needs root\n")
    assert probe.skipped == {"qos_probe": "loading a BPF program needs root"}
    assert stages.of_line("simulated 200 seeds with 4 commits in 3 s: no rule broken\n").passed == 200
    broken = stages.of_line("simulated 200 seeds with 4 commits in 3 s: {'over': 1}\n")
    assert (broken.passed, broken.failed) == (199, ["simulation: {'over': 1}"])
    vitest = {
        "testResults": [
            {
                "name": "/x/a.test.ts",
                "status": "failed",
                "assertionResults": [
                    {"fullName": "adds", "status": "passed"},
                    {"fullName": "takes", "status": "failed"},
                    {"fullName": "waits", "status": "pending"},
                ],
            },
            {"name": "/x/b.test.ts", "status": "failed", "assertionResults": []},
        ]
    }
    counts = stages.of_vitest(vitest)
    assert (counts.passed, counts.failed) == (1, ["a.test.ts: takes", "b.test.ts"])
    assert counts.skipped == {"a.test.ts: waits": "pending"}

    def spec(title: str, status: str, results: int) -> dict[str, Any]:
        return {"title": title, "tests": [{"status": status, "results": [{}] * results}]}

    specs = [spec("opens", "expected", 1), spec("moves", "flaky", 2), spec("ends", "unexpected", 3)]
    counts = stages.of_playwright({"suites": [{"title": "d.spec.ts", "specs": specs}]})
    assert counts.passed == 2
    assert counts.failed == ["d.spec.ts: ends"]
    assert counts.repeated == ["d.spec.ts: moves", "d.spec.ts: ends"]


def test_a_skip_of_any_runner_is_on_the_list_or_fails() -> None:
    counts = stages.of_line("[  SKIPPED ] 1 test(s), listed below:\n")
    assert len(counts.skipped) == 1
    counts.skipped["tests/test_it.py::test_y"] = "no ship"
    stages.refuse_skips(counts, (Allowed(r"tests/test_it\.py::.*", "no ship", "there is no harbour"),))
    assert list(counts.skipped) == ["tests/test_it.py::test_y"]
    assert len(counts.failed) == 1


def test_the_report_counts_every_stage_and_ends_in_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    contract = stages.Counts(30, [], ["tests/test_it.py::test_x[1]"], {"tests/test_it.py::test_y": "no ship"}, 20.0)
    made = stages.report(
        {"unit": stages.Counts(100, ["tests/test_it.py::test_z"], duration_s=10.0), "contract": contract}
    )
    figures = {one["name"]: (one["value"], one["goal"]) for one in made["figures"]}
    assert figures["passed"] == (130, None)
    assert figures["failed"] == (1, "<= 0")
    assert figures["repeated"] == (1, "<= 20")
    assert figures["skipped"] == (1, "<= 25")
    assert figures["duration_s"] == (30.0, "<= 1800")
    assert figures["passed/stage=unit"] == (100, None)
    stages.tell(made)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "test: 130 passed, 1 failed, 1 skipped"
    assert "failed: tests/test_it.py::test_z" in lines
    assert any("no ship" in line for line in lines)
    assert any(line.startswith("repeated: tests/test_it.py::test_x[1]") for line in lines)


def test_what_was_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages.left_out(tmp_path, [])
    assert capsys.readouterr().out == "left out: nothing\n"
    part = tmp_path / "parts/contract/contract-python.pytest.json"
    part.parent.mkdir(parents=True)
    part.write_text(json.dumps({"passed": 1, "outcomes": {}, "repeated": [], "reasons": {"a.py::b": "no ship"}}))
    (tmp_path / "left-out").write_text("make images: no container engine answers\n")
    stages.left_out(tmp_path, ["helm-test"])
    assert capsys.readouterr().out.splitlines() == [
        "left out:",
        "skipped: 1 of a.py: no ship",
        "make images: no container engine answers",
        "make helm-test: not part of it, run it by itself",
    ]


def test_repetitions_since_the_last_mending_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "repeated.yaml"
    path.write_text("# What this is.\ntests:\n  a::b: {cause: x, mended: '2026-01-02', repeated: ['2026-01-01']}\n")
    monkeypatch.setattr(stages, "REPEATED", path)
    stages.record(["a::b[1]", "a::b[2]", "a::new"], "2026-01-03")
    known = stages.known_repetitions()
    assert stages.open_repetitions(known["a::b"]) == 2
    assert known["a::new"] == {"cause": "not known", "repeated": ["2026-01-03"]}
    assert path.read_text().startswith("# What this is.\n")
