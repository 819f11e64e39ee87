"""What is available is divided among users first and then among each user's flows: the allocator's control loop with
the agents' own decisions (dataplane/agent/grants/decide.c), over any users, flows and links.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from chart.v1 import flow_grant_pb2, link_rate_pb2
from chart_lab.models.link import ControlledLink, LinkSample
from chart_lab.simulation.decide import LIBRARY, Decide

CAPACITY_BPS = 100_000_000
SECOND_US = 1_000_000
PERIOD_US = 100_000
LINK, NEXT = "alpha:to-bravo", "bravo:to-charlie"
SETTLED = 12
# Longer than any test here, and no longer than an agent takes.
VALID_UNTIL_US = 250 * SECOND_US

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="`make decide-library` builds it")


def granted(request_id: str, user: str, more: tuple[str, ...] = (), maximum_bps: int = 0) -> flow_grant_pb2.FlowGrant:
    return flow_grant_pb2.FlowGrant(
        request_id=request_id,
        generation=1,
        selector=flow_grant_pb2.FlowSelector(source_prefix="10.0.0.1/32"),
        link_ids=[LINK, *more],
        maximum_bps=maximum_bps,
        valid_until_us=VALID_UNTIL_US,
        with_available_rate=True,
        user=user,
    )


def record(
    link_id: str, available_bps: float, users: int, flows: dict[str, int], generation: int
) -> link_rate_pb2.LinkRates:
    rates = link_rate_pb2.LinkRates(node=link_id.split(":")[0], generation=generation, valid_until_us=VALID_UNTIL_US)
    rate = rates.links.add(
        link_id=link_id,
        available_bps=int(available_bps),
        explicit_rate_capacity_bps=int(0.97 * CAPACITY_BPS),
        active_users=users,
    )
    for user, number in flows.items():
        if number > 1:
            rate.user_flows.add(user=user, flows=number)
    return rates


class Loop:
    """A link, its controller and the sender's agent, in control periods."""

    def __init__(self, flows: dict[str, int], law: str = "nec", maximum_bps: int = 0) -> None:
        self.decide = Decide("alpha")
        self.decide.set_links([(LINK, True, CAPACITY_BPS)])
        self.user_of = {f"{user}-{number}": user for user, most in flows.items() for number in range(most)}
        for request_id, user in self.user_of.items():
            limit = maximum_bps if request_id == "limited-0" else 0
            self.decide.put_grant(request_id, granted(request_id, user, maximum_bps=limit), 0)
        self.link = ControlledLink(law)
        self.now_us = SECOND_US
        self.sent = dict.fromkeys(self.user_of, 0)
        self.active: set[str] = set(self.user_of)
        self.rates: dict[str, int] = dict.fromkeys(self.user_of, 0)
        self.generation = 0

    def totals(self) -> dict[str, int]:
        """What each user sends."""
        found: dict[str, int] = {}
        for request_id in self.active:
            user = self.user_of[request_id]
            found[user] = found.get(user, 0) + self.rates[request_id]
        return found

    def step(self) -> None:
        self.now_us += PERIOD_US
        self.generation += 1
        for request_id in self.active:
            self.sent[request_id] += max(1, self.rates[request_id] // 80)
            self.decide.set_result(request_id, 0, self.rates[request_id], self.sent[request_id], self.now_us)
        flows: dict[str, int] = {}
        for request_id in self.active:
            flows[self.user_of[request_id]] = flows.get(self.user_of[request_id], 0) + 1
        decision = self.link.update(
            LinkSample(
                PERIOD_US,
                CAPACITY_BPS,
                min(CAPACITY_BPS, sum(self.rates[one] for one in self.active)),
                active_users=len(flows),
                rtt_us=20_000,
            )
        )
        rates = record(LINK, decision.available_bps, decision.active_users, flows, self.generation)
        self.decide.put_link_rates(rates, self.now_us)
        desired, _ = self.decide.desired(self.now_us)
        self.rates = {one.request_id: one.ar_bps for one in desired}


@settings(deadline=None, max_examples=60)
@given(
    some.dictionaries(some.text("abcdef", min_size=1, max_size=3), some.integers(1, 30), min_size=1, max_size=12),
    some.sampled_from(["nec", "rcp"]),
)
def test_any_number_of_flows_of_a_user_gets_one_users_share(flows: dict[str, int], law: str) -> None:
    loop = Loop(flows, law)
    for _ in range(SETTLED):
        loop.step()
    totals = loop.totals()
    fair_bps = 0.97 * CAPACITY_BPS / len(flows)
    assert set(totals) == set(flows)
    for total in totals.values():
        assert total == pytest.approx(fair_bps, rel=0.03)


def test_a_user_who_opens_more_flows_takes_nothing_from_another() -> None:
    loop = Loop({"ann": 9, "bob": 1})
    loop.active = {"ann-0", "bob-0"}
    for _ in range(30):
        loop.step()
    assert loop.totals() == pytest.approx({"ann": 48.5e6, "bob": 48.5e6}, rel=0.03)
    loop.active = set(loop.user_of)
    worst = 1.0
    for _ in range(30):
        loop.step()
        worst = min(worst, loop.totals()["bob"] / 48.5e6)
    assert worst > 0.9
    assert loop.totals() == pytest.approx({"ann": 48.5e6, "bob": 48.5e6}, rel=0.03)
    assert len({loop.rates[f"ann-{number}"] for number in range(9)}) == 1


def test_what_a_limited_user_leaves_is_the_others() -> None:
    loop = Loop({"limited": 1, "ann": 3, "bob": 1}, maximum_bps=10_000_000)
    for _ in range(60):
        loop.step()
    assert loop.totals() == pytest.approx({"limited": 10e6, "ann": 43.5e6, "bob": 43.5e6}, rel=0.03)


def test_grants_of_nobody_are_users_of_their_own() -> None:
    decide = Decide("alpha")
    decide.set_links([(LINK, True, CAPACITY_BPS)])
    for request_id in ("r1", "r2"):
        decide.put_grant(request_id, granted(request_id, ""), 0)
    decide.put_link_rates(record(LINK, 30e6, 3, {"": 2}, 1), SECOND_US)
    for request_id in ("r1", "r2"):
        decide.set_result(request_id, 0, 0, 1000, SECOND_US)
    desired, _ = decide.desired(2 * SECOND_US)
    assert [one.ar_bps for one in desired] == [30_000_000, 30_000_000]


@given(
    some.integers(1, 40), some.integers(1, 40), some.integers(1_000_000, CAPACITY_BPS), some.integers(1_000_000, 10**9)
)
def test_each_link_divides_by_the_flows_that_the_user_has_there(one: int, other: int, first: int, second: int) -> None:
    """Of two links of a path the least part counts, whatever R each has."""
    decide = Decide("alpha")
    decide.set_links([(LINK, True, CAPACITY_BPS)])
    decide.put_grant("r1", granted("r1", "ann", (NEXT,)), 0)
    decide.put_link_rates(record(LINK, first, 2, {"ann": one, "abe": 7}, 1), SECOND_US)
    decide.put_link_rates(record(NEXT, second, 2, {"ann": other, "zoe": 5}, 1), SECOND_US)
    decide.set_result("r1", 0, 0, 1000, SECOND_US)
    desired, _ = decide.desired(2 * SECOND_US)
    assert desired[0].ar_bps == min(first // one, second // other)
