"""What `sensing-mesh` makes of its counts."""

from __future__ import annotations

import pytest

from chart_lab import topology
from chart_lab.errors import LabError
from chart_lab.experiments import REGISTRY
from chart_lab.experiments import sensing_mesh as experiment


def test_the_worst_minute_of_the_worst_link_counts() -> None:
    # 10 Mb/s carry 75 MB a minute; one direction carries 1 MB in its worst minute, the other half of that.
    one = [(float(at), at * 1_000_000 // 60) for at in range(121)]
    other = [(at, size // 2) for at, size in one]
    assert experiment.worst_share({"a forward": one, "a reverse": other}, 10e6) == pytest.approx(1 / 75, rel=0.01)


def test_a_mesh_of_twenty_nodes_has_every_ordered_pair() -> None:
    nodes = topology.load(experiment.TOPOLOGY).nodes
    assert (len(nodes), experiment.pairs(len(nodes))) == (20, 380)
    assert "sensing-mesh" in REGISTRY


def test_what_never_holds_is_said() -> None:
    with pytest.raises(LabError, match="it did not happen within 0 s"):
        experiment._wait("it did not happen", lambda: False, 0)
