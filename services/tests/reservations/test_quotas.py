"""What quotas allow, apart from the database."""

from __future__ import annotations

import pytest

from chart.common.rpc_errors import RefusalError
from chart.reservations.decisions import quotas
from chart.reservations.decisions.network import network_of
from chart.reservations.decisions.quotas import Quota, Spending, Use
from chart.reservations.decisions.validation import CheckedRequest, check
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1 import reservations_pb2, topology_pb2
from chart.v1.rate_request_pb2 import RateRequestSpecification

NOW_US = 1_750_000_000_000_000
DAY_US = 86_400_000_000
NETWORK = network_of(
    (name, topology_pb2.TopologyEntity(node=topology_pb2.Node(id=name, addresses=[f"10.0.0.{number}/32"])))
    for number, name in enumerate(("alpha", "bravo"), start=1)
)


def checked(**fields: int | bool) -> CheckedRequest:
    asked = RateRequestSpecification(source="alpha", destination="bravo", guaranteed_bps=1_000_000, **fields)  # type: ignore[arg-type]
    return check(asked, NETWORK, NOW_US)


def test_the_default_quota_is_for_applications_without_their_own() -> None:
    own, default = Quota("bob"), Quota("default")
    assert quotas.of("bob", {"bob": own, "default": default}) is own
    assert quotas.of("alice", {"bob": own, "default": default}) is default
    assert quotas.of("alice", {"default": default}, operator=True) is None
    assert quotas.of("bob", {"bob": own, "default": default}, operator=True) is own


def test_a_request_without_an_end_gets_the_latest_that_is_allowed() -> None:
    quota = Quota("default", horizon_us=DAY_US)
    lasting = quotas.with_end(checked(), quota, NOW_US)
    assert lasting.ask.end_us == lasting.specification.end_us == NOW_US + DAY_US
    quotas.check(quota, Use(), quotas.spending_of_new("bob", lasting), NOW_US)
    for unchanged, bound in (
        (checked(duration_us=5_000_000), quota),
        (checked(), None),
        (checked(), Quota("default")),
    ):
        assert quotas.with_end(unchanged, bound, NOW_US) is unchanged
    assert checked().ask.end_us == FOREVER_US


def test_what_is_held_is_bounded_for_itself() -> None:
    quota = Quota("bob", max_held_bps=3_000_000)
    use = Use(requests=1, total_bps=90_000_000, held_bps=2_500_000)
    plain = Spending("bob", 1, 1_000_000, 0, NOW_US + 1)
    quotas.check(quota, use, plain, NOW_US)
    with pytest.raises(RefusalError) as error:
        quotas.check(quota, use, quotas.spending_of_new("bob", checked(hold=True)), NOW_US)
    refusal = error.value.refusal
    assert (refusal.code, refusal.field, refusal.ceiling_bps) == ("quota-exceeded", "guaranteed_bps", 500_000)
    assert use.after(plain) == Use(2, 91_000_000, 2_500_000)
    assert use.after(quotas.spending_of_new("bob", checked(hold=True))) == Use(2, 91_000_000, 3_500_000)


@pytest.mark.parametrize("field", ["max_held_bps", "max_total_bps", "horizon_us"])
def test_bounds_that_no_table_can_hold_are_refused(field: str) -> None:
    with pytest.raises(RefusalError) as error:
        quotas.checked(reservations_pb2.Quota(owner="bob", **{field: 1 << 62}))
    assert error.value.refusal.field == field
    stated = reservations_pb2.Quota(owner="bob", max_held_bps=7)
    assert quotas.message(quotas.checked(stated)) == stated
