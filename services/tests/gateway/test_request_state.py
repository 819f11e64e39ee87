"""The states of a request in a word, and the commitments of a link."""

from __future__ import annotations

import pytest

from chart.gateway.reservation_mapping import capacity, state_of
from chart.v1 import rate_request_pb2, reservations_pb2
from chart.v1.rate_request_pb2 import Enforcement, Lifecycle, ServiceState


@pytest.mark.parametrize(
    ("service", "enforcement", "word"),
    [
        ("GRANTED", "PENDING", "PENDING"),
        ("GRANTED", "ENFORCED", "ENFORCED"),
        ("GRANTED", "FAILED", "FAILED"),
        ("PREEMPTED", "FAILED", "PREEMPTED"),
        ("DEGRADED", "PENDING", "PENDING"),
        ("DEGRADED", "ENFORCED", "DEGRADED"),
        # Its link is down: that is why it lacks its rate, and it comes back with the link.
        ("DEGRADED", "FAILED", "DEGRADED"),
    ],
)
def test_the_state_says_what_matters_most(service: str, enforcement: str, word: str) -> None:
    request = rate_request_pb2.RateRequest(
        lifecycle=Lifecycle.LIFECYCLE_ACTIVE,
        enforcement=Enforcement.Value(f"ENFORCEMENT_{enforcement}"),
        service_state=ServiceState.Value(f"SERVICE_STATE_{service}"),
    )
    assert state_of(request) == word


def test_a_capacity_says_what_drains_of_leases_and_until_when() -> None:
    link = reservations_pb2.GetLinkCapacityResponse(lease_bps=8, in_band_bps=3)
    assert capacity("a:to-b", link).lease_draining_until is None
    link.lease_draining_bps, link.lease_draining_until_us = 5, 1_700_000_000_000_000
    told = capacity("a:to-b", link)
    assert (told.lease_bps, told.in_band_bps, told.lease_draining_bps) == (8, 3, 5)
    assert told.lease_draining_until is not None
    assert told.lease_draining_until.startswith("2023-11-14T22:13:20")
