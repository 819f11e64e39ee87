"""Key schedule, policies and next hops: pure decisions."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chart.authority import service
from chart.authority.service import Asked, Epoch, KeyTimes, Policy, Topology
from chart.common.problems import ProblemError
from chart.maintenance import after_restore

SECOND = 1_000_000
TIMES = KeyTimes(life_us=60 * SECOND, lead_us=5 * SECOND)


def signing_epoch(epochs: list[Epoch], now_us: int) -> Epoch | None:
    """What a sender signs with: the newest whose first use has come; None: nothing may be signed."""
    usable = [one for one in service.live(epochs, now_us) if one.sign_from_us <= now_us]
    return usable[-1] if usable else None


def test_the_first_epoch_is_used_at_once_and_the_next_is_announced_ahead() -> None:
    first = service.next_epoch([], 0, TIMES)
    assert first == Epoch(1, 0, 0, 30 * SECOND, 60 * SECOND)
    assert service.next_epoch([first], 29 * SECOND, TIMES) is None
    second = service.next_epoch([first], 30 * SECOND, TIMES)
    assert second == Epoch(2, 30 * SECOND, 35 * SECOND, 60 * SECOND, 90 * SECOND)
    assert signing_epoch([first, second], 34 * SECOND) == first
    assert signing_epoch([first, second], 35 * SECOND) == second


def test_ends_that_started_anew_get_their_epochs_at_once_but_not_again_and_again() -> None:
    epochs: list[Epoch] = []
    for now_us in (0, SECOND // 2, SECOND, SECOND + 1):
        epoch = service.next_epoch(epochs, now_us, TIMES, demanded=True)
        assert epoch is not None
        assert epoch.sign_from_us == now_us
        epochs.append(epoch)
    with pytest.raises(ProblemError) as caught:
        service.next_epoch(epochs, 2 * SECOND, TIMES, demanded=True)
    assert caught.value.status == 429
    assert service.next_epoch(epochs, 4 * SECOND, TIMES, demanded=True) is not None


def test_both_ends_that_start_after_a_restore_get_epochs_beside_those_of_before_it() -> None:
    """A restore leaves numbers out (`after_restore.EPOCH_JUMP`); epochs of before it are accepted until they end."""
    before = [Epoch(number, 0, 0, SECOND, 3600 * SECOND) for number in (1, 2, 3)]
    now_us = 600 * SECOND
    epochs = [*before, Epoch(3 + after_restore.EPOCH_JUMP, now_us, now_us, now_us, now_us)]
    for later_us in (0, SECOND // 4):
        epoch = service.next_epoch(epochs, now_us + later_us, TIMES, demanded=True)
        assert epoch is not None
        assert epoch.wire not in {one.wire for one in service.live(epochs, now_us)}
        epochs.append(epoch)


@pytest.mark.parametrize(("newest", "refused"), [(254, False), (255, True), (256, True), (257, False)])
def test_no_epoch_is_demanded_up_to_a_number_that_is_still_accepted(newest: int, *, refused: bool) -> None:
    epochs = [Epoch(number, number, number, 1800 * SECOND, 3600 * SECOND) for number in (1, newest)]
    if refused:
        with pytest.raises(ProblemError, match="must not repeat"):
            service.next_epoch(epochs, 60 * SECOND, TIMES, demanded=True)
    else:
        assert service.next_epoch(epochs, 60 * SECOND, TIMES, demanded=True) is not None


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40 * SECOND), st.booleans()), max_size=600))
def test_an_epoch_number_is_never_used_twice_while_it_is_accepted(steps: list[tuple[int, bool]]) -> None:
    epochs: list[Epoch] = []
    now_us = 0
    for pause_us, demanded in steps:
        now_us += pause_us
        try:
            made = service.next_epoch(epochs, now_us, TIMES, demanded=demanded)
        except ProblemError:
            continue
        if made is not None:
            assert made.wire not in {one.wire for one in service.live(epochs, now_us)}
            epochs.append(made)
        # Something can be signed with, always: rotation leaves no gap.
        assert signing_epoch(epochs, now_us) is not None


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(0, 4 * SECOND), st.integers(0, 4 * SECOND))
def test_rotation_refuses_no_valid_signal(seconds: int, sender_poll_us: int, receiver_poll_us: int) -> None:
    """Whatever the ends' polls (shorter than the lead), the receiver holds what the sender signs with."""
    epochs: list[Epoch] = []
    polled_us = [0, 0]
    held: list[list[Epoch]] = [[], []]
    for now_us in range(0, seconds * SECOND, SECOND // 2):
        made = service.next_epoch(epochs, now_us, TIMES)
        if made is not None:
            epochs.append(made)
        for end, poll_us in enumerate((sender_poll_us, receiver_poll_us)):
            if not held[end] or now_us - polled_us[end] >= poll_us:
                held[end] = service.live(epochs, now_us)[-2:]
                polled_us[end] = now_us
        signing = signing_epoch(held[0], now_us)
        assert signing is not None
        assert signing in service.live(held[1], now_us)


POLICIES = [
    Policy(id="people", subjects=("*",), max_guaranteed_bps=10),
    Policy(id="apps", subjects=("role/application",), max_guaranteed_bps=20),
    Policy(id="alice", subjects=("user/alice",), max_guaranteed_bps=30),
]


@pytest.mark.parametrize(
    ("subject", "roles", "policy"),
    [("user/alice", ["application"], "alice"), ("user/bob", ["application"], "apps"), ("user/bob", [], "people")],
)
def test_the_most_particular_policy_holds(subject: str, roles: list[str], policy: str) -> None:
    assert service.policy_for(subject, roles, POLICIES).id == policy


def test_more_than_the_policy_gives_is_refused_with_what_it_gives() -> None:
    policy = Policy(id="p", subjects=("*",), services=("available",), max_guaranteed_bps=5, max_priority=7)
    assert service.authorise(Asked(), policy, 3600).service == "available"
    for asked, field, ceiling in (
        (Asked(max_guaranteed_bps=6), "max_guaranteed_bps", 5),
        (Asked(max_priority=8), "max_priority", 7),
        (Asked(duration_s=3601), "duration_s", 3600),
        (Asked(service="guaranteed"), "service", None),
    ):
        with pytest.raises(ProblemError) as caught:
            service.authorise(asked, policy, 3600)
        assert (caught.value.status, caught.value.field, caught.value.ceiling) == (403, field, ceiling)


def test_an_authorisation_is_for_ones_own_address() -> None:
    policy = Policy(id="p", subjects=("*",))
    assert service.check_address(None, "10.0.0.1", policy, operator=False) == "10.0.0.1"
    with pytest.raises(ProblemError, match="your own address"):
        service.check_address("10.0.0.2", "10.0.0.1", policy, operator=False)
    assert service.check_address("10.0.0.2", "10.0.0.1", policy, operator=True) == "10.0.0.2"


def test_next_hops_follow_shortest_paths() -> None:
    nets = {name: (ipaddress.ip_network(f"10.1.0.{n}/32"),) for n, name in enumerate("abcd")}
    topology = Topology(prefixes=dict(nets), neighbours={"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": {"b"}})
    table = service.next_hops(topology)
    assert table[("a", nets["d"][0])] == "b"
    assert table[("d", nets["b"][0])] == "b"
    assert ("d", nets["a"][0]) not in table
    assert ("a", nets["a"][0]) not in table
