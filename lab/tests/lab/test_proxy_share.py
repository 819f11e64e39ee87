"""The experiment `proxy`: its share is of medians, beside what the host gets alone."""

from __future__ import annotations

from chart_lab.experiments import REGISTRY, proxy
from chart_lab.experiments.proxy import Run


def test_the_share_is_of_medians() -> None:
    runs = [Run("proxied", rate) for rate in (80e6, 90e6, 91e6)]
    runs += [Run("agent", rate) for rate in (99e6, 100e6, 50e6)] + [Run("alone", 5e6)]
    figures = {figure.name: figure for figure in proxy.evaluate(runs)}
    share = figures["goodput_share_of_agent"]
    assert share.value == 90e6 / 99e6
    assert share.met() is False
    assert share.peer == 5e6 / 99e6
    assert figures["goodput_bps/host=alone"].value == 5e6


def test_both_proxies_take_from_both_sides() -> None:
    topology = proxy.line(rate_mbit=100, loss=0.02, delay_ms=20)
    assert [link.ends for link in topology.links] == [("client", "near"), ("near", "far"), ("far", "server")]
    assert proxy.TAKEN == {"near": ("to-client", "to-far"), "far": ("to-near", "to-server")}


def test_it_can_be_run() -> None:
    assert REGISTRY["proxy"] is proxy.EXPERIMENT
