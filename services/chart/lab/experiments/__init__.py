"""The experiments of `chart lab run`, each of which regenerates a figure or table of a paper."""

from chart.lab.experiments import (
    fair_share,
    inference_accuracy,
    itm,
    itm_step,
    sensing_overhead,
    signal_abuse,
    signal_cost,
    signal_timing,
    throughput_grid,
)
from chart.lab.experiments.framework import Experiment

REGISTRY: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        throughput_grid.EXPERIMENT,
        fair_share.EXPERIMENT,
        *itm.EXPERIMENTS,
        itm_step.EXPERIMENT,
        inference_accuracy.EXPERIMENT,
        sensing_overhead.EXPERIMENT,
        signal_cost.EXPERIMENT,
        signal_abuse.EXPERIMENT,
        signal_timing.EXPERIMENT,
    )
}
