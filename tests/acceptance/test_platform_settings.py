"""Settings of the platform are changed over REST and act in running services, without a restart."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from support.waiting import until

pytestmark = pytest.mark.lab

SETTINGS = "/v1/platform-settings/platform"
REPORTED = ("id", "revision")
# More than the admission limit of the narrowest link, 80 Mb/s, of which the default allows four times.
ASKED = {"source": "alpha", "destination": "delta", "service": "maximum", "maximum_bps": 90_000_000}


def put(rest: httpx.Client, **changes: Any) -> None:
    """Change settings, of the revision that they have."""
    before = rest.get(SETTINGS).raise_for_status()
    body = {name: value for name, value in before.json().items() if name not in REPORTED}
    rest.put(SETTINGS, json={**body, **changes}, headers={"If-Match": before.headers["ETag"]}).raise_for_status()


def granted(rest: httpx.Client) -> bool:
    """Whether reservations would grant the rate now."""
    return bool(rest.post("/v1/rate-requests:preview", json=ASKED).raise_for_status().json()["granted"])


@pytest.mark.usefixtures("lab")
def test_reservations_follow_the_oversubscription_that_is_set(rest: httpx.Client) -> None:
    until(lambda: granted(rest), "it fits as the platform was started")
    put(rest, oversubscription=1.0)
    try:
        until(lambda: not granted(rest), "it does not fit without oversubscription")
    finally:
        put(rest, oversubscription=None)
    until(lambda: granted(rest), "it fits again")
