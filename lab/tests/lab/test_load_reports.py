"""What `rate-control-load` sends is what agents send."""

from __future__ import annotations

import numpy as np
import pytest

from chart.v1 import link_load_pb2
from chart_lab.experiments.rate_control_load import LINKS_OF_NODE, RTT_US, Crowd, Reports, link_of, name_of, padded


@pytest.mark.parametrize(
    ("value", "size"), [(0, 1), (127, 1), (128, 2), (0, 5), (2**35 - 1, 5), (1_795_314_915_206_123, 8)]
)
def test_padded_varints_are_read_as_they_are_meant(value: int, size: int) -> None:
    octets = padded(value, size).tobytes()
    assert len(octets) == size
    assert link_load_pb2.LinkLoadReport.FromString(b"\x18" + octets).interval_end_us == value


def test_reports_say_what_each_node_has() -> None:
    nodes = 3
    sent = np.arange(nodes * LINKS_OF_NODE) * 10_000_019
    flows = np.arange(nodes * LINKS_OF_NODE) % 9
    found = dict(Reports(nodes).of(sent, flows, 104_321, 1_795_314_915_206_123))
    assert list(found) == [name_of(node) for node in range(nodes)]
    for node in range(nodes):
        report = link_load_pb2.LinkLoadReport.FromString(found[name_of(node)])
        expected = link_load_pb2.LinkLoadReport(
            node=name_of(node), interval_us=104_321, interval_end_us=1_795_314_915_206_123
        )
        for index in range(LINKS_OF_NODE):
            place = node * LINKS_OF_NODE + index
            expected.links.add(
                link_id=link_of(node, index),
                sent_bytes=int(sent[place]),
                explicit_rate_bytes=int(sent[place]),
                users=int(flows[place]),
                rtt_us=RTT_US,
            )
        assert report == expected


def test_flows_keep_to_the_rates_that_they_are_told() -> None:
    crowd = Crowd(2, np.random.default_rng(1))
    crowd.rate_bps[:] = 1_000_000
    for _, payload in crowd.reports(0.1):
        for load in link_load_pb2.LinkLoadReport.FromString(payload).links:
            assert 0 < load.sent_bytes <= 8 * 1_000_000 * 0.1 / 8 * 1.05
