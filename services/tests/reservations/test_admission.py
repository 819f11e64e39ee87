"""Admission: path, peak over the interval, refusals with what would be accepted; never more than a link may commit."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chart.reservations.decisions import messages
from chart.reservations.decisions.admission import (
    Ask,
    Granted,
    Refused,
    admit,
    candidate_link_ids,
    free_bps,
    next_start_us,
    widest_shortest_path,
)
from chart.reservations.decisions.ledger import Kind
from chart.reservations.decisions.network import Network, NetworkLink
from chart.reservations.decisions.windows import FOREVER_US, Commitment, peak_bps

MEGA = 1_000_000


def network(*links: tuple[str, str, int]) -> Network:
    made = {f"{a}:to-{b}": NetworkLink(f"{a}:to-{b}", a, b, capacity) for a, b, capacity in links}
    names = {name for a, b, _ in links for name in (a, b)}
    return Network(dict.fromkeys(names, ()), made)


LINE = network(("a", "b", 500 * MEGA), ("b", "c", 100 * MEGA), ("c", "d", 500 * MEGA))


def ask(bps: int, minimum_bps: int = 0, start_us: int = 0, end_us: int = FOREVER_US) -> Ask:
    return Ask("a", "d", bps, minimum_bps, start_us, end_us)


def test_grants_up_to_the_share_of_the_narrowest_link() -> None:
    decision = admit(LINE, {}, ask(80 * MEGA))
    assert isinstance(decision, Granted)
    assert decision.link_ids == ("a:to-b", "b:to-c", "c:to-d")
    assert decision.bottleneck.id == "b:to-c"
    assert decision.ceiling_bps == 80 * MEGA


def test_refusal_names_bottleneck_ceiling_and_what_would_do() -> None:
    taken = {"b:to-c": [Commitment(50 * MEGA, 0, 2_000_000)]}
    decision = admit(LINE, taken, ask(40 * MEGA))
    assert isinstance(decision, Refused)
    assert decision.code == "insufficient-capacity"
    assert decision.field == "guaranteed_bps"
    assert decision.bottleneck_link_id == "b:to-c"
    assert (decision.floor_bps, decision.ceiling_bps) == (1000, 30 * MEGA)
    assert any("1970-01-01T00:00:02" in words for words in decision.suggestions)


def test_minimum_takes_what_fits() -> None:
    taken = {"b:to-c": [Commitment(50 * MEGA, 0, FOREVER_US)]}
    decision = admit(LINE, taken, ask(40 * MEGA, 20 * MEGA))
    assert isinstance(decision, Granted)
    assert decision.granted_bps == 30 * MEGA
    refused = admit(LINE, taken, ask(60 * MEGA, 40 * MEGA))
    assert isinstance(refused, Refused)
    assert refused.field == "minimum_bps"


def test_full_link_offers_no_rate_but_still_the_available_service() -> None:
    taken = {"b:to-c": [Commitment(80 * MEGA, 0, FOREVER_US)]}
    decision = admit(LINE, taken, ask(MEGA))
    assert isinstance(decision, Refused)
    assert (decision.floor_bps, decision.ceiling_bps) == (0, 0)
    assert any("available" in words for words in decision.suggestions)
    assert isinstance(admit(LINE, taken, ask(0)), Granted)


def test_interval_counts_not_its_ends() -> None:
    """Free at start and at end, taken in the middle."""
    taken = {"b:to-c": [Commitment(70 * MEGA, 40, 60)]}
    assert isinstance(admit(LINE, taken, ask(20 * MEGA, start_us=0, end_us=100)), Refused)
    assert isinstance(admit(LINE, taken, ask(20 * MEGA, start_us=0, end_us=40)), Granted)
    assert isinstance(admit(LINE, taken, ask(20 * MEGA, start_us=60, end_us=100)), Granted)


def test_no_path() -> None:
    decision = admit(LINE, {}, Ask("d", "a", 1000, 0, 0))
    assert isinstance(decision, Refused)
    assert decision.code == "no-path"


def test_link_without_capacity_is_no_path() -> None:
    assert not widest_shortest_path(network(("a", "b", 0)), "a", "b", lambda link: link.capacity_bps)


def test_fewest_hops_first_then_the_widest() -> None:
    diamond = network(
        ("a", "b", 10),
        ("b", "d", 100),
        ("a", "c", 50),
        ("c", "d", 40),
        ("a", "e", 999),
        ("e", "f", 999),
        ("f", "d", 999),
    )
    path = widest_shortest_path(diamond, "a", "d", lambda link: link.capacity_bps)
    assert [link.id for link in path] == ["a:to-c", "c:to-d"]
    assert candidate_link_ids(diamond, Ask("a", "d", 1, 0, 0)) == ["a:to-b", "a:to-c", "b:to-d", "c:to-d"]


nodes = st.sampled_from("abcdef")


@given(
    st.dictionaries(st.tuples(nodes, nodes).filter(lambda pair: pair[0] != pair[1]), st.integers(1, 50), max_size=20)
)
@settings(deadline=None)
def test_path_is_the_best_of_all_paths(capacities: dict[tuple[str, str], int]) -> None:
    graph = network(*((a, b, capacity) for (a, b), capacity in capacities.items()))
    found = widest_shortest_path(graph, "a", "f", lambda link: link.capacity_bps)
    every = []
    for hops in range(1, 6):
        for middle in itertools.permutations("bcde", hops - 1):
            steps = list(itertools.pairwise(("a", *middle, "f")))
            if all(step in capacities for step in steps):
                every.append((hops, -min(capacities[step] for step in steps)))
        if every:
            break
    assert bool(found) == bool(every)
    if found:
        assert (len(found), -min(link.capacity_bps for link in found)) == min(every)


commitments = st.lists(
    st.builds(
        lambda bps, start, length: Commitment(bps, start, start + length),
        st.integers(1, 100),
        st.integers(0, 50),
        st.integers(1, 30),
    ),
    max_size=12,
)


@given(commitments, st.integers(0, 60), st.integers(1, 30))
def test_peak_is_the_maximum_over_every_instant(taken: list[Commitment], start: int, length: int) -> None:
    instants = range(start, start + length)
    sums = [sum(one.committed_bps for one in taken if one.start_us <= now < one.end_us) for now in instants]
    assert peak_bps(taken, start, start + length) == max(sums)


@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(0, 30), st.integers(0, 40), st.integers(1, 25), st.booleans()),
        max_size=30,
    )
)
@settings(max_examples=300, deadline=None)
def test_no_sequence_of_asks_and_releases_over_commits(steps: list[tuple[int, int, int, int, bool]]) -> None:
    taken: dict[str, list[Commitment]] = {link_id: [] for link_id in LINE.links}
    granted: list[tuple[Granted, Commitment]] = []
    for rate, minimum, start, length, release in steps:
        one = ask(rate * MEGA, min(rate, minimum) * MEGA, start, start + length)
        before = {link_id: list(entries) for link_id, entries in taken.items()}
        decision = admit(LINE, taken, one)
        assert decision == admit(LINE, before, one), "preview and commit see the same"
        if isinstance(decision, Granted):
            entry = Commitment(decision.granted_bps, one.start_us, one.end_us)
            for link_id in decision.link_ids:
                taken[link_id].append(entry)
            granted.append((decision, entry))
        else:
            fits = dataclasses.replace(one, wanted_bps=decision.ceiling_bps, minimum_bps=0)
            assert isinstance(admit(LINE, taken, fits), Granted), "the ceiling is really accepted"
            if decision.ceiling_bps:
                above = dataclasses.replace(fits, wanted_bps=decision.ceiling_bps + 1)
                assert isinstance(admit(LINE, taken, above), Refused), "and nothing above it"
        if release and granted:
            gone, entry = granted.pop(0)
            for link_id in gone.link_ids:
                taken[link_id].remove(entry)
        for link_id, link in LINE.links.items():
            assert peak_bps(taken[link_id], 0, 1000) <= link.admissible_bps


@given(commitments, st.integers(1, 80), st.integers(0, 60), st.integers(1, 30))
def test_suggested_start_is_the_first_that_fits(taken: list[Commitment], rate: int, start: int, length: int) -> None:
    link = NetworkLink("a:to-d", "a", "d", 100)
    wanted = Ask("a", "d", rate, 0, start, start + length)

    def fits(at: int) -> bool:
        return free_bps(link, {"a:to-d": taken}, at, at + length) >= rate

    found = next_start_us([link], {"a:to-d": taken}, wanted, rate)
    if fits(start):
        return
    assert found == next(at for at in range(start + 1, 200) if fits(at))


@pytest.mark.parametrize("share", [0.5, 0.8, 1.0])
def test_admission_share_of_the_link(share: float) -> None:
    link = NetworkLink("x", "a", "d", 100 * MEGA, share)
    assert link.admissible_bps == 100 * MEGA * share


def test_of_a_maximum_rate_nothing_is_guaranteed() -> None:
    """What is committed counts on the links; what a preview and the request say is the guarantee."""
    link = LINE.links["b:to-c"]
    soft = Granted(40 * MEGA, (link,), link, 80 * MEGA, Kind.SOFT)
    firm = dataclasses.replace(soft, kind=Kind.FIRM)
    assert (soft.committed_bps, soft.granted_bps, messages.preview(soft).granted_bps) == (40 * MEGA, 0, 0)
    assert (firm.committed_bps, firm.granted_bps, messages.preview(firm).granted_bps) == (40 * MEGA,) * 3
