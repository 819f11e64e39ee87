"""The public surface is small and changes on purpose only."""

from __future__ import annotations

import subprocess
import sys

import chart_client

SURFACE = {
    "Callback",
    "FoundPath",
    "LinkCapacity",
    "Quota",
    "Receipt",
    "ChartError",
    "Client",
    "Confirmation",
    "Event",
    "Link",
    "Measurement",
    "Node",
    "NotAllowedError",
    "NotEnforcedError",
    "NotFoundError",
    "Policy",
    "Preview",
    "Problem",
    "ProblemError",
    "RateRequest",
    "RefusedError",
    "SensingConfiguration",
    "Series",
    "Tunnel",
    "UnavailableError",
    "UnreachableError",
}


def test_surface() -> None:
    assert set(chart_client.__all__) == SURFACE
    assert all(getattr(chart_client, name).__doc__ for name in SURFACE)


def test_client_needs_no_service() -> None:
    code = "import sys, chart_client, chart_client.cli; print([n for n in sys.modules if n.split('.')[0] == 'chart'])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout.strip() == "[]"
