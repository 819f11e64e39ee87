"""The experiments of `chart lab run`, each of which regenerates a figure or table of a paper."""

from chart.lab.experiments import (
    admission_load,
    diffserv_policing,
    fair_share,
    fairness,
    grant_latency,
    inference_accuracy,
    itm,
    itm_step,
    kill_matrix,
    proxy,
    rate_control,
    rate_control_load,
    sensing_accuracy,
    sensing_overhead,
    signal_abuse,
    signal_cells,
    signal_cost,
    signal_timing,
    throughput_grid,
    tunnel_bulk,
    tunnel_soak,
    tunnel_throughput,
    two_path_grid,
)
from chart.lab.experiments.framework import Experiment

REGISTRY: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        admission_load.EXPERIMENT,
        grant_latency.EXPERIMENT,
        rate_control_load.EXPERIMENT,
        kill_matrix.EXPERIMENT,
        throughput_grid.EXPERIMENT,
        fair_share.EXPERIMENT,
        fairness.EXPERIMENT,
        rate_control.EXPERIMENT,
        two_path_grid.EXPERIMENT,
        diffserv_policing.EXPERIMENT,
        proxy.EXPERIMENT,
        *itm.EXPERIMENTS,
        itm_step.EXPERIMENT,
        inference_accuracy.EXPERIMENT,
        sensing_accuracy.EXPERIMENT,
        sensing_overhead.EXPERIMENT,
        signal_cost.EXPERIMENT,
        signal_abuse.EXPERIMENT,
        signal_timing.EXPERIMENT,
        signal_cells.EXPERIMENT,
        tunnel_throughput.EXPERIMENT,
        tunnel_bulk.EXPERIMENT,
        tunnel_soak.EXPERIMENT,
    )
}
