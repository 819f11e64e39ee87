"""What holds for the repository as a whole: portable, small, and its streams agree with its messages."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from support import stages

ROOT = Path(__file__).resolve().parents[1]


def tracked() -> list[Path]:
    """Files under version control."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def files() -> list[Path]:
    return tracked()


def test_no_file_is_large(files: list[Path]) -> None:
    assert [str(path) for path in files if path.stat().st_size > 1 << 20] == []


def test_lock_files_name_no_registry(files: list[Path]) -> None:
    for path in files:
        if path.name == "package-lock.json":
            assert '"resolved": "http' not in path.read_text(), f"{path} records download addresses"
        if re.fullmatch(r"requirements.*\.(txt|in)", path.name):
            text = path.read_text()
            assert "http://" not in text, path
            assert "https://" not in text, path
            assert "index-url" not in text, path


def test_python_locks_have_hashes(files: list[Path]) -> None:
    for path in files:
        if re.fullmatch(r"requirements.*\.txt", path.name):
            pins = re.findall(r"^[a-z0-9-]+(?:\[[a-z,]+\])?==", path.read_text(), re.MULTILINE)
            assert pins, path
            assert path.read_text().count("--hash=sha256:") >= len(pins), path


def test_no_path_of_one_machine(files: list[Path]) -> None:
    pattern = re.compile(r"(?:^|[\s\"'=(:])/(?:home|root|work)/[a-z]", re.MULTILINE)
    found = []
    for path in files:
        if path == Path(__file__) or path.suffix in {".png", ".bin", ".gz"}:
            continue
        found += [f"{path}: {match.group()}" for match in pattern.finditer(path.read_text(errors="replace"))]
    assert found == []


def test_every_stream_has_its_message() -> None:
    document = yaml.safe_load((ROOT / "proto/chart/v1/topics.yaml").read_text())
    topics = document["topics"]
    assert topics
    assert document["access"].keys() == topics.keys()
    for name, topic in topics.items():
        assert re.fullmatch(r"chart(\.[a-z][a-z-]*)+\.v\d+", name), name
        assert topic["cleanup"] in {"compact", "delete"}, name
        assert (topic["cleanup"] == "delete") == ("retention" in topic), f"{name}: retention belongs to cleanup: delete"
        message = topic["message"].removeprefix("chart.v1.")
        module = re.sub(r"(?<!^)(?=[A-Z])", "_", message).lower()
        candidates = {path.stem for path in (ROOT / "proto/chart/v1").glob("*.proto")}
        homes = [
            stem
            for stem in candidates
            if hasattr(importlib.import_module(f"chart.v1.{stem}_pb2"), message)
            and f"message {message} " in (ROOT / f"proto/chart/v1/{stem}.proto").read_text()
        ]
        assert len(homes) == 1, f"{name}: {message} (like {module}) is defined in {homes}"


def test_no_page_of_the_dashboard_loses_its_headers() -> None:
    """nginx drops every header of the server in a `location` that adds one of its own."""
    text = (ROOT / "deploy/images/nginx.conf.template").read_text()
    locations = re.findall(r"^\s+location [^{]*\{(.*?)\}", text, re.MULTILINE | re.DOTALL)
    assert len(locations) >= 3
    assert [place for place in locations if "add_header" in place] == []
    for header in ("X-Content-Type-Options nosniff", "frame-ancestors 'none'"):
        assert header in text


def test_images_start_for_production() -> None:
    """A bare image without settings refuses to start, instead of opening the development issuer."""
    stages = re.split(r"^FROM ", (ROOT / "services/Dockerfile").read_text(), flags=re.MULTILINE)
    (runtime,) = (stage for stage in stages if re.search(r"\bAS runtime$", stage.splitlines()[0]))
    assert "CHART_ENVIRONMENT=production" in runtime


def test_the_readme_starts_with_the_two_commands() -> None:
    head = "\n".join((ROOT / "README.md").read_text().splitlines()[:30])
    assert "make demo" in head
    assert "make test" in head


def test_continuous_integration_runs_make_test_and_nothing_hidden() -> None:
    commands = [
        line for line in (ROOT / ".ci/run").read_text().splitlines() if line.strip() and not line.startswith("#")
    ]
    assert commands[-1] == "exec make test"
    assert len(commands) == 3


FOLDERS = (
    "services", "lab", "tests", "dataplane", "deploy", "web", "docs", "proto", "helm", "sensors", "clients",
    "migrations", "mk", "tools",
)  # fmt: skip


def paths_of(document: Path) -> set[str]:
    """Repository paths that a document names in backticks, braces expanded; globs stay, and NAME or SERVICE is any."""
    quoted = re.findall(
        r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    )
    found: set[str] = set()
    for word in " ".join(quoted).split():
        if re.match(rf"(?:{'|'.join(FOLDERS)})/", word):
            anything = re.sub(r"\b(?:NAME|SERVICE)\b", "*", word.rstrip(".,;:)"))
            found.update(expanded(anything))
    return found


def expanded(path: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`."""
    match = re.search(r"\{([^{}]*)\}", path)
    if not match:
        return [path]
    return [one for part in match[1].split(",") for one in expanded(path[: match.start()] + part + path[match.end() :])]


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_paths_in_documents_exist(document: Path) -> None:
    missing = [path for path in sorted(paths_of(document)) if not any(ROOT.glob(path.partition("::")[0].rstrip("/")))]
    assert missing == [], f"{document.name} names paths that are not in the repository"


def test_the_check_of_paths_reads_braces_and_globs(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("`lab/{a,b}/*.py`, `pytest -m lab tests/x.py`, `chart lab run x`\n```\n`docs/none.md`\n```\n")
    assert paths_of(document) == {"lab/a/*.py", "lab/b/*.py", "tests/x.py"}


def test_what_was_repeated_three_times_is_mended() -> None:
    known = stages.known_repetitions()
    assert known
    for test, entry in known.items():
        path, _, name = test.rpartition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), f"{test} is gone: so goes its entry in tests/repeated.yaml"
        assert entry["repeated"], test
        assert entry["cause"], test
        assert stages.open_repetitions(entry) < stages.REPETITIONS_TO_MEND, f"{test} is to be mended"


def test_migrations_of_a_schema_have_one_order() -> None:
    for folder in sorted((ROOT / "migrations").glob("*/versions")):
        texts = [file.read_text() for file in sorted(folder.glob("*.py"))]
        found = [dict(re.findall(r'^(revision|down_revision) = (?:"(\w+)"|None)$', text, re.M)) for text in texts]
        before = ["", *(one["revision"] for one in found[:-1])]
        assert [one["down_revision"] for one in found] == before, folder
