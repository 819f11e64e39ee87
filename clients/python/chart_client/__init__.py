"""Typed client of CHART (REST over httpx) and the `chart` command.

from chart_client import Client

with Client() as chart:
    request = chart.rate_requests.create("alpha", "delta", guaranteed_bps=60_000_000, destination_port=5201)
    chart.rate_requests.wait_enforced(request.id)
    ...
    chart.rate_requests.release(request.id)
"""

from chart_client.client import Client
from chart_client.errors import (
    ChartError,
    NotAllowedError,
    NotEnforcedError,
    NotFoundError,
    ProblemError,
    RefusedError,
    UnavailableError,
    UnreachableError,
)
from chart_client.models import (
    Callback,
    Confirmation,
    Event,
    FoundPath,
    Link,
    LinkCapacity,
    Measurement,
    Node,
    Policy,
    Preview,
    Problem,
    Quota,
    RateRequest,
    Receipt,
    SensingConfiguration,
    Series,
    Tunnel,
)

__all__ = [
    "Callback",
    "ChartError",
    "Client",
    "Confirmation",
    "Event",
    "FoundPath",
    "Link",
    "LinkCapacity",
    "Measurement",
    "Node",
    "NotAllowedError",
    "NotEnforcedError",
    "NotFoundError",
    "Policy",
    "Preview",
    "Problem",
    "ProblemError",
    "Quota",
    "RateRequest",
    "Receipt",
    "RefusedError",
    "SensingConfiguration",
    "Series",
    "Tunnel",
    "UnavailableError",
    "UnreachableError",
]
