"""The two laws of link rate control. Each proposes the next fair share of links; `LinkController` (controller.py)
bounds the proposal and feeds forward what is known without feedback.

* NEC (Kolarov and Ramamurthy, "An Integrated Approach to ABR Congestion Control", 1999): proportional plus
  derivative control of a queue. The queue is virtual, drained at the explicit-rate capacity C_er and allowed below
  zero within bounds: with the real queue a set point small enough for 5 ms leaves no drive upwards.
* RCP (Dukkipati, "Rate Control Protocol", 2007): R grows with spare capacity and falls with the queue, once per
  round trip.

Pure functions over arrays with one element per link. Rates are bits per second with IP headers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chart.allocator.links import Floats

NEC, RCP = "nec", "rcp"
LAWS = (NEC, RCP)
# NEC gains, normalised: A = a N T, by feedback delay d in periods (grid search for the smallest spectral radius).
NEC_DERIVATIVE = 0.57
NEC_PROPORTIONAL = 0.14
# Bound of the virtual queue, either side, as a share of what C_er carries in d + 2 periods.
NEC_QUEUE_BOUND = 0.03
# RCP gains.
RCP_ALPHA = 0.4
RCP_BETA = 0.4
# Report -> controller -> agent, on top of a flow's round trip.
PIPELINE_US = 50_000
MAXIMUM_DELAY_PERIODS = 32


@dataclass(frozen=True, slots=True)
class Loops:
    """What the laws see of links: `load_bps` is the load without guaranteed rates, caused by `applied_bps`, the fair
    share `delay_periods` ago.
    """

    period_s: Floats
    rtt_us: Floats
    delay_periods: Floats
    capacity_bps: Floats
    load_bps: Floats
    applied_bps: Floats
    queue_bytes: Floats
    users: Floats


def feedback_delay(rtt_us: Floats, interval_us: Floats) -> Floats:
    """Feedback delay in periods."""
    delay: Floats = np.ceil((rtt_us + PIPELINE_US) / np.maximum(1.0, interval_us))
    return np.minimum(MAXIMUM_DELAY_PERIODS, delay)


def nec(rate_bps: Floats, virtual_queue_bits: Floats, loops: Loops) -> tuple[Floats, Floats]:
    """R - a0 q - a1 (q - q') and the new virtual queue q, whose set point is 0.

    The queue is bounded tightly, its change is not: every bit of credit kept below zero would be sent above C_er
    later, and only the slack between C_er and C can take that without a real queue.
    """
    delay = loops.delay_periods + 2
    change = (loops.load_bps - loops.capacity_bps) * loops.period_s
    bound = NEC_QUEUE_BOUND * loops.capacity_bps * loops.period_s * delay
    queue = np.minimum(bound, np.maximum(-bound, virtual_queue_bits + change))
    # Only users held by this link answer to R, and load / R counts them; the rest are limited elsewhere.
    responsive = np.minimum(loops.users, np.maximum(1.0, loops.load_bps / np.maximum(loops.applied_bps, 1.0)))
    scale = 1.0 / (responsive * loops.period_s)
    derivative = NEC_DERIVATIVE / delay * scale
    proportional = NEC_PROPORTIONAL / delay**2 * scale
    return rate_bps - proportional * queue - derivative * change, queue


def rcp(rate_bps: Floats, loops: Loops) -> Floats:
    """R <- R (1 + (T/d0)(alpha (C - y) - beta q/d0) / C); d0 also covers the way of the rate to the sender."""
    period_s = loops.period_s
    d0_s = np.maximum(loops.rtt_us / 1e6 + PIPELINE_US / 1e6 + period_s, 2 * period_s)
    drive = RCP_ALPHA * (loops.capacity_bps - loops.load_bps) - RCP_BETA * (loops.queue_bytes * 8.0) / d0_s
    return rate_bps * (1 + period_s / d0_s * drive / loops.capacity_bps)
