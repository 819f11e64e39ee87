"""Accuracy on real matrices, loosely: a part of the nodes, one seed; and what the experiment reads and refuses."""

from __future__ import annotations

import gzip
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chart.inference.estimator import Inference
from chart.inference.observations import observe
from chart_lab.errors import LabError
from chart_lab.experiments import REGISTRY
from chart_lab.experiments import inference_accuracy as experiment
from chart_lab.experiments.framework import Settings
from chart_lab.experiments.inference_data import data_folder, read_rtt, read_throughput

# Nothing here waits for others; on a machine with little to give the models take their time.
pytestmark = pytest.mark.timeout(300)


def test_round_trip_times_of_120_nodes() -> None:
    names, matrix = read_rtt(data_folder() / experiment.RTT_FILE)
    some = np.sort(np.random.default_rng(5).choice(len(names), 120, replace=False))
    hidden = observe(
        [names[index] for index in some], matrix[np.ix_(some, some)], symmetric=True, floor=experiment.RTT_FLOOR_MS
    )
    known = experiment.measure(hidden, 0.13, 3)
    measured = int(known.measured[hidden.pairs()].sum())
    assert measured == int(0.13 * 120 * 119 / 2)
    inference = Inference(seed=3)
    inference.fit(known)
    judged = experiment.judge(hidden, known, inference.predict())
    assert len(judged.truth) + measured <= 120 * 119 / 2
    assert np.median(judged.errors) < 0.12
    assert np.mean(np.abs(judged.value - judged.truth) <= 20) > 0.7
    assert 0.8 < judged.coverage < 0.98
    assert experiment.closest(hidden, known, inference.predict()) > 0.5


def test_throughput_with_round_trip_times_beside() -> None:
    hidden = experiment.throughput_observations(read_throughput(data_folder() / experiment.THROUGHPUT_FILE))
    known = experiment.measure(hidden, 0.2, 3)
    inference = Inference(seed=3)
    inference.fit(known)
    judged = experiment.judge(hidden, known, inference.predict())
    assert np.median(judged.errors) < 0.2
    assert 0.75 < judged.coverage <= 1
    figures = {one.name: one.value for one in experiment.figures(judged, 1.0, judged, 1.0, 1.0)}
    assert figures["throughput_auc"] is not None
    assert figures["throughput_auc"] > 0.9


def test_hidden_values_change_nothing_that_is_said() -> None:
    """The estimates rest on the measured pairs alone: other values of the pairs that stay unseen, the same answers."""
    random = np.random.default_rng(0)
    hidden = experiment.throughput_observations(read_throughput(data_folder() / experiment.THROUGHPUT_FILE))
    known = experiment.measure(hidden, 0.2, 1)
    noise = random.lognormal(0, 1, hidden.values.shape)
    other = replace(hidden, values=np.where(known.measured, hidden.values, hidden.values * noise))
    again = experiment.measure(other, 0.2, 1)
    np.testing.assert_array_equal(np.isfinite(again.values), np.isfinite(known.values))
    np.testing.assert_array_equal(again.values[again.measured], known.values[known.measured])


def test_the_worse_coverage_is_reported() -> None:
    truth = np.linspace(1, 2, 100)

    def judged(inside: int) -> experiment.Judged:
        return experiment.Judged(truth, truth * 1.01, np.arange(100) < inside, "landmark", 5)

    for rtt, throughput, worse in ((91, 85, 0.85), (99, 89, 0.99)):
        figures = {one.name: one.value for one in experiment.figures(judged(rtt), 1, judged(throughput), 1, 1)}
        assert figures["interval_coverage"] == pytest.approx(worse)


def test_a_synthetic_refresh_of_500_nodes_ends() -> None:
    begun = time.process_time()
    assert experiment.refresh_seconds(1) > 0
    # Processor time of choosing a method and one refresh; the machine may be busy with other things.
    assert time.process_time() - begun < 60


def test_files_are_read_plain_and_compressed(tmp_path: Path) -> None:
    text = "# comment\n0\t1.5\t2\n1.5\t0\tnan\n2\t\t0\n"
    (tmp_path / "plain.tsv").write_text(text)
    (tmp_path / "packed.tsv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("plain.tsv", "packed.tsv.gz"):
        nodes, matrix = read_rtt(tmp_path / name)
        assert len(nodes) == 3
        assert matrix[0, 1] == 1.5
        assert np.isnan(matrix[1, 2])
        assert np.isnan(matrix[2, 1])
    (tmp_path / "rates.csv").write_text("# src,dst,bps,rtt\nsrc,dst,bps,rtt\na,b,1e6,3\nb,c,2e6,4\nc,a,3e6,\n")
    rates = read_throughput(tmp_path / "rates.csv")
    assert rates.nodes == ["a", "b", "c"]
    assert rates.throughput_bps[1, 2] == 2e6
    assert np.isnan(rates.rtt_ms[2, 0])


@pytest.mark.parametrize(
    "text",
    ["0\t1\n1\t0\n", "0\t1\t2\n1\t0\n2\t1\t0\n", "0\tx\t1\n1\t0\t1\n1\t1\t0\n"],
    ids=["small", "ragged", "words"],
)
def test_unusable_matrices_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.tsv").write_text(text)
    with pytest.raises(LabError):
        read_rtt(tmp_path / "bad.tsv")
    with pytest.raises(LabError, match="cannot be read"):
        read_rtt(tmp_path / "missing.tsv")


def test_the_experiment_is_registered() -> None:
    assert "inference-accuracy" in REGISTRY


def test_pairs_of_which_nothing_is_said_are_wrong_and_do_not_end_the_experiment() -> None:
    truth = np.array([10.0, 20.0, 30.0, 40.0])
    some = experiment.Judged(
        truth, np.array([11.0, np.nan, 30.0, np.nan]), np.array([True, False, True, False]), "x", 5
    )
    np.testing.assert_allclose(some.errors, [0.1, 1.0, 0.0, 1.0])
    figures = {one.name: one.value for one in experiment.figures(some, 1.0, some, 1.0, 1.0)}
    assert figures["throughput_median_relative_error"] == pytest.approx(0.55)
    assert figures["throughput_auc"] == pytest.approx(0.875)
    assert figures["interval_coverage"] == 0.5


def test_too_few_measured_pairs_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four nodes, and no metric beside: no method applies."""
    monkeypatch.setattr(experiment, "refresh_seconds", lambda seed: 1.0)
    rtt, throughput = tmp_path / "rtt.tsv", tmp_path / "few.csv"
    places = np.random.default_rng(1).uniform(1, 100, 12)
    rtt.write_text("".join("\t".join(f"{abs(a - b):.2f}" for b in places) + "\n" for a in places))
    names = "abcd"
    throughput.write_text("".join(f"{a},{b},1e9,\n" for a in names for b in names if a != b))
    settings = Settings(
        out=tmp_path, rtt_file=rtt, fraction=0.5, throughput_file=throughput, throughput_fraction=0.5, seed=1
    )
    with pytest.raises(LabError, match="5 measured pairs say nothing of the others: raise --throughput-fraction"):
        experiment.run(settings, lambda words, share: None)
