"""What a request costs of its caller's allowance: 1 for what is answered from memory or by key, more for what makes the
services read much. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

# By method and path of the route; whatever is not here costs 1.
_FIXED: Mapping[tuple[str, str], int] = {
    ("POST", "/v1/rate-requests"): 2,
    ("POST", "/v1/rate-requests:preview"): 3,
    ("POST", "/v1/rate-requests/{id}/preview"): 3,
    ("PATCH", "/v1/rate-requests/{id}"): 2,
    ("GET", "/v1/rate-requests/{id}/history"): 5,
    ("GET", "/v1/rate-requests/{id}/receipt"): 3,
    ("GET", "/v1/paths/{source}/{destination}"): 5,
    ("GET", "/v1/links/{id}/capacity"): 5,
    ("GET", "/v1/measurements"): 5,
    ("GET", "/v1/series"): 10,
    ("GET", "/v1/roll-ups"): 5,
    ("GET", "/v1/baselines"): 5,
    ("GET", "/v1/path-changes"): 5,
    ("GET", "/v1/snapshots/{id}"): 5,
    ("GET", "/v1/snapshots/{id}/file"): 50,
    ("POST", "/v1/snapshots"): 50,
    ("GET", "/v1/pair-groups/{id}/series"): 20,
    ("GET", "/v1/pair-groups/{id}/history"): 50,
    ("GET", "/v1/measurements/prometheus"): 10,
    ("GET", "/v1/audit"): 5,
    ("GET", "/v1/flows"): 2,
    ("GET", "/v1/in-band-flows"): 2,
    ("GET", "/v1/alerts"): 2,
}
# Rows of a page that cost one more.
ROWS = 250
MOST = 60


def cost_of(method: str, route: str, limit: str | None = None) -> int:
    """The cost of a request; ``route`` is the route's path, ``limit`` the page size as the query states it."""
    rows = int(limit) if limit is not None and limit.isascii() and limit.isdecimal() and len(limit) < 7 else 0
    return min(MOST, _FIXED.get((method, route), 1) + rows // ROWS)
