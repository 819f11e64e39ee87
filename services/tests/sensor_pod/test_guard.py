"""How the pod's gRPC interface is guarded."""

from __future__ import annotations

from pathlib import Path

import pytest

from chart.common import node_identity
from chart.sensor_pod.main import guard_of
from chart.sensor_pod.settings import PodSettings


def settings(**fields: object) -> PodSettings:
    return PodSettings(node="alpha", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("listen", ["127.0.0.1:18110", "[::1]:18110", "localhost:18110"])
def test_on_this_machine_it_may_be_plain(listen: str) -> None:
    assert guard_of(settings(environment="production", grpc_listen=listen), None) is None


def test_plain_on_an_address_that_others_reach_is_refused_in_production() -> None:
    assert guard_of(settings(grpc_listen="0.0.0.0:18110"), None) is None
    for listen in ("0.0.0.0:18110", "10.0.0.1:18110", "node-a:18110"):
        with pytest.raises(ValueError, match="plain gRPC on"):
            guard_of(settings(environment="production", grpc_listen=listen), None)


def test_with_an_identity_it_is_guarded_everywhere(tmp_path: Path) -> None:
    enrolled = settings(node_identity=tmp_path / "node", authority_ca=tmp_path / "ca.pem", grpc_listen="127.0.0.1:0")
    guard = guard_of(enrolled, node_identity.calls_of(enrolled))
    assert guard is not None
    assert guard.callers == ("service/gateway",)
    assert guard.files.key == tmp_path / "node.key"


def test_an_identity_needs_to_know_the_authority(tmp_path: Path) -> None:
    assert node_identity.calls_of(settings()) is None
    with pytest.raises(ValueError, match="CHART_AUTHORITY_CA"):
        node_identity.calls_of(settings(node_identity=tmp_path / "node"))
