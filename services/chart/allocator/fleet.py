"""The control step of controller.py for many links at once.

`LinkController` says what is computed and why; a `Fleet` computes the same for a thousand links in the time that one
`LinkController` needs for forty (services/tests/allocator/test_fleet.py compares them step by step). Each quantity is
an array over slots, one slot per link; `step` takes the slots whose loads arrived and changes only those.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chart.allocator import controller as law
from chart.allocator import legacy

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

FIRST_SIZE = 64
# Relative change of a link's figures that is worth a record.
SIGNIFICANT_CHANGE = 0.01
# Columns of a table of loads, in the order of the fields of LinkLoad that `LOAD_FIELDS` names.
LOAD_FIELDS = (
    "explicit_rate_bytes",
    "legacy_bytes",
    "queue_bytes",
    "explicit_rate_queue_bytes",
    "users",
    "legacy_flows",
    "guaranteed_in_use_bps",
    "in_band_committed_bps",
    "rtt_us",
)


class Fleet:
    """State of all links that a replica works for."""

    def __init__(self) -> None:
        self._size = 0
        self._free: list[int] = []
        # What is known of a link: capacity, guaranteed rates that hold now; bits per second.
        self.link_bps = np.zeros(0)
        self.reserved_bps = np.zeros(0)
        # What was decided last: R, C_er, legacy share in bits per second, and N.
        self.rate = np.zeros(0)
        self.capacity = np.zeros(0)
        self.legacy_share = np.zeros(0)
        self.flows = np.zeros(0)
        # What was told last, whole numbers; -1: nothing.
        self.told_rate = np.zeros(0)
        self.told_capacity = np.zeros(0)
        self.told_legacy = np.zeros(0)
        self.told_flows = np.zeros(0)
        # Links across routers of others (virtual.py).
        self.virtual = np.zeros(0, bool)
        self._rcp = np.zeros(0, bool)
        self._recent_flows = np.zeros((law.DEPARTURE_SAMPLES, 0))
        self._demand = np.zeros(0)
        self._recent_legacy = np.zeros((legacy.PEAK_SAMPLES, 0))
        # Ring of the last rates: `_written` is how many there are, `_next` where the next one goes.
        self._history = np.zeros((law.MAXIMUM_DELAY_PERIODS, 0))
        self._written = np.zeros(0, np.int64)
        self._next = np.zeros(0, np.int64)
        self._load = np.zeros(0)
        self._going_load = np.zeros(0)
        self._paused_samples = np.zeros(0)
        self._queue_bytes = np.zeros(0)
        self._full_periods = np.zeros(0)
        self._trust = np.zeros(0)
        self._queue_periods = np.zeros(0)
        self._short_periods = np.zeros(0)
        self._settling = np.zeros(0)
        self._joining_samples = np.zeros(0)
        self._joined_share = np.zeros(0)
        self._virtual_queue = np.zeros(0)

    def add(self, name: str, available_bps: float, link_bps: float, reserved_bps: float) -> int:
        """A new link under the control law `name`; `available_bps` is what a predecessor told last. Its slot."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        for array in self._arrays():
            array[..., slot] = 0
        self.rate[slot] = available_bps
        self.link_bps[slot] = link_bps
        self.reserved_bps[slot] = reserved_bps
        self._rcp[slot] = name == law.Rcp.name
        self._trust[slot] = 1.0
        for told in (self.told_rate, self.told_capacity, self.told_legacy, self.told_flows):
            told[slot] = -1
        return slot

    def remove(self, slot: int) -> None:
        """A link is no more."""
        self._free.append(slot)

    def _arrays(self) -> list[NDArray[np.generic]]:
        return [value for value in vars(self).values() if isinstance(value, np.ndarray)]

    def _grow(self) -> None:
        added = max(FIRST_SIZE, self._size)
        for name, value in list(vars(self).items()):
            if isinstance(value, np.ndarray):
                room = np.zeros((*value.shape[:-1], added), value.dtype)
                setattr(self, name, np.concatenate([value, room], axis=-1))
        self._free += range(self._size + added - 1, self._size - 1, -1)
        self._size += added

    def step(self, slots: Integers, loads: Floats, interval_us: Floats) -> None:
        """One control period of the links in `slots` (each at most once). `loads`: one column per entry of
        LOAD_FIELDS.
        """
        per_second = 8e6 / interval_us
        explicit, legacy_bps = loads[:, 0] * per_second, loads[:, 1] * per_second
        queue = loads[:, 3]
        legacy_queue = np.maximum(0.0, loads[:, 2] - queue)
        in_use = loads[:, 6] + loads[:, 7]
        reserved = self.reserved_bps[slots] + loads[:, 7]
        joined = self._count_flows(slots, loads[:, 4])
        capacity = self._split(slots, np.maximum(reserved, in_use), legacy_bps, legacy_queue, loads[:, 5])
        delay = _delay(loads[:, 8], interval_us)
        load = self._available_load(slots, explicit, in_use, queue, interval_us, capacity, delay)
        active = self.flows[slots] > 0
        self._idle(slots[~active], capacity[~active])
        if active.any():
            self._control(
                slots[active],
                _Period(
                    interval_us=np.maximum(1.0, interval_us[active]),
                    rtt_us=loads[active, 8],
                    capacity=capacity[active],
                    load=load[active],
                    queue=queue[active],
                    joined=joined[active],
                ),
            )
        self._load[slots] = load
        self._queue_bytes[slots] = queue
        at = self._next[slots]
        self._history[at, slots] = self.rate[slots]
        self._next[slots] = (at + 1) % law.MAXIMUM_DELAY_PERIODS
        self._written[slots] = np.minimum(self._written[slots] + 1, law.MAXIMUM_DELAY_PERIODS)

    def figures(self, slots: Integers) -> tuple[Integers, Integers, Integers, Integers]:
        """R, C_er, legacy share and N as they are told: whole numbers."""
        rate, capacity, share, flows = (
            one[slots].astype(np.int64) for one in (self.rate, self.capacity, self.legacy_share, self.flows)
        )
        return rate, capacity, share, flows

    def tell(self, slots: Integers, figures: tuple[Integers, Integers, Integers, Integers]) -> None:
        """These figures were told."""
        for told, now in zip(
            (self.told_rate, self.told_capacity, self.told_legacy, self.told_flows), figures, strict=True
        ):
            told[slots] = now

    def moved(self, slots: Integers) -> Mask:
        """Links whose figures moved by 1 % since they were told, or whose flow count changed."""
        rate, capacity, share = (np.trunc(one[slots]) for one in (self.rate, self.capacity, self.legacy_share))
        told_rate, told_capacity = self.told_rate[slots], self.told_capacity[slots]
        changed: Mask = (
            (self.told_flows[slots] != self.flows[slots])
            | (np.abs(rate - told_rate) > SIGNIFICANT_CHANGE * told_rate)
            | (np.abs(capacity - told_capacity) > SIGNIFICANT_CHANGE * told_capacity)
            | (np.abs(share - self.told_legacy[slots]) > SIGNIFICANT_CHANGE * told_capacity)
        )
        return changed

    def _count_flows(self, slots: Integers, active_flows: Floats) -> Floats:
        """See ActiveFlows; returns the change."""
        before = self.flows[slots]
        recent = self._recent_flows[:, slots]
        recent = np.concatenate([recent[1:], active_flows[None, :]])
        self._recent_flows[:, slots] = recent
        self.flows[slots] = recent.max(axis=0)
        return self.flows[slots] - before

    def _split(
        self, slots: Integers, guaranteed: Floats, legacy_bps: Floats, legacy_queue: Floats, legacy_flows: Floats
    ) -> Floats:
        """See LinkController._split."""
        target = law.TARGET_UTILISATION * self.link_bps[slots]
        usable = target - np.minimum(target, guaranteed)
        share = self.legacy_share[slots]
        demand = self._legacy_demand(slots, legacy_bps, legacy_queue, share, usable)
        users = np.maximum(1.0, legacy_flows)
        fair = usable * users / (users + np.maximum(1.0, self.flows[slots]))
        share = np.where(demand <= 0, 0.0, np.minimum(demand, fair))
        self.legacy_share[slots] = share
        capacity = np.maximum(law.SMALLEST_RATE_BPS, usable - share)
        before, rate = self.capacity[slots], self.rate[slots]
        rate = np.where(before > 0, rate * capacity / np.where(before > 0, before, 1.0), rate)
        self.rate[slots] = np.where(rate <= 0, capacity, rate)
        self.capacity[slots] = capacity
        return capacity

    def _legacy_demand(self, slots: Integers, used: Floats, queued: Floats, share: Floats, usable: Floats) -> Floats:
        """See LegacyDemand."""
        recent = np.concatenate([self._recent_legacy[1:, slots], used[None, :]])
        self._recent_legacy[:, slots] = recent
        peak = recent.max(axis=0)
        demand = self._demand[slots]
        foothold = legacy.FOOTHOLD * usable
        comfortable = legacy.HEADROOM * peak + foothold
        filled = (used >= legacy.FILLED_SHARE * share) | (queued > 0)
        wanted = legacy.GROWTH * np.maximum(used, share) + foothold
        less = np.where(demand > comfortable, demand + legacy.GIVE_BACK * (comfortable - demand), comfortable)
        grows = filled & (used >= legacy.TRICKLE * usable)
        after = np.where(grows, np.minimum(usable, np.maximum(demand, wanted)), less)
        after = np.where(peak < legacy.TRICKLE * usable, legacy.HEADROOM * peak, after)
        after = np.where(peak <= 0, 0.0, after)
        # Nothing of the element is held back in front of a virtual link: what is used is what is wanted. Most of it are
        # packets of sensors; probed for like a flow they moved R up and down by a twentieth.
        after = np.where(self.virtual[slots], recent.mean(axis=0), after)
        self._demand[slots] = after
        return after

    def _available_load(
        self,
        slots: Integers,
        explicit: Floats,
        in_use: Floats,
        queue: Floats,
        interval_us: Floats,
        capacity: Floats,
        delay: Floats,
    ) -> Floats:
        """See LinkController._available_load_bps."""
        before = self._queue_bytes[slots]
        queued = np.maximum(0.0, queue - before) * 8e6 / interval_us
        load = np.maximum(0.0, explicit + queued - in_use)
        queue_us = queue * 8e6 / self.link_bps[slots]
        full = (queue_us > law.FULL_QUEUE_US) & (queue >= 0.98 * before)
        periods = self._full_periods[slots]
        doubled = np.minimum(np.log2(law.FULL_QUEUE_LOAD_LIMIT), periods // (delay + 2))
        self._full_periods[slots] = np.where(full, periods + 1, 0.0)
        return np.where(full, np.maximum(load, law.FULL_QUEUE_LOAD * 2.0**doubled * capacity), load)

    def _idle(self, slots: Integers, capacity: Floats) -> None:
        """No flow: the next one may have everything."""
        self.rate[slots] = capacity
        self._virtual_queue[slots] = 0.0
        self._written[slots] = 0
        self._going_load[slots] = 0.0
        self._paused_samples[slots] = 0.0
        self._joining_samples[slots] = 0.0

    def _control(self, slots: Integers, now: _Period) -> None:
        """See LinkController._step: one period of links with at least one flow."""
        delay = _delay(now.rtt_us, now.interval_us)
        capacity = now.capacity * self._drained_share(slots, now, delay)
        rate, load = self.rate[slots], now.load
        applied = self._past_rate(slots, delay, rate)
        self._settling[slots] = np.maximum(0.0, self._settling[slots] - 1)

        joins = now.joined > 0
        waits = self._pauses(slots, load) & (now.joined == 0)
        passed = joins | waits
        low = (load >= law.UNDERLOAD * capacity) | (load <= 0) | (self._queue_periods[slots] > 0)
        short = np.where(passed, self._short_periods[slots], np.where(low, 0.0, self._short_periods[slots] + 1))
        self._short_periods[slots] = short
        left = now.joined < 0
        falls_short = ~passed & np.where(low, left & (load > 0) & (load < capacity), left | (short > delay + 1))
        overload = ~passed & ~falls_short & (load > law.OVERLOAD * now.capacity)
        jumps = joins | falls_short | overload
        steady = ~jumps & ~waits & (self._settling[slots] == 0)

        after = rate.copy()
        wanted = self._load[slots] + now.joined * rate
        some = joins & (wanted > 0)
        after[some] = rate[some] * np.minimum(1.0, now.capacity[some] / wanted[some])
        if falls_short.any():
            lowest = self._lowest_rate(slots[falls_short], delay[falls_short], rate[falls_short])
            raised = lowest * capacity[falls_short] / load[falls_short]
            after[falls_short] = np.maximum(rate[falls_short], raised)
        after[overload] = np.minimum(rate[overload], applied[overload] * capacity[overload] / load[overload])
        self._settling[slots[jumps]] = delay[jumps] + 1
        self._short_periods[slots[jumps]] = 0
        self._virtual_queue[slots[jumps]] = 0.0
        if steady.any():
            after[steady] = self._propose(slots, now, delay, capacity, applied, steady)[steady]
        self._bound(slots, after, capacity)
        self._leave_newcomers_theirs(slots, now, delay)

    def _leave_newcomers_theirs(self, slots: Integers, now: _Period, delay: Floats) -> None:
        """See LinkController._leave_newcomers_theirs."""
        joins, left = now.joined > 0, self._joining_samples[slots]
        if not (joins.any() or left.any()):
            return
        rate = self.rate[slots]
        joined = np.maximum(rate / now.capacity, 1.0 / self.flows[slots])
        share = np.where(joins, joined, self._joined_share[slots])
        waiting = (now.joined == 0) & (left > 0)
        limit = np.maximum(law.SMALLEST_RATE_BPS, share * now.capacity)
        cut = waiting & (rate > limit)
        self._joined_share[slots] = share
        self._joining_samples[slots] = np.where(joins, law.JOINING_SAMPLES + delay, np.where(waiting, left - 1, 0.0))
        self.rate[slots] = np.where(cut, limit, rate)
        queue = self._virtual_queue[slots]
        self._virtual_queue[slots] = np.where(cut & ~self._rcp[slots], np.maximum(0.0, queue), queue)

    def _pauses(self, slots: Integers, load: Floats) -> Mask:
        """See LinkController._pauses."""
        going, paused = self._going_load[slots], self._paused_samples[slots]
        fallen = load < law.PAUSE * going
        paused = np.where(fallen, paused + 1, 0.0)
        pauses: Mask = fallen & (paused <= law.DEPARTURE_SAMPLES)
        self._going_load[slots] = np.where(pauses, going, load)
        self._paused_samples[slots] = paused
        return pauses

    def _propose(
        self, slots: Integers, now: _Period, delay: Floats, capacity: Floats, applied: Floats, steady: Mask
    ) -> Floats:
        """What the control laws say; only the links that are `steady` take it."""
        period_s = now.interval_us / 1e6
        rate, flows = self.rate[slots], self.flows[slots]
        rcp = self._rcp[slots]
        change = (now.load - capacity) * period_s
        bound = law.NEC_QUEUE_BOUND * capacity * period_s * (delay + 2)
        queue = np.minimum(bound, np.maximum(-bound, self._virtual_queue[slots] + change))
        responsive = np.minimum(flows, np.maximum(1.0, now.load / np.maximum(applied, 1.0)))
        scale = 1.0 / (responsive * period_s)
        derivative = law.NEC_DERIVATIVE / (delay + 2) * scale
        proportional = law.NEC_PROPORTIONAL / (delay + 2) ** 2 * scale
        self._virtual_queue[slots] = np.where(steady & ~rcp, queue, self._virtual_queue[slots])
        proposed = rate - proportional * queue - derivative * change
        if rcp.any():
            d0_s = np.maximum(now.rtt_us / 1e6 + law.PIPELINE_US / 1e6 + period_s, 2 * period_s)
            drive = law.RCP_ALPHA * (capacity - now.load) - law.RCP_BETA * (now.queue * 8.0) / d0_s
            proposed = np.where(rcp, rate * (1 + period_s / d0_s * drive / capacity), proposed)
        return proposed

    def _bound(self, slots: Integers, rate: Floats, capacity: Floats) -> None:
        """See LinkController._bound."""
        floor = np.maximum(law.SMALLEST_RATE_BPS, self._trust[slots] * capacity / self.flows[slots])
        high = rate >= capacity
        low = ~high & (rate <= floor)
        queue = self._virtual_queue[slots]
        queue = np.where(high, np.maximum(0.0, queue), np.where(low, np.minimum(0.0, queue), queue))
        self._virtual_queue[slots] = np.where(self._rcp[slots], 0.0, queue)
        self.rate[slots] = np.where(high, np.maximum(law.SMALLEST_RATE_BPS, capacity), np.where(low, floor, rate))

    def _drained_share(self, slots: Integers, now: _Period, delay: Floats) -> Floats:
        """See LinkController._drained_share."""
        queue_us = now.queue * 8e6 / self.link_bps[slots]
        short = queue_us <= law.QUEUE_LIMIT_US
        periods = np.where(short, 0.0, self._queue_periods[slots] + 1)
        self._queue_periods[slots] = periods
        trust = self._trust[slots]
        stays = periods > law.UNCOUNTED_AFTER_PERIODS + law.DRAIN_DELAYS * delay
        trust = np.where(short, np.minimum(1.0, trust + 0.01), np.where(stays, np.maximum(0.01, trust * 0.9), trust))
        self._trust[slots] = trust
        drain_us = np.maximum(law.DRAIN_US, law.DRAIN_DELAYS * (delay + 1) * now.interval_us)
        return np.where(short, 1.0, np.maximum(law.LOWEST_DRAIN_SHARE, 1.0 - queue_us / drain_us))

    def _past_rate(self, slots: Integers, delay: Floats, rate: Floats) -> Floats:
        """The rate that caused the present load: that of `delay` periods ago, the oldest there is if that is later."""
        written = self._written[slots]
        back = np.maximum(1, np.minimum(delay.astype(np.int64), written))
        found = self._history[(self._next[slots] - back) % law.MAXIMUM_DELAY_PERIODS, slots]
        return np.where(written > 0, found, rate)

    def _lowest_rate(self, slots: Integers, delay: Floats, rate: Floats) -> Floats:
        """The lowest rate of the last delay + 1 periods and of now."""
        ages = np.arange(1, law.MAXIMUM_DELAY_PERIODS + 1)[:, None]
        at = (self._next[slots][None, :] - ages) % law.MAXIMUM_DELAY_PERIODS
        known = ages <= np.minimum(delay.astype(np.int64) + 1, self._written[slots])[None, :]
        past = np.where(known, self._history[at, slots[None, :]], np.inf)
        lowest: Floats = np.minimum(rate, past.min(axis=0))
        return lowest


def _delay(rtt_us: Floats, interval_us: Floats) -> Floats:
    """Feedback delay in periods."""
    delay: Floats = np.ceil((rtt_us + law.PIPELINE_US) / np.maximum(1.0, interval_us))
    return np.minimum(law.MAXIMUM_DELAY_PERIODS, delay)


class _Period:
    """What one interval showed of the links with flows; arrays over links."""

    __slots__ = ("capacity", "interval_us", "joined", "load", "queue", "rtt_us")

    def __init__(
        self, *, interval_us: Floats, rtt_us: Floats, capacity: Floats, load: Floats, queue: Floats, joined: Floats
    ) -> None:
        self.interval_us = interval_us
        self.rtt_us = rtt_us
        self.capacity = capacity
        self.load = load
        self.queue = queue
        self.joined = joined
