"""What `inference-scale` hides, and that every pair gets an estimate."""

from __future__ import annotations

import numpy as np
import pytest

from chart_lab.experiments import REGISTRY
from chart_lab.experiments import inference_scale as experiment
from chart_lab.experiments.inference_accuracy import synthetic


def test_so_many_pairs_are_known_and_they_are_true() -> None:
    hidden = synthetic(60, 1)
    known = experiment.measured(hidden, 0.2, 1)
    there = known.measured[known.pairs()]
    assert abs(there.mean() - 0.2) < 0.01
    rows, columns = (index[there] for index in known.pairs())
    assert np.array_equal(known.values[rows, columns], hidden.values[rows, columns])
    assert np.array_equal(known.values[columns, rows], hidden.values[rows, columns])


# Methods are chosen and learnt anew on folds of the measurements, whatever the number of nodes: minutes of a processor.
@pytest.mark.slow
def test_every_pair_has_an_estimate_after_each_refresh() -> None:
    found = experiment.refresh(60, 0.3, 1)
    assert found.known_share == 1
    assert len(found.took_s) == experiment.REFRESHES
    assert found.memory_mib > 10
    assert found.pairs == 60 * 59 // 2
    assert "inference-scale" in REGISTRY
