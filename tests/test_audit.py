"""tools/audit.py reads what the audit tools answer, and never takes silence for a clean answer."""

from __future__ import annotations

import json

import pytest

import audit

LOCK = "alembic==1.20.1 \\\n    --hash=sha256:00\nuvicorn[standard]==0.54.0 \\\n    --hash=sha256:00\n"


def pip_audit(report: dict[str, object] | None, complaint: str = "") -> audit.Answer:
    text = "" if report is None else json.dumps(report)
    (answer,) = audit.read_pip_audit(text, complaint, {"services/requirements.txt": LOCK})
    return answer


def test_a_weakness_of_what_ships_fails() -> None:
    vulnerability = {"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1"], "fix_versions": []}
    dependencies = [
        {"name": "alembic", "version": "1.20.1", "vulns": []},
        {"name": "uvicorn", "version": "0.54.0", "vulns": [vulnerability]},
    ]
    answer = pip_audit({"dependencies": dependencies})
    assert (answer.packages, answer.unasked, answer.reason) == (2, 0, "")
    assert "WEAK: uvicorn (CVE-2026-1, PYSEC-2026-1)" in answer.line()
    assert not audit.judge([answer], set())
    assert audit.judge([answer], {"CVE-2026-1"})
    assert "nothing known" in answer.line()


def test_packages_that_the_database_does_not_know_are_told() -> None:
    dependencies: list[dict[str, object]] = [
        {"name": "alembic", "skip_reason": "not found"},
        {"name": "uvicorn", "version": "0.54.0", "vulns": []},
    ]
    answer = pip_audit({"dependencies": dependencies})
    assert audit.judge([answer], set())
    assert "nothing known; NOT AUDITED: 1 of 2 packages: not found" in answer.line()


def test_a_tool_without_a_report_audited_nothing() -> None:
    answer = pip_audit(None, "Traceback\nConnectionError: no route\n")
    assert audit.judge([answer], set())
    assert "NOT AUDITED: 2 of 2 packages: ConnectionError: no route" in answer.line()


def test_npm_counts_grave_weaknesses_at_the_package_that_has_the_advisory() -> None:
    advisory = {"url": "https://example.org/advisories/GHSA-1", "severity": "high"}
    report = {
        "vulnerabilities": {
            "react": {"severity": "high", "via": [advisory]},
            "react-dom": {"severity": "high", "via": ["react"]},
            "uplot": {"severity": "low", "via": [{"url": "https://example.org/advisories/GHSA-2"}]},
        }
    }
    ships = audit.read_npm_audit(json.dumps(report), "web", 3, ships=True)
    assert [str(weak) for weak in ships.weaknesses] == ["react (GHSA-1)"]
    assert not audit.judge([ships], set())
    builds = audit.read_npm_audit(json.dumps(report), "web", 3, ships=False)
    assert audit.judge([builds], set())
    assert "WEAK: react" in builds.line()


def test_a_registry_without_audits_is_told() -> None:
    answer = audit.read_npm_audit(json.dumps({"message": "405 Method Not Allowed"}), "web", 3, ships=True)
    assert audit.judge([answer], set())
    assert "NOT AUDITED: 3 of 3 packages: 405 Method Not Allowed" in answer.line()


def test_findings_of_govulncheck_are_told_once_each() -> None:
    finding = {"finding": {"osv": "GO-2026-1", "trace": [{"module": "example.org/a", "version": "v1"}]}}
    inventory: dict[str, object] = {"SBOM": {"modules": [{}, {}]}}
    stream = "\n".join([json.dumps(inventory, indent=1), json.dumps(finding, indent=1), json.dumps(finding)])
    answer = audit.read_govulncheck(stream, "", "deploy/vault", failed=False)
    assert answer.packages == 2
    assert [str(weak) for weak in answer.weaknesses] == ["example.org/a (GO-2026-1)"]
    away = audit.read_govulncheck(stream, "no such host", "deploy/vault", failed=True)
    assert "NOT AUDITED: 2 of 2 packages: no such host" in away.line()


def test_what_is_accepted_has_a_reason() -> None:
    assert audit.accepted("# why\nCVE-2026-1 the parser is not reached\n") == {"CVE-2026-1"}
    with pytest.raises(ValueError, match="CVE-2026-2"):
        audit.accepted("CVE-2026-2\n")


def test_every_python_lock_of_the_repository_is_audited() -> None:
    found = {
        str(path.relative_to(audit.ROOT))
        for name in ("services", "tests")
        for path in (audit.ROOT / name).glob("*.txt")
    }
    assert found == set(audit.PYTHON_LOCKS)
