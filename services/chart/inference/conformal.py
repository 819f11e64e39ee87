"""Prediction intervals with a stated coverage: split conformal prediction (Lei et al., JASA 2018, section 2.2).

Pairs that the model did not see are predicted; what share of them falls outside decides how wide the intervals are.
Lower and upper end are calibrated apart because errors of round-trip times are skewed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chart.inference.observations import Floats

COVERAGE = 0.9
# Below this many held-out pairs the quantiles mean nothing and the widest residual, doubled, stands in.
ENOUGH = 2 * int(2 / (1 - COVERAGE))
# A handful that happens to be right proves little: the interval reaches at least FEW / handful spreads.
FEW = 10.0
# Half the width of an interval, in logarithms, of which nothing at all is known: a factor of 3 either way.
UNKNOWN_HALF_WIDTH = 1.1
# No interval of an estimate is narrower than this, relative.
LEAST_HALF_WIDTH = 1e-3


@dataclass(frozen=True)
class Calibration:
    """How many spreads the interval reaches below and above the estimate, in logarithms."""

    below: float
    above: float
    held_out: int

    def interval(self, logs: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """Lower and upper end, as logarithms."""
        low = logs - np.maximum(self.below * spread, LEAST_HALF_WIDTH)
        high = logs + np.maximum(self.above * spread, LEAST_HALF_WIDTH)
        return low, high


def calibrate(truth: Floats, predicted: Floats, spread: Floats) -> Calibration:
    """From held-out pairs, all in logarithms. Each end leaves out half of what the interval may miss."""
    scores = (truth - predicted) / spread
    count = len(scores)
    if count == 0:
        return Calibration(np.nan, np.nan, 0)
    if count < ENOUGH:
        widest = max(2 * float(np.abs(scores).max()), FEW / count)
        return Calibration(widest, widest, count)
    miss = (1 - COVERAGE) / 2
    # The finite-sample rank: the new pair is one more among the held-out ones.
    rank = min(1.0, np.ceil((count + 1) * (1 - miss)) / count)
    above = float(np.quantile(scores, rank, method="inverted_cdf"))
    below = -float(np.quantile(scores, 1 - rank, method="inverted_cdf"))
    return Calibration(below, above, count)
