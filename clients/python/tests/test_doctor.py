"""What `chart doctor` makes of enrolment and of checked records."""

from __future__ import annotations

from typing import Any

import pytest

from chart_client.commands import doctor

COUNTER = 'chart_streams_record_checks_total{{result="{}",topic="chart.link-load.v1"}} {}\n'


@pytest.mark.parametrize(
    ("metrics", "status", "words"),
    [
        ("", "note", "checked no record"),
        (COUNTER.format("good", "200.0"), "ok", "all of 200"),
        (COUNTER.format("good", "200.0") + COUNTER.format("refused", "4.0"), "note", "4 of 204"),
    ],
)
def test_records(metrics: str, status: str, words: str) -> None:
    found = doctor.records_checked(metrics)
    assert found.status == status
    assert words in found.detail


def described(**enrolled: bool | None) -> dict[str, Any]:
    nodes = [
        {"name": name, "enrolment": None if known is None else {"enrolled": known, "revoked": False}}
        for name, known in enrolled.items()
    ]
    return {"lab": "demo", "nodes": nodes}


def test_enrolment() -> None:
    assert list(doctor.enrolment([described(alpha=None, bravo=None)])) == []
    (good,) = doctor.enrolment([described(alpha=True, bravo=True)])
    assert (good.status, good.detail) == ("ok", "all 2 nodes of the lab demo")
    (bad,) = doctor.enrolment([described(alpha=True, bravo=False)])
    assert (bad.status, bad.detail) == ("failed", "not enrolled in the lab demo: bravo")
    assert bad.fix
