"""Link rate control: one fair share R per link, and no per-flow state.

The loop counts users: R is what all flows of one user may together send above their guaranteed rates, and his sender
gives each its part (docs/link-control.md, sharing). Around a law (laws.py) the controller keeps what is known without
feedback: C_er = 0.97 C - GR - legacy share; R is never above C_er and never below C_er / N (the max-min fair rate lies
between); arrivals and departures and large overloads are fed forward, so the law itself only works on what is left.

All links that have a report are stepped at once, see links.py. Rates are bits per second with IP headers, times
microseconds; a period is the interval of a report.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chart.allocator import laws, legacy
from chart.allocator.links import Floats, Integers, LinkTable, Mask

# Share of a link that is handed out at all.
TARGET_UTILISATION = 0.97
# A user that was silent for fewer samples than this still counts: N must not follow every pause.
DEPARTURE_SAMPLES = 3
# A load that falls below this share of what it was is a pause of the flows, until it has lasted as many samples.
PAUSE = 0.25
# For so many samples and the feedback delay after a join R is not raised: what new flows leave, which still learn their
# rate, is theirs.
JOINING_SAMPLES = 6
# Load above C_er beyond which R is set by proportion at once instead of by the law.
OVERLOAD = 1.1
# Load below this share of C_er does the same upwards, once per feedback delay.
UNDERLOAD = 0.975
# A full queue hides what arrives: one this long that does not shrink counts as that much load.
FULL_QUEUE_US = 20_000
FULL_QUEUE_LOAD = 1.4
# What it counts as doubles with every feedback delay that it stays, up to this: a crowd that wakes at once at a high R.
FULL_QUEUE_LOAD_LIMIT = 1024.0
# It stays while it is not shorter than this part of what it was.
FULL_QUEUE_STAYS = 0.98
# A real queue longer than this is drained on purpose (5 ms is the goal for queueing delay) ...
QUEUE_LIMIT_US = 2_000
# ... by giving out less, in this time or three feedback delays, but never less than half of C_er.
DRAIN_US = 300_000
DRAIN_DELAYS = 3
LOWEST_DRAIN_SHARE = 0.5
# A queue that outlives so many periods plus three delays was not caused by the users that are counted: the trust in
# their count falls by this factor per period, not below the least, and returns by so much per period without a queue.
UNCOUNTED_AFTER_PERIODS = 15
TRUST_FALLS = 0.9
LEAST_TRUST = 0.01
TRUST_RETURNS = 0.01
# No link is ever told less: the smallest non-zero rate on the wire is 1 kbit/s.
SMALLEST_RATE_BPS = 1_000.0


@dataclass(frozen=True, slots=True)
class _Period:
    """What one interval showed of the links with users; arrays over these links."""

    interval_us: Floats
    rtt_us: Floats
    delay_periods: Floats
    # C_er, and what arrived above the guaranteed rates.
    capacity_bps: Floats
    load_bps: Floats
    queue_bytes: Floats
    # Change of the user count.
    joined: Floats


class LinkController(LinkTable):
    """Rate control of all links that a replica works for."""

    def __init__(self) -> None:
        super().__init__()
        self._rcp = np.zeros(0, bool)
        self._recent_users = np.zeros((DEPARTURE_SAMPLES, 0))
        self._legacy_demand_bps = np.zeros(0)
        self._recent_legacy_bps = np.zeros((legacy.PEAK_SAMPLES, 0))
        # Ring of the last rates: `_written` is how many there are, `_next` where the next one goes.
        self._history = np.zeros((laws.MAXIMUM_DELAY_PERIODS, 0))
        self._written = np.zeros(0, np.int64)
        self._next = np.zeros(0, np.int64)
        # Of the sample before: load and queue.
        self._load_bps = np.zeros(0)
        self._queue_bytes = np.zeros(0)
        # The load before it fell far, and for how many samples it has.
        self._going_load_bps = np.zeros(0)
        self._paused_samples = np.zeros(0)
        # For how many periods the queue has been full, or longer than is wanted, and the load short of C_er.
        self._full_periods = np.zeros(0)
        self._queue_periods = np.zeros(0)
        self._short_periods = np.zeros(0)
        # Trust in the count of users: falls while a queue stands although R is at C_er / N.
        self._trust = np.zeros(0)
        # For how many periods more the law waits until the load shows what was fed forward.
        self._settling = np.zeros(0)
        # For how many samples more R stays below the part of C_er that it was when somebody joined.
        self._joining_samples = np.zeros(0)
        self._joined_share = np.zeros(0)
        # NEC's virtual queue, bits.
        self._virtual_queue = np.zeros(0)

    def add(self, law: str, rate_bps: float, link_bps: float, reserved_bps: float) -> int:
        """A new link under a control law; `rate_bps` is what a predecessor told last, 0: none. Its slot."""
        slot = self.new_slot(link_bps, reserved_bps, rate_bps)
        self._rcp[slot] = law == laws.RCP
        self._trust[slot] = 1.0
        return slot

    def step(self, slots: Integers, loads: Floats, interval_us: Floats) -> None:
        """One control period of the links in `slots` (each at most once). `loads`: one column per entry of
        LOAD_FIELDS.
        """
        explicit_bytes, legacy_bytes, queued_bytes, queue_bytes, users, legacy_flows, in_use, in_band, rtt_us = loads.T
        per_second = 8e6 / interval_us
        legacy_queue_bytes = np.maximum(0.0, queued_bytes - queue_bytes)
        in_use_bps = in_use + in_band
        reserved_bps = self.reserved_bps[slots] + in_band
        joined = self._count_users(slots, users)
        usable_bps = self._usable(slots, np.maximum(reserved_bps, in_use_bps))
        capacity = self._split(slots, usable_bps, legacy_bytes * per_second, legacy_queue_bytes, legacy_flows)
        delay = laws.feedback_delay(rtt_us, interval_us)
        queued_bps = np.maximum(0.0, queue_bytes - self._queue_bytes[slots]) * 8e6 / interval_us
        arrived_bps = np.maximum(0.0, explicit_bytes * per_second + queued_bps - in_use_bps)
        load = self._with_hidden_load(slots, arrived_bps, queue_bytes, capacity, delay)
        active = self.users[slots] > 0
        self._idle(slots[~active], capacity[~active])
        if active.any():
            self._control(
                slots[active],
                _Period(
                    interval_us=np.maximum(1.0, interval_us[active]),
                    rtt_us=rtt_us[active],
                    delay_periods=delay[active],
                    capacity_bps=capacity[active],
                    load_bps=load[active],
                    queue_bytes=queue_bytes[active],
                    joined=joined[active],
                ),
            )
        self._load_bps[slots] = load
        self._queue_bytes[slots] = queue_bytes
        at = self._next[slots]
        self._history[at, slots] = self.rate_bps[slots]
        self._next[slots] = (at + 1) % laws.MAXIMUM_DELAY_PERIODS
        self._written[slots] = np.minimum(self._written[slots] + 1, laws.MAXIMUM_DELAY_PERIODS)

    def _count_users(self, slots: Integers, users: Floats) -> Floats:
        """Arrivals count at once, departures after a few silent samples. Returns the change."""
        before = self.users[slots]
        recent = np.concatenate([self._recent_users[1:, slots], users[None, :]])
        self._recent_users[:, slots] = recent
        self.users[slots] = recent.max(axis=0)
        return self.users[slots] - before

    def _usable(self, slots: Integers, guaranteed_bps: Floats) -> Floats:
        """What is handed out of a link beside guaranteed rates."""
        target_bps = TARGET_UTILISATION * self.link_bps[slots]
        return target_bps - np.minimum(target_bps, guaranteed_bps)

    def _split(
        self, slots: Integers, usable_bps: Floats, legacy_bps: Floats, legacy_queue_bytes: Floats, legacy_flows: Floats
    ) -> Floats:
        """C_er = 0.97 C - GR - legacy share, which is returned; a change of C_er scales R with it."""
        demand_bps = self._legacy_demand(slots, legacy_bps, legacy_queue_bytes, usable_bps)
        share_bps = legacy.share_bps(demand_bps, usable_bps, legacy_flows, self.users[slots])
        self.legacy_share_bps[slots] = share_bps
        capacity = np.maximum(SMALLEST_RATE_BPS, usable_bps - share_bps)
        before, rate = self.capacity_bps[slots], self.rate_bps[slots]
        rate = np.where(before > 0, rate * capacity / np.where(before > 0, before, 1.0), rate)
        self.rate_bps[slots] = np.where(rate <= 0, capacity, rate)
        self.capacity_bps[slots] = capacity
        return capacity

    def _legacy_demand(self, slots: Integers, used_bps: Floats, queued_bytes: Floats, usable_bps: Floats) -> Floats:
        """What legacy traffic would use of each link.

        Nothing of the element is held back in front of a virtual link: what is used is what is wanted. Most of it are
        packets of sensors; probed for like a flow they moved R up and down by a twentieth.
        """
        recent_bps = np.concatenate([self._recent_legacy_bps[1:, slots], used_bps[None, :]])
        self._recent_legacy_bps[:, slots] = recent_bps
        before_bps, given_bps = self._legacy_demand_bps[slots], self.legacy_share_bps[slots]
        after_bps = legacy.demand_bps(before_bps, recent_bps, queued_bytes, given_bps, usable_bps)
        after_bps = np.where(self.virtual[slots], recent_bps.mean(axis=0), after_bps)
        self._legacy_demand_bps[slots] = after_bps
        return after_bps

    def _with_hidden_load(
        self, slots: Integers, arrived_bps: Floats, queue_bytes: Floats, capacity: Floats, delay: Floats
    ) -> Floats:
        """The load: what arrived above the guaranteed rates, and behind a full queue at least a multiple of C_er."""
        queue_us = queue_bytes * 8e6 / self.link_bps[slots]
        full = (queue_us > FULL_QUEUE_US) & (queue_bytes >= FULL_QUEUE_STAYS * self._queue_bytes[slots])
        periods = self._full_periods[slots]
        doubled = np.minimum(np.log2(FULL_QUEUE_LOAD_LIMIT), periods // (delay + 2))
        self._full_periods[slots] = np.where(full, periods + 1, 0.0)
        return np.where(full, np.maximum(arrived_bps, FULL_QUEUE_LOAD * 2.0**doubled * capacity), arrived_bps)

    def _idle(self, slots: Integers, capacity: Floats) -> None:
        """No user: the next one may have everything."""
        self.rate_bps[slots] = capacity
        self._virtual_queue[slots] = 0.0
        self._written[slots] = 0
        self._going_load_bps[slots] = 0.0
        self._paused_samples[slots] = 0.0
        self._joining_samples[slots] = 0.0

    def _control(self, slots: Integers, now: _Period) -> None:
        """One period of links with at least one user. What is fed forward jumps; for the rest the law steps, which
        waits after a jump until the load shows it, or it would correct the same error twice.
        """
        delay, load = now.delay_periods, now.load_bps
        capacity = now.capacity_bps * self._drained_share(slots, now)
        rate = self.rate_bps[slots]
        applied = self._past_rate(slots, delay, rate)
        self._settling[slots] = np.maximum(0.0, self._settling[slots] - 1)

        joins = now.joined > 0
        waits = self._pauses(slots, load) & (now.joined == 0)
        falls_short = self._falls_short(slots, now, capacity, ~(joins | waits))
        overload = ~(joins | waits | falls_short) & (load > OVERLOAD * now.capacity_bps)
        jumps = joins | falls_short | overload
        steady = ~jumps & ~waits & (self._settling[slots] == 0)

        after = rate.copy()
        # The old load and the new users at R fit: the load before them is known, theirs is at most R each.
        wanted = self._load_bps[slots] + now.joined * rate
        some = joins & (wanted > 0)
        after[some] = rate[some] * np.minimum(1.0, now.capacity_bps[some] / wanted[some])
        if falls_short.any():
            # The flows took the load at the rate `applied`; those limited elsewhere take no more than they did.
            lowest = self._lowest_rate(slots[falls_short], delay[falls_short], rate[falls_short])
            raised = lowest * capacity[falls_short] / load[falls_short]
            after[falls_short] = np.maximum(rate[falls_short], raised)
        after[overload] = np.minimum(rate[overload], applied[overload] * capacity[overload] / load[overload])
        self._settling[slots[jumps]] = delay[jumps] + 1
        self._short_periods[slots[jumps]] = 0
        self._virtual_queue[slots[jumps]] = 0.0
        if steady.any():
            after[steady] = self._propose(slots, now, capacity, applied, steady)[steady]
        self._bound(slots, after, capacity)
        self._leave_new_flows_theirs(slots, now)

    def _falls_short(self, slots: Integers, now: _Period, capacity: Floats, asked: Mask) -> Mask:
        """Whether to raise R by proportion, among the links that are `asked`: a user left, or the load has been far
        below C_er for a whole delay.
        """
        load, left, before = now.load_bps, now.joined < 0, self._short_periods[slots]
        near = (load >= UNDERLOAD * capacity) | (load <= 0) | (self._queue_periods[slots] > 0)
        short = np.where(asked, np.where(near, 0.0, before + 1), before)
        self._short_periods[slots] = short
        raises = np.where(near, left & (load > 0) & (load < capacity), left | (short > now.delay_periods + 1))
        falls_short: Mask = asked & raises
        return falls_short

    def _leave_new_flows_theirs(self, slots: Integers, now: _Period) -> None:
        """Keep R at most at what it was after a join, or C_er / N, until the new flows had time to take it. Others
        would take what they leave, and all of them together would be too much as soon as they have learned their rate.
        """
        joins, left = now.joined > 0, self._joining_samples[slots]
        if not (joins.any() or left.any()):
            return
        rate = self.rate_bps[slots]
        joined = np.maximum(rate / now.capacity_bps, 1.0 / self.users[slots])
        share = np.where(joins, joined, self._joined_share[slots])
        waiting = (now.joined == 0) & (left > 0)
        limit = np.maximum(SMALLEST_RATE_BPS, share * now.capacity_bps)
        cut = waiting & (rate > limit)
        self._joined_share[slots] = share
        after = np.where(joins, JOINING_SAMPLES + now.delay_periods, np.where(waiting, left - 1, 0.0))
        self._joining_samples[slots] = after
        self.rate_bps[slots] = np.where(cut, limit, rate)
        self._keep_no_credit(slots, cut)

    def _pauses(self, slots: Integers, load: Floats) -> Mask:
        """Whether the flows only pause: N still counts them, and they come back at R. What they leave is not free."""
        going, paused = self._going_load_bps[slots], self._paused_samples[slots]
        fallen = load < PAUSE * going
        paused = np.where(fallen, paused + 1, 0.0)
        pauses: Mask = fallen & (paused <= DEPARTURE_SAMPLES)
        self._going_load_bps[slots] = np.where(pauses, going, load)
        self._paused_samples[slots] = paused
        return pauses

    def _propose(self, slots: Integers, now: _Period, capacity: Floats, applied: Floats, steady: Mask) -> Floats:
        """What the control laws say; only the links that are `steady` take it."""
        rate, rcp, queue = self.rate_bps[slots], self._rcp[slots], self._virtual_queue[slots]
        loops = laws.Loops(
            period_s=now.interval_us / 1e6,
            rtt_us=now.rtt_us,
            delay_periods=now.delay_periods,
            capacity_bps=capacity,
            load_bps=now.load_bps,
            applied_bps=applied,
            queue_bytes=now.queue_bytes,
            users=self.users[slots],
        )
        proposed, queue_after = laws.nec(rate, queue, loops)
        self._virtual_queue[slots] = np.where(steady & ~rcp, queue_after, queue)
        if rcp.any():
            proposed = np.where(rcp, laws.rcp(rate, loops), proposed)
        return proposed

    def _bound(self, slots: Integers, rate: Floats, capacity: Floats) -> None:
        """C_er / N <= R <= C_er: N users at the lower bound fit, so the max-min fair rate is not below it."""
        floor = np.maximum(SMALLEST_RATE_BPS, self._trust[slots] * capacity / self.users[slots])
        high = rate >= capacity
        low = ~high & (rate <= floor)
        self._keep_no_credit(slots, high)
        queue = self._virtual_queue[slots]
        self._virtual_queue[slots] = np.where(low, np.minimum(0.0, queue), queue)
        self.rate_bps[slots] = np.where(high, np.maximum(SMALLEST_RATE_BPS, capacity), np.where(low, floor, rate))

    def _keep_no_credit(self, slots: Integers, cut: Mask) -> None:
        """Conditional integration: where R was cut no credit is kept in the virtual queue."""
        queue = self._virtual_queue[slots]
        self._virtual_queue[slots] = np.where(cut, np.maximum(0.0, queue), queue)

    def _drained_share(self, slots: Integers, now: _Period) -> Floats:
        """Share of C_er to give out while a queue stands; a queue that stays costs the count of users its trust."""
        delay = now.delay_periods
        queue_us = now.queue_bytes * 8e6 / self.link_bps[slots]
        short = queue_us <= QUEUE_LIMIT_US
        periods = np.where(short, 0.0, self._queue_periods[slots] + 1)
        self._queue_periods[slots] = periods
        trust = self._trust[slots]
        stays = periods > UNCOUNTED_AFTER_PERIODS + DRAIN_DELAYS * delay
        fallen = np.where(stays, np.maximum(LEAST_TRUST, trust * TRUST_FALLS), trust)
        self._trust[slots] = np.where(short, np.minimum(1.0, trust + TRUST_RETURNS), fallen)
        drain_us = np.maximum(DRAIN_US, DRAIN_DELAYS * (delay + 1) * now.interval_us)
        return np.where(short, 1.0, np.maximum(LOWEST_DRAIN_SHARE, 1.0 - queue_us / drain_us))

    def _past_rate(self, slots: Integers, delay: Floats, rate: Floats) -> Floats:
        """The rate that caused the present load: that of `delay` periods ago, the oldest there is if that is later."""
        written = self._written[slots]
        back = np.maximum(1, np.minimum(delay.astype(np.int64), written))
        found = self._history[(self._next[slots] - back) % laws.MAXIMUM_DELAY_PERIODS, slots]
        return np.where(written > 0, found, rate)

    def _lowest_rate(self, slots: Integers, delay: Floats, rate: Floats) -> Floats:
        """The lowest rate of the last delay + 1 periods and of now."""
        ages = np.arange(1, laws.MAXIMUM_DELAY_PERIODS + 1)[:, None]
        at = (self._next[slots][None, :] - ages) % laws.MAXIMUM_DELAY_PERIODS
        known = ages <= np.minimum(delay.astype(np.int64) + 1, self._written[slots])[None, :]
        past = np.where(known, self._history[at, slots[None, :]], np.inf)
        lowest: Floats = np.minimum(rate, past.min(axis=0))
        return lowest
