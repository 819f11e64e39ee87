"""The states of a request in a word."""

from __future__ import annotations

import pytest

from chart.gateway.reservation_mapping import state_of
from chart.v1 import rate_request_pb2
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
