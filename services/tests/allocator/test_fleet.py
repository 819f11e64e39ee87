"""Many links at once are the same as each for itself."""

from __future__ import annotations

import random

import numpy as np
import pytest

from chart.allocator.controller import LinkController
from chart.allocator.fleet import LOAD_FIELDS, Fleet
from chart.allocator.service import sample_of
from chart.v1 import link_load_pb2

MEGA = 1_000_000
LINKS = 40
PERIODS = 300


def changing_load(numbers: random.Random, capacity_bps: int, period: int) -> link_load_pb2.LinkLoad:
    """A link's load: quiet, normal, overloaded, queueing, with legacy traffic, by turns."""
    phase = numbers.choice(("quiet", "normal", "normal", "overload", "queue", "legacy"))
    share = {"quiet": 0.0, "normal": 0.9, "overload": 1.4, "queue": 1.0, "legacy": 0.5}[phase]
    size = capacity_bps / 80 * share * numbers.uniform(0.5, 1.1)
    return link_load_pb2.LinkLoad(
        link_id="x",
        explicit_rate_bytes=int(size),
        legacy_bytes=int(capacity_bps / 80 * numbers.uniform(0, 0.6)) if phase == "legacy" else 0,
        queue_bytes=numbers.randint(0, 400_000) if phase == "queue" else numbers.choice((0, 0, 3000)),
        explicit_rate_queue_bytes=numbers.randint(0, 400_000) if phase == "queue" else 0,
        users=0 if phase == "quiet" else numbers.choice((1, 2, 2, 2, 5)),
        legacy_flows=numbers.randint(0, 3),
        guaranteed_in_use_bps=numbers.choice((0, 0, 10 * MEGA)),
        in_band_committed_bps=numbers.choice((0, 0, 2 * MEGA)),
        rtt_us=numbers.choice((0, 20_000, 200_000, 900_000)),
    )


@pytest.mark.parametrize("law", ["nec", "rcp"])
def test_a_fleet_steps_as_its_links_would_alone(law: str) -> None:
    numbers = random.Random(law)
    fleet = Fleet()
    capacities = [numbers.choice((1, 10, 100, 1000)) * MEGA for _ in range(LINKS)]
    reserved = [numbers.choice((0, 0, capacity // 5, capacity)) for capacity in capacities]
    started = [numbers.choice((0, capacity // 3)) for capacity in capacities]
    alone = [LinkController(law, before) for before in started]
    slots = np.array(
        [
            fleet.add(law, before, capacity, held)
            for before, capacity, held in zip(started, capacities, reserved, strict=True)
        ]
    )
    for period in range(PERIODS):
        # Not every link reports in every period.
        some = sorted(numbers.sample(range(LINKS), numbers.randint(1, LINKS)))
        loads = [changing_load(numbers, capacities[one], period) for one in some]
        interval_us = numbers.choice((100_000, 100_000, 50_000, 230_000))
        decisions = [
            alone[one].update(sample_of(load, interval_us, capacities[one], reserved[one]))
            for one, load in zip(some, loads, strict=True)
        ]
        table = np.array([[getattr(load, name) for name in LOAD_FIELDS] for load in loads], float)
        fleet.step(slots[some], table, np.full(len(some), float(interval_us)))
        mine = slots[some]
        told = [(one.available_bps, one.explicit_rate_capacity_bps, one.legacy_share_bps) for one in decisions]
        ours = np.stack([fleet.rate[mine], fleet.capacity[mine], fleet.legacy_share[mine]], axis=1)
        np.testing.assert_allclose(np.trunc(ours), np.array(told, float), rtol=1e-9, atol=1.01)
        assert fleet.flows[mine].tolist() == [one.active_flows for one in decisions]


def test_a_slot_is_used_again_and_begins_anew() -> None:
    fleet = Fleet()
    slot = fleet.add("nec", 0, 100 * MEGA, 0)
    fleet.step(np.array([slot]), np.array([[1e6, 0, 0, 0, 3, 0, 0, 0, 0]], float), np.array([1e5]))
    assert fleet.flows[slot] == 3
    fleet.remove(slot)
    assert fleet.add("nec", 7 * MEGA, 10 * MEGA, 0) == slot
    assert (fleet.flows[slot], fleet.rate[slot], fleet.link_bps[slot]) == (0, 7 * MEGA, 10 * MEGA)


def test_many_links_find_room() -> None:
    fleet = Fleet()
    slots = [fleet.add("nec", number, 1e6, 0) for number in range(500)]
    assert sorted(set(slots)) == sorted(slots)
    assert [fleet.rate[slot] for slot in slots] == list(range(500))


def test_only_what_moved_by_a_hundredth_is_told() -> None:
    fleet = Fleet()
    slots = np.array([fleet.add("nec", 0, 100 * MEGA, 0) for _ in range(2)])
    load = np.array([[1e6, 0, 0, 0, 1, 0, 0, 0, 0]] * 2, float)
    fleet.step(slots, load, np.full(2, 1e5))
    assert fleet.moved(slots).tolist() == [True, True]
    for told, now in (
        (fleet.told_rate, fleet.rate),
        (fleet.told_capacity, fleet.capacity),
        (fleet.told_legacy, fleet.legacy_share),
        (fleet.told_flows, fleet.flows),
    ):
        told[slots] = np.trunc(now[slots])
    assert fleet.moved(slots).tolist() == [False, False]
    fleet.rate[slots[0]] *= 0.98
    assert fleet.moved(slots).tolist() == [True, False]


@pytest.mark.parametrize("law", ["nec", "rcp"])
def test_a_queue_that_stays_full_costs_ever_more_alike(law: str) -> None:
    """A crowd that wakes at once: what arrives cannot be seen, and R falls faster the longer the queue stays full."""
    capacity, flows, interval_us = 100 * MEGA, 500, 100_000
    fleet, alone = Fleet(), LinkController(law, capacity)
    slots = np.array([fleet.add(law, capacity, capacity, 0)])
    sent = capacity // 80
    told = []
    for period in range(80):
        queue = 1_250_000 if 10 <= period < 70 else 0
        load = link_load_pb2.LinkLoad(
            explicit_rate_bytes=sent if period >= 10 else sent // 2,
            queue_bytes=queue,
            explicit_rate_queue_bytes=queue,
            users=flows,
            rtt_us=200_000,
        )
        decision = alone.update(sample_of(load, interval_us, capacity, 0))
        values = np.array([[getattr(load, name) for name in LOAD_FIELDS]], np.float64)
        fleet.step(slots, values, np.array([float(interval_us)]))
        assert int(fleet.rate[slots[0]]) == pytest.approx(decision.available_bps, abs=1)
        told.append(decision.available_bps)
    # From all of the link to a five-hundredth of it: doubling takes five feedback delays, always 1.4 would take 19.
    assert next(n for n, rate in enumerate(told) if n >= 10 and rate <= 1.1 * 0.97 * capacity / flows) < 40


def test_sensors_packets_do_not_move_the_rate_of_a_virtual_link() -> None:
    """Trains of a hundredth of the link come and go; on a link of ours they are probed for like a flow."""
    fleet = Fleet()
    slots = np.array([fleet.add("nec", 0, 20 * MEGA, 0) for _ in range(2)])
    fleet.virtual[slots[0]] = True
    rates = []
    for period in range(60):
        train = 5_000 if period % 20 < 3 else 0
        loads = [[fleet.rate[slot] / 80, train, 0, 0, 1, 1, 0, 0, 24_000] for slot in slots]
        fleet.step(slots, np.array(loads, float), np.full(2, 1e5))
        rates.append(fleet.rate[slots])
    virtual, own = np.array(rates[20:]).T
    assert virtual.max() / virtual.min() < 1.025
    assert own.max() / own.min() > 1.04
