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


def test_a_kernel_that_nobody_tried_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SUPPORTED_KERNELS", ("6.1", "6.12"))
    assert doctor.tried_kernel("6.1.0-49-cloud-amd64").status == "ok"
    assert doctor.tried_kernel("6.12").status == "ok"
    other = doctor.tried_kernel("6.11.3")
    assert (other.status, other.detail) == ("note", "Linux 6.11.3; agents are tried on 6.1, 6.12")


def test_how_programs_are_attached_is_read_from_the_kernels_types() -> None:
    assert doctor.how_attached(b"\0BPF_TCX_INGRESS\0BPF_STRUCT_OPS\0") == "classifiers by tcx, trinity by link"
    old = doctor.how_attached(b"\0bpf_struct_ops_tcp_congestion_ops\0")
    assert old.startswith("classifiers by clsact, trinity by registration; after a kill")


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
