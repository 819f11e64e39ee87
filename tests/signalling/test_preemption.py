"""Pre-emption in band: the higher priority takes guaranteed rates from the lower, which goes on at what is available
and gets back what it lost (Brassil et al., The CHART System, section 4).
"""

from __future__ import annotations

import pytest

from chart_lab.experiments.signal_lab import Element, Signals, ask, elements
from chart_lab.experiments.traffic import Transfer
from chart_lab.network import Lab
from support.figures import Figures
from support.signals import PORT, RATE_BPS

pytestmark = pytest.mark.lab

LOW_PORT, HIGH_PORT = PORT, PORT + 1
LOW_BPS, HIGH_BPS = 60e6, 50e6
# What the links may guarantee, and what they may give in all.
GUARANTEED_BPS, EXPLICIT_BPS = 80e6, 0.97 * RATE_BPS


def rate_bps(element: Element, port: int) -> float:
    """The rate of the element's flow to a port, bits per second; 0: none."""
    flows = element.status()["flows"]
    return float(next((flow["rate_bps"] for flow in flows if flow["remote"].endswith(f":{port}")), 0))


def about(rate: float, wanted: float) -> bool:
    """Within what the steps of rates on the wire allow."""
    return abs(rate - wanted) <= 0.01 * wanted


def test_the_higher_priority_takes_and_the_lower_gets_it_back(lab: Lab, signals: Signals, figures: Figures) -> None:
    limits = {"guaranteed_bps": round(GUARANTEED_BPS), "explicit_bps": round(EXPLICIT_BPS)}
    signals.links = {
        "alpha": [{"interface": "to-mid", **limits}],
        "mid": [{"interface": "to-bravo", **limits}],
    }
    signals.asks = {
        "alpha": [
            ask(port=LOW_PORT, guaranteed_bps=LOW_BPS, available_bps=10**12, service="variable"),
            ask(
                port=HIGH_PORT,
                guaranteed_bps=HIGH_BPS,
                available_bps=10**12,
                service="variable",
                preemption_priority=200,
            ),
        ]
    }
    with elements(lab, signals) as running:
        alpha = running["alpha"]

        def low_has_all() -> bool:
            return about(rate_bps(alpha, LOW_PORT), EXPLICIT_BPS)

        low = Transfer(lab, "alpha", "bravo", duration_s=20, port=LOW_PORT)
        figures.reached(low_has_all, "the lower priority has all that there is", 4)
        high = Transfer(lab, "alpha", "bravo", duration_s=8, port=HIGH_PORT)
        rest = (EXPLICIT_BPS - GUARANTEED_BPS) / 2
        figures.reached(
            lambda: (
                about(rate_bps(alpha, HIGH_PORT), HIGH_BPS + rest)
                and about(rate_bps(alpha, LOW_PORT), GUARANTEED_BPS - HIGH_BPS + rest)
            ),
            "the higher priority has taken its part",
            4,
        )
        assert alpha.counters()["preempted"] >= 1
        high.finish()
        figures.reached(low_has_all, "the lower priority has it back", 6)
        assert low.finish().congestion == "trinity"
