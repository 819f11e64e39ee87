"""Virtual links: the explicit-rate overlay across legacy routers (The CHART System, sections 4 and 5;
design: signalling, link rate control).

Two elements face each other across a bottleneck that neither owns. What CHART may use of it is what sensors find
available there plus what the nearer element itself sent while they looked: without the second term the loop settles
at half. Sensors look every few seconds and err by some percent, so the estimate is smoothed, bounded, and corrected by
the round-trip time between the elements: a rise says that a queue stands in the bottleneck, and what is handed out
shrinks until it is gone. While there is none it grows back, fast until it is near where the queue began and slowly from
there on (the concave growth of CUBIC, RFC 9438, section 4.1), also a little beyond the estimate.

Pure: the caller hands in times (microseconds since the epoch), rates are bits per second with IP headers.
"""

from __future__ import annotations

import math
from collections import deque

# Stated in the topology by this tag of a link; its capacity is then the most that CHART may ever use.
TAG = "virtual"
# Own load counts over this time before a reading, if the reading before it is not younger.
PROBE_US = 2_000_000
LOADS_KEPT_US = 60_000_000
# The estimate moves by this part towards a reading, up as down: of readings that scatter it is the mean. What cannot
# wait is the brake's.
SMOOTHING = 0.1
# So many readings in a row on one side are no scatter: it moves faster.
STREAK, STREAK_SMOOTHING = 2, 0.3
# Without a reading for so long the estimate is given up, over as long again.
STALE_US = 20_000_000
# A link is never given less than this share of its bound: without any load of its own nothing would be learnt of it.
LEAST_SHARE = 0.05
# A rise of the round-trip time that is no queue: jitter of the path and of the measurement.
QUIET_RISE_US = 1_500
# The least of so many readings counts: one that was late is no queue.
RTT_READINGS = 2
# Of what is handed out, per reading of the round-trip time: taken back for every so much of a rise.
BRAKE_STEP = 0.05
BRAKE_MOST = 0.1
# Given when there is no rise: before the first queue; until it is near what was handed out when the last queue began;
# and from there on, which grows with the square of the time without a queue.
SEARCH_STEP = 0.008
NEAR = 0.96
RETURN_STEP = 0.02
NEAR_STEP = 0.0005
CALM_US = 6_000_000
# Once there was no queue for so long, and less than this part of what the sensors say is handed out: this part of what
# is missing to it.
FORGET_US = 4_000_000
INSIST_FACTOR = 0.92
RELEASE_PART = 0.3
FACTOR_LEAST, FACTOR_MOST = 0.3, 1.3
# While less than this share of it is used no queue says nothing: who comes then is to find a little less than all.
USED_SHARE = 0.8
UNUSED_FACTOR, UNUSED_PART = 0.9, 0.1
# A standing queue is drained in this time, on top.
DRAIN_US = 500_000
# The round-trip time without a queue is the least of this time.
BASE_US = 300_000_000


class VirtualLink:
    """The state of one virtual link."""

    def __init__(self, bound_bps: float) -> None:
        """`bound_bps`: the most that CHART may use, as operators state it."""
        self.bound_bps = bound_bps
        self.estimate_bps: float | None = None
        self.factor = 1.0
        self.rise_us = 0.0
        # What was handed out when the last queue began, and when a queue stood last.
        self._ceiling_bps = 0.0
        self._queued_us = 0
        self._read_us = 0
        self._readings = 0
        # Readings in a row above the estimate, negative: below.
        self._streak = 0
        # (end, interval, bits per second) of the loads that the nearer element reported.
        self._loads: deque[tuple[int, int, float]] = deque()
        # (time, round-trip time), rising: the first one is the least of all that still count.
        self._least: deque[tuple[int, float]] = deque()
        self._recent: deque[float] = deque(maxlen=RTT_READINGS)

    def note_load(self, end_us: int, interval_us: int, sent_bps: float) -> None:
        """What the nearer element sent into the link in an interval."""
        self._loads.append((end_us, interval_us, sent_bps))
        while self._loads and self._loads[0][0] < end_us - LOADS_KEPT_US:
            self._loads.popleft()

    def own_bps(self, from_us: int, until_us: int) -> float:
        """Mean own load between two times; 0 where nothing was reported."""
        weighted = [
            (min(until_us, end) - max(from_us, end - interval), bps)
            for end, interval, bps in self._loads
            if end > from_us and end - interval < until_us
        ]
        total_us = sum(weight for weight, _ in weighted)
        return sum(weight * bps for weight, bps in weighted) / total_us if total_us > 0 else 0.0

    def note_available(self, available_bps: float, probe_bytes: int, measured_at_us: int) -> None:
        """A reading of the available bandwidth that ended then; its own packets were among what was sent."""
        if measured_at_us <= self._read_us or available_bps < 0 or not math.isfinite(available_bps):
            return
        from_us = max(self._read_us, measured_at_us - PROBE_US)
        probes_bps = probe_bytes * 8e6 / PROBE_US
        own_bps = max(0.0, self.own_bps(from_us, measured_at_us) - probes_bps)
        target_bps = min(self.bound_bps, available_bps + own_bps)
        before = self.estimate_bps
        if before is None or measured_at_us > self._read_us + 2 * STALE_US:
            self.estimate_bps = target_bps
            self._readings, self._streak = 1, 0
        else:
            used = self._used()
            self._readings += 1
            self._streak = max(1, self._streak + 1) if target_bps > before else min(-1, self._streak - 1)
            part = STREAK_SMOOTHING if abs(self._streak) >= STREAK else SMOOTHING
            # Of the first ones the mean.
            self.estimate_bps = before + max(part, 1 / self._readings) * (target_bps - before)
            if used and self.estimate_bps > before:
                # Nothing is handed out at once for a reading, which may err by a fifth of the link: the brake is let
                # go the faster for it, as long as no queue stands.
                self.factor = max(FACTOR_LEAST, self.factor * before / self.estimate_bps)
        self._read_us = measured_at_us

    def note_rtt(self, rtt_us: float, measured_at_us: int) -> None:
        """A round-trip time between the two elements: the brake."""
        if rtt_us <= 0 or not math.isfinite(rtt_us):
            return
        while self._least and self._least[-1][1] >= rtt_us:
            self._least.pop()
        self._least.append((measured_at_us, rtt_us))
        while self._least[0][0] < measured_at_us - BASE_US:
            self._least.popleft()
        self._recent.append(rtt_us)
        queued = self.rise_us > QUIET_RISE_US
        self.rise_us = min(self._recent) - self._least[0][1]
        excess = (self.rise_us - QUIET_RISE_US) / QUIET_RISE_US
        if excess > 0:
            if not queued:
                self._note_ceiling()
            self._queued_us = measured_at_us
            self.factor = max(FACTOR_LEAST, self.factor * (1 - min(BRAKE_MOST, BRAKE_STEP * excess)))
        elif not self._used():
            self.factor += UNUSED_PART * (UNUSED_FACTOR - self.factor)
        else:
            self.factor = min(FACTOR_MOST, self.factor + self._release(measured_at_us))

    def _level_bps(self) -> float:
        """What is handed out but for the drain."""
        return self.factor * (self.estimate_bps or 0.0)

    def _note_ceiling(self) -> None:
        """A queue begins: a ceiling that is lower than the last one is believed half."""
        level_bps = self._level_bps()
        self._ceiling_bps = max(level_bps, (level_bps + self._ceiling_bps) / 2)

    def _release(self, now_us: int) -> float:
        """By how much the brake is let go after a reading without a rise."""
        level_bps, calm_us = self._level_bps(), now_us - self._queued_us
        if not self._queued_us:
            given = SEARCH_STEP
        elif level_bps < NEAR * self._ceiling_bps:
            given = RETURN_STEP
        else:
            given = min(RETURN_STEP, NEAR_STEP * (1 + calm_us / CALM_US) ** 2)
        if calm_us > FORGET_US:
            given = max(given, RELEASE_PART * (INSIST_FACTOR - self.factor))
        return given

    def _used(self) -> bool:
        """Whether the element sends about what it may."""
        if not self._loads or self.estimate_bps is None:
            return False
        return self._loads[-1][2] >= USED_SHARE * min(self.bound_bps, self._level_bps())

    def capacity_bps(self, now_us: int) -> float:
        """What CHART may use now: between LEAST_SHARE of the bound and the bound."""
        least_bps = LEAST_SHARE * self.bound_bps
        if self.estimate_bps is None:
            return least_bps
        drain = max(0.0, self.rise_us - QUIET_RISE_US) / DRAIN_US
        capacity_bps = self.estimate_bps * (self.factor - min(0.5, drain))
        late = min(1.0, max(0.0, (now_us - self._read_us - STALE_US) / STALE_US))
        return min(self.bound_bps, max(least_bps, capacity_bps * (1 - late)))


def is_virtual(tags: dict[str, str]) -> bool:
    """Whether a link's tags say so."""
    return tags.get(TAG, "").strip().lower() in ("1", "true", "yes")


__all__ = ["TAG", "VirtualLink", "is_virtual"]
