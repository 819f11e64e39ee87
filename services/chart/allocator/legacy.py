"""How much of a link the ordinary (legacy) flows get: min(their demand, their fair fraction of the users).

The demand of a TCP flow cannot be read off its rate: it takes what it is left. So the estimate probes: while
legacy traffic fills what it was given (or queues) the estimate grows until the fair fraction stops it; what stays
unused is given back. The papers want legacy flows beside CHART no worse off than beside each other (Brassil et
al., The CHART System, section 5).
"""

from __future__ import annotations

from collections import deque

# Legacy traffic that uses this much of its share is taken to want more.
FILLED_SHARE = 0.85
# Growth per sample while it wants more: from a hundredth of the link to half of it in under a second.
GROWTH = 1.5
# What is set aside above measured use, so that a growing flow finds room before the next sample.
HEADROOM = 1.25
# Smallest room for a flow that is there at all, as a share of the link.
FOOTHOLD = 0.01
# Below this share of the link it is acknowledgements and probes: given what they use, not probed for more.
TRICKLE = 0.005
# Share of the unused part given back per sample of 100 ms.
GIVE_BACK = 0.2
# Peak of that many samples counts as use: TCP's sawtooth is not a falling demand.
PEAK_SAMPLES = 5


class LegacyDemand:
    """Estimates what legacy traffic would use of one link, bits per second."""

    def __init__(self) -> None:
        self.demand_bps = 0.0
        self._recent: deque[float] = deque(maxlen=PEAK_SAMPLES)

    def update(self, used_bps: float, queued_bytes: int, share_bps: float, usable_bps: float) -> float:
        """Take one sample and return the new estimate.

        `share_bps` is what legacy traffic was given for the sample, `usable_bps` what the link has for everybody.
        """
        self._recent.append(used_bps)
        peak_bps = max(self._recent)
        if peak_bps <= 0:
            self.demand_bps = 0.0
            return 0.0
        if peak_bps < TRICKLE * usable_bps:
            self.demand_bps = HEADROOM * peak_bps
            return self.demand_bps
        foothold_bps = FOOTHOLD * usable_bps
        comfortable_bps = HEADROOM * peak_bps + foothold_bps
        filled = used_bps >= FILLED_SHARE * share_bps or queued_bytes > 0
        if filled and used_bps >= TRICKLE * usable_bps:
            wanted_bps = GROWTH * max(used_bps, share_bps) + foothold_bps
            self.demand_bps = min(usable_bps, max(self.demand_bps, wanted_bps))
        elif self.demand_bps > comfortable_bps:
            self.demand_bps += GIVE_BACK * (comfortable_bps - self.demand_bps)
        else:
            self.demand_bps = comfortable_bps
        return self.demand_bps


def fair_share_bps(demand_bps: float, usable_bps: float, legacy_flows: int, explicit_flows: int) -> float:
    """What legacy traffic gets: its demand, at most its flows' part of the link.

    A link without explicit-rate flows keeps room for one newcomer, or the first one would be told a rate of nothing.
    """
    if demand_bps <= 0:
        return 0.0
    legacy = max(1, legacy_flows)
    return min(demand_bps, usable_bps * legacy / (legacy + max(1, explicit_flows)))
