"""The pure parts of `route-follow`: what counts as off the path, as promised twice, as admitted of what fits."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
import sys

import pytest

from chart_lab import experiments, topology
from chart_lab.experiments import route_follow
from chart_lab.experiments.route_follow_judge import (
    Captured,
    Sample,
    Seen,
    Stand,
    evaluate,
    fits_bps,
    followed_s,
    share,
    verdicts,
)

NORTH, SOUTH, LAST = "ingress:to-north", "ingress:to-south", "egress:to-destination"
SIZE_BPS = 20
NORTHWARDS: Captured = {(1, NORTH): Seen([100.0])}


def sample(
    *stands: Stand, at_s: float = 100.0, since_s: float = 2.0, ways: tuple[str, ...] = (NORTH,), change: str = "calm"
) -> Sample:
    committed = {link: sum(one.granted_bps for one in stands if link in one.links) for link in (NORTH, SOUTH)}
    flows = dict.fromkeys((one.port for one in stands), frozenset(ways))
    rates, leases, draining = {NORTH: 95, SOUTH: 60}, {NORTH: 9, SOUTH: 1}, {NORTH: 0, SOUTH: 0}
    return Sample(at_s, change, since_s, stands, rates, leases, draining, committed, flows)


def stand(*links: str, port: int = 1, granted_bps: int = SIZE_BPS, state: str = "ENFORCED") -> Stand:
    return Stand(port, granted_bps, (*links, LAST), state)


def values(*samples: Sample, captured: Captured = NORTHWARDS) -> dict[str, float | None]:
    return {one.name: one.value for one in evaluate(samples, captured, SIZE_BPS)}


def test_packets_where_the_request_is_committed_are_on_their_path() -> None:
    figures = values(sample(stand(NORTH)))
    assert figures["commitments_off_path"] == 0
    assert figures["commitments_off_path_tried"] == 1


def test_packets_by_another_link_are_off_the_path() -> None:
    assert values(sample(stand(SOUTH)))["commitments_off_path"] == 1


def test_a_commitment_where_nothing_goes_is_off_the_path_unless_ways_are_equal() -> None:
    both = stand(NORTH, SOUTH)
    assert values(sample(both))["commitments_off_path"] == 1
    assert values(sample(both, ways=(NORTH, SOUTH)))["commitments_off_path"] == 0


def test_the_first_second_after_a_change_is_not_judged() -> None:
    figures = values(sample(stand(SOUTH), since_s=0.9))
    assert (figures["commitments_off_path"], figures["commitments_off_path_tried"]) == (0, 0)


def test_packets_before_a_look_do_not_count_for_it() -> None:
    captured: Captured = {(1, NORTH): Seen([99.0]), (1, SOUTH): Seen([99.9, 100.1])}
    assert [one.seen for one in verdicts([sample(stand(NORTH))], captured)] == [(SOUTH,)]


def test_a_request_without_a_rate_is_committed_nowhere() -> None:
    assert not list(verdicts([sample(stand(SOUTH, granted_bps=0))], NORTHWARDS))


def test_a_flow_that_was_not_captured_is_said_and_not_judged() -> None:
    figures = values(sample(stand(NORTH, port=2)))
    assert (figures["commitments_off_path_tried"], figures["requests_without_packets"]) == (0, 1)


def test_what_is_promised_twice_shows_by_paths_by_packets_and_in_the_ledger() -> None:
    many = [stand(SOUTH, port=port) for port in range(4)]
    assert values(sample(*many))["overcommitted"] == 1
    # On paper each has its own way; packets of all take the southern one.
    apart = [stand(SOUTH, port=0), *(stand(NORTH, port=port) for port in range(1, 4))]
    together: Captured = {(port, SOUTH): Seen([100.0]) for port in range(4)}
    assert values(sample(*apart), captured=together)["overcommitted"] == 1
    wrong = dataclasses.replace(sample(stand(NORTH)), ledger={NORTH: 96, SOUTH: 0})
    assert values(wrong)["overcommitted"] == 1


def test_the_lease_of_a_link_that_is_down_promises_nothing() -> None:
    down = dataclasses.replace(sample(stand(NORTH)), links={NORTH: 95, SOUTH: 0}, ledger={NORTH: 20, SOUTH: 1})
    assert values(down)["overcommitted"] == 0
    assert values(dataclasses.replace(down, ledger={NORTH: 20, SOUTH: 2}))["overcommitted"] == 1


def test_what_drains_of_a_lease_counts_on_a_link_that_is_up_and_not_on_one_that_is_down() -> None:
    leased = dataclasses.replace(
        sample(stand(NORTH)), links={NORTH: 20, SOUTH: 0}, leases={NORTH: 0, SOUTH: 0}, draining={NORTH: 8, SOUTH: 8}
    )
    assert values(dataclasses.replace(leased, ledger={NORTH: 20, SOUTH: 8}))["overcommitted"] == 0
    assert values(dataclasses.replace(leased, ledger={NORTH: 20, SOUTH: 9}))["overcommitted"] == 1
    assert values(dataclasses.replace(leased, ledger={NORTH: 28, SOUTH: 8}))["overcommitted"] == 1


@pytest.mark.parametrize(("ways", "fits"), [((NORTH,), 80), ((SOUTH,), 40), ((NORTH, SOUTH), 40)])
def test_whole_requests_fit_and_equal_cost_ways_take_the_narrower(ways: tuple[str, ...], fits: int) -> None:
    assert fits_bps(sample(*(stand(NORTH, port=port) for port in range(6)), ways=ways), SIZE_BPS) == fits


def test_more_than_fits_makes_up_for_nothing() -> None:
    full = sample(*(stand(NORTH, port=port) for port in range(3)), ways=(SOUTH,))
    half = sample(stand(SOUTH), stand(SOUTH, port=2, granted_bps=0), ways=(SOUTH,))
    assert share([full], SIZE_BPS) == 1.0
    assert share([full, half], SIZE_BPS) == pytest.approx(60 / 80)


def test_followed_is_the_first_look_after_the_last_that_was_off() -> None:
    looks = [sample(stand(SOUTH), since_s=0.2), sample(stand(NORTH), since_s=0.4), sample(stand(NORTH), since_s=0.6)]
    assert followed_s(looks, list(verdicts(looks, NORTHWARDS)), "calm") == 0.4
    assert followed_s(looks[:1], list(verdicts(looks[:1], NORTHWARDS)), "calm") is None


def test_off_path_that_requests_say_is_counted() -> None:
    assert values(sample(stand(SOUTH, state="OFF_PATH")))["off_path_told"] == 1


def test_it_is_registered_for_the_platform_as_it_is_installed() -> None:
    assert experiments.REGISTRY["route-follow"].installed


def test_the_southern_way_does_not_take_all_that_the_northern_does() -> None:
    narrowed = route_follow.narrowed(topology.load("two-path"))
    rates = {link.name: link.rate_mbit for link in narrowed.links}
    north_mbit = rates["ingress-north"]
    assert north_mbit is not None
    assert rates["ingress-south"] == rates["south-egress"] == route_follow.SOUTH_MBIT < north_mbit
    asked_mbit = len(route_follow.FORWARD) * route_follow.SIZE_BPS / 1e6
    assert route_follow.SOUTH_MBIT < asked_mbit < north_mbit


def test_every_change_says_where_every_flow_goes() -> None:
    links = {link for change in route_follow.CHANGES for way in change.ways().values() for link in way}
    assert links == {f"{node}:to-{way}" for node in ("ingress", "egress") for way in ("north", "south")}
    for change in route_follow.CHANGES:
        assert set(change.ways()) == {*route_follow.FORWARD, *route_follow.BACK}


def test_datagrams_keep_their_ports_and_pace() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.2", 0))
        sink.settimeout(10)
        port = sink.getsockname()[1]
        words = [sys.executable, "-m", "chart_lab.steady_datagrams", "127.0.0.1", "127.0.0.2", "200", str(port), ""]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as sending:
            try:
                senders = {sink.recvfrom(2000)[1] for _ in range(5)}
            finally:
                sending.kill()
    assert senders == {("127.0.0.1", port)}
