"""How much of a link the ordinary (legacy) flows get: min(their demand, their fair fraction of the users).

The demand of a TCP flow cannot be read off its rate: it takes what it is left. So the estimate probes: while
legacy traffic fills what it was given (or queues) the estimate grows until the fair fraction stops it; what stays
unused is given back. The papers want legacy flows beside CHART no worse off than beside each other (Brassil et
al., The CHART System, section 5).

Pure functions over arrays with one element per link. Rates are bits per second with IP headers.
"""

from __future__ import annotations

import numpy as np

from chart.allocator.links import Floats

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


def demand_bps(
    before_bps: Floats, recent_bps: Floats, queued_bytes: Floats, given_bps: Floats, usable_bps: Floats
) -> Floats:
    """What legacy traffic would use of each link by one sample more.

    `before_bps` is the estimate so far, `recent_bps` the use in the last PEAK_SAMPLES samples (rows, the newest last),
    `given_bps` what legacy traffic was to have in the newest sample, `usable_bps` what the link has for everybody.
    """
    used_bps, peak_bps = recent_bps[-1], recent_bps.max(axis=0)
    foothold_bps = FOOTHOLD * usable_bps
    comfortable_bps = HEADROOM * peak_bps + foothold_bps
    filled = (used_bps >= FILLED_SHARE * given_bps) | (queued_bytes > 0)
    wanted_bps = GROWTH * np.maximum(used_bps, given_bps) + foothold_bps
    given_back_bps = before_bps + GIVE_BACK * (comfortable_bps - before_bps)
    less_bps = np.where(before_bps > comfortable_bps, given_back_bps, comfortable_bps)
    grows = filled & (used_bps >= TRICKLE * usable_bps)
    after_bps = np.where(grows, np.minimum(usable_bps, np.maximum(before_bps, wanted_bps)), less_bps)
    after_bps = np.where(peak_bps < TRICKLE * usable_bps, HEADROOM * peak_bps, after_bps)
    return np.where(peak_bps <= 0, 0.0, after_bps)


def share_bps(demand_bps: Floats, usable_bps: Floats, legacy_flows: Floats, users: Floats) -> Floats:
    """What legacy traffic gets: its demand, at most its flows' part of the link.

    A link without explicit-rate users keeps room for one new flow, or the first one would be told a rate of nothing.
    """
    flows = np.maximum(1.0, legacy_flows)
    fair_bps = usable_bps * flows / (flows + np.maximum(1.0, users))
    return np.where(demand_bps <= 0, 0.0, np.minimum(demand_bps, fair_bps))
