"""Shares of authentic records from what services count."""

from __future__ import annotations

from pathlib import Path

import pytest

from chart.common import record_mac
from chart.common.record_mac import RecordMacError
from chart.v1 import link_load_pb2
from chart_lab import demo_trust as trust
from chart_lab import topology
from chart_lab.demo_trust import Checks
from chart_lab.network import Lab

METRICS = """\
# TYPE chart_streams_record_checks_total counter
chart_streams_record_checks_total{result="good",topic="chart.link-load.v1"} 100.0
chart_streams_record_checks_total{result="refused",topic="chart.link-load.v1"} 3.0
chart_streams_record_checks_total{result="refused",topic="chart.node-state.v1"} 2.0
chart_streams_record_checks_created{result="good",topic="chart.link-load.v1"} 1.79e+09
"""


def test_what_a_service_counted() -> None:
    assert trust.parse_checks(METRICS) == Checks(good=100, refused=5, refused_loads=3)
    assert trust.parse_checks("# nothing was checked\n") == Checks()


def test_the_share_is_of_what_was_checked_in_between() -> None:
    before = {"gateway": Checks(100, 5, 3), "allocator": Checks(50, 0, 0)}
    assert trust.authenticated_share(before, before) is None
    after = {"gateway": Checks(190, 15, 3), "allocator": Checks(150, 0, 0)}
    assert trust.authenticated_share(before, after) == 190 / 200


def read(code: str, keys: dict[str, bytes], name: str, value: bytes) -> None:
    mac = record_mac.parse(code)
    record_mac.check(mac, keys.get(mac.node, bytes(32)), name, trust.TOPIC, name, value)


def test_no_forged_record_is_one_that_its_node_wrote(tmp_path: Path) -> None:
    lab = Lab(topology.load("demo"), state_dir=tmp_path)
    key = bytes(range(32))
    made = list(trust.forged(lab, "alpha", 7, key))
    assert len(made) == 5 * trust.FORGED_OF_EACH_KIND
    assert {name for name, _, _ in made} == {"bravo", "charlie", "delta"}
    for name, value, code in made:
        assert link_load_pb2.LinkLoadReport.FromString(value).node == name
        if code is not None:
            # What a reader does: the key is that of whoever the code names.
            with pytest.raises(RecordMacError):
                read(code, {"alpha": key}, name, value)
