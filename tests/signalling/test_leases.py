"""What flows are guaranteed in band draws on leases that reservations gives: with both kinds of asking, no link ever
promises more than it may commit.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chart_lab import registration
from chart_lab.experiments import signal_lab
from chart_lab.network import Lab
from chart_lab.platform.laboratory import fetch
from chart_lab.platform.stack import Platform
from support import laboratory
from support.signals import PORT, Flow
from support.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

RATE_BPS = 20_000_000
LINK, INTERFACE = "alpha:to-mid", "to-mid"
ASKED_BPS = 1_000_000


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    """Broker, database and services; the test's agents have their keys from files, none for records."""
    with laboratory.running_platform(tmp_path / "platform", record_authentication="off") as platform:
        yield platform


@pytest.fixture
def rest(platform: Platform) -> Iterator[httpx.Client]:
    """REST client of an operator."""
    with laboratory.operator(platform) as client:
        yield client


@pytest.fixture
def lab(platform: Platform, rest: httpx.Client, tmp_path: Path) -> Iterator[Lab]:
    """Three nodes in a row that the platform knows, 20 Mb/s: 16 Mb/s may be committed."""
    topology = signal_lab.line_topology(("alpha", "mid", "bravo"), rate_mbit=RATE_BPS / 1e6, delay_ms=5)
    for path, body in [*registration.nodes(topology), *registration.links(topology)]:
        rest.put(path, json=body).raise_for_status()
    with Lab(topology, f"t{secrets.token_hex(3)}", state_dir=tmp_path / "lab", management=True) as lab:
        yield lab


def test_what_is_guaranteed_in_band_is_leased_and_never_committed_twice(
    platform: Platform, rest: httpx.Client, lab: Lab
) -> None:
    signals = signal_lab.Signals(
        lab.topology,
        asks={"alpha": [signal_lab.ask(port=PORT, guaranteed_bps=ASKED_BPS, service="variable")]},
        more_options=("--bootstrap", platform.settings.node_bootstrap),
    )

    def capacity() -> dict[str, Any]:
        found: dict[str, Any] = fetch(rest, f"/v1/links/{LINK}/capacity")
        return found

    with signal_lab.elements(lab, signals) as elements:
        alpha = elements["alpha"]
        state = until(lambda: fetch(rest, "/v1/nodes/alpha")["state"], "alpha's agent reports")
        assert "in-band" in state["capabilities"]
        until(lambda: alpha.link(INTERFACE)["lease_bps"], "the agent has a lease of its link")
        idle = capacity()
        assert alpha.link(INTERFACE)["lease_bps"] == idle["lease_bps"] == idle["admissible_bps"] // 10
        assert idle["in_band_bps"] == 0
        # Asked of reservations: all the rest, and not a bit more.
        body = {
            "source": "alpha",
            "destination": "mid",
            "protocol": "tcp",
            "destination_port": PORT + 1,
            "service": "guaranteed",
            "guaranteed_bps": idle["admissible_bps"] - idle["lease_bps"] + 1,
            "duration_s": 600,
        }
        assert rest.post("/v1/rate-requests", json=body).status_code == 409
        body["guaranteed_bps"] = int(body["guaranteed_bps"]) - 1
        assert rest.post("/v1/rate-requests", json=body).status_code == 201
        flow = Flow(lab)
        try:
            until(lambda: alpha.link(INTERFACE)["held_bps"], "the flow is guaranteed a rate in band")
            held = alpha.link(INTERFACE)["held_bps"]
            assert ASKED_BPS * 0.99 <= held <= ASKED_BPS
            until(lambda: capacity()["in_band_bps"] == held, "reservations knows what is drawn in band")
            # It draws on more than two thirds of the lease, which would be made larger if anything were free.
            alpha.signals.asks = {"alpha": [signal_lab.ask(port=PORT, guaranteed_bps=RATE_BPS, service="variable")]}
            alpha.write()
            lease = idle["lease_bps"]
            until(lambda: alpha.link(INTERFACE)["held_bps"] > 0.98 * lease, "the flow has all of the lease")
            for _ in range(3):
                before = capacity()
                assert alpha.link(INTERFACE)["held_bps"] <= lease
                assert max(step["committed_bps"] for step in before["steps"]) <= before["admissible_bps"]
        finally:
            flow.close()
