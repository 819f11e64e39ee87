"""Many links in one controller: each is stepped as if alone, slots are used again, and only what moved is told."""

from __future__ import annotations

import random

import numpy as np
import pytest

from chart.allocator.controller import LinkController
from chart.allocator.laws import LAWS
from chart.allocator.links import LOAD_FIELDS
from chart.v1 import link_load_pb2

MEGA = 1_000_000
LINKS = 40
PERIODS = 300


def changing_load(numbers: random.Random, capacity_bps: int) -> tuple[float, ...]:
    """A link's load in the order of LOAD_FIELDS: quiet, normal, overloaded, queueing, with legacy traffic, by turns."""
    phase = numbers.choice(("quiet", "normal", "normal", "overload", "queue", "legacy"))
    share = {"quiet": 0.0, "normal": 0.9, "overload": 1.4, "queue": 1.0, "legacy": 0.5}[phase]
    size = capacity_bps / 80 * share * numbers.uniform(0.5, 1.1)
    load = link_load_pb2.LinkLoad(
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
    return tuple(float(getattr(load, name)) for name in LOAD_FIELDS)


def test_each_link_is_stepped_as_it_would_be_alone() -> None:
    """Links of both laws together, of which not every one reports in every period."""
    numbers = random.Random("links")
    together = LinkController()
    slots, alone = [], []
    capacities = [numbers.choice((1, 10, 100, 1000)) * MEGA for _ in range(LINKS)]
    for number, capacity in enumerate(capacities):
        link = (LAWS[number % 2], numbers.choice((0, capacity // 3)), capacity, numbers.choice((0, 0, capacity // 5)))
        slots.append(together.add(*link))
        alone.append(LinkController())
        assert alone[-1].add(*link) == 0
    only = np.array([0])
    for _ in range(PERIODS):
        some = sorted(numbers.sample(range(LINKS), numbers.randint(1, LINKS)))
        loads = np.array([changing_load(numbers, capacities[one]) for one in some])
        interval_us = np.array([float(numbers.choice((100_000, 100_000, 50_000, 230_000))) for _ in some])
        mine = np.array(slots)[some]
        together.step(mine, loads, interval_us)
        for place, one in enumerate(some):
            alone[one].step(only, loads[place : place + 1], interval_us[place : place + 1])
        for column, figures in enumerate(together.figures(mine)):
            assert figures.tolist() == [int(alone[one].figures(only)[column][0]) for one in some]


def test_a_slot_is_used_again_and_begins_anew() -> None:
    links = LinkController()
    slot = links.add("nec", 0, 100 * MEGA, 0)
    links.step(np.array([slot]), np.array([[1e6, 0, 0, 0, 3, 0, 0, 0, 0]], float), np.array([1e5]))
    assert links.users[slot] == 3
    links.remove(slot)
    assert links.add("nec", 7 * MEGA, 10 * MEGA, 0) == slot
    assert (links.users[slot], links.rate_bps[slot], links.link_bps[slot]) == (0, 7 * MEGA, 10 * MEGA)


def test_many_links_find_room() -> None:
    links = LinkController()
    slots = [links.add("nec", number, 1e6, 0) for number in range(500)]
    assert sorted(set(slots)) == sorted(slots)
    assert [links.rate_bps[slot] for slot in slots] == list(range(500))


def test_only_what_moved_by_a_hundredth_is_told() -> None:
    links = LinkController()
    slots = np.array([links.add("nec", 0, 100 * MEGA, 0) for _ in range(2)])
    load = np.array([[1e6, 0, 0, 0, 1, 0, 0, 0, 0]] * 2, float)
    links.step(slots, load, np.full(2, 1e5))
    assert links.moved(slots).tolist() == [True, True]
    links.tell(slots, links.figures(slots))
    assert links.moved(slots).tolist() == [False, False]
    links.rate_bps[slots[0]] *= 0.98
    assert links.moved(slots).tolist() == [True, False]
    links.tell_anew(int(slots[1]))
    assert links.moved(slots).tolist() == [True, True]


@pytest.mark.parametrize("law", LAWS)
def test_sensors_packets_do_not_move_the_rate_of_a_virtual_link(law: str) -> None:
    """Trains of a hundredth of the link come and go; on a link of ours they are probed for like a flow."""
    links = LinkController()
    slots = np.array([links.add(law, 0, 20 * MEGA, 0) for _ in range(2)])
    links.virtual[slots[0]] = True
    rates = []
    for period in range(60):
        train = 5_000 if period % 20 < 3 else 0
        loads = [[links.rate_bps[slot] / 80, train, 0, 0, 1, 1, 0, 0, 24_000] for slot in slots]
        links.step(slots, np.array(loads, float), np.full(2, 1e5))
        rates.append(links.rate_bps[slots])
    virtual, own = np.array(rates[20:]).T
    assert virtual.max() / virtual.min() < 1.025
    assert own.max() / own.min() > 1.04
