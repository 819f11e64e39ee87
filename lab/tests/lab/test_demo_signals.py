"""What the demonstration tells of forged signals, of nodes that do not signal and of the security page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from chart.common import qos
from chart_lab import demo_signals, topology
from chart_lab.experiments import signal_abuse
from chart_lab.network import Lab
from chart_lab.platform.laboratory import LaboratoryError
from chart_lab.platform.settings import PlatformSettings

NODES = ("alpha", "bravo", "charlie", "delta")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A lab that is not built."""
    return Lab(topology.load("demo"), state_dir=tmp_path)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Elements that count forged signals so: what bravo refuses of them, what charlie takes."""

    def count(*, seen: float, accepted: int = 0) -> None:
        zeros = dict.fromkeys((*signal_abuse.REFUSED, "accepted"), 0)
        now = {node: dict(zeros) for node in NODES}

        def inject(_lab: Lab, packets: list[bytes], _node: str, _interface: str) -> int:
            now["bravo"]["bad_tag"] += round(seen * len(packets))
            now["charlie"]["accepted"] += accepted
            return len(packets)

        monkeypatch.setattr(demo_signals, "_settled", lambda _: {node: dict(own) for node, own in now.items()})
        monkeypatch.setattr(signal_abuse, "inject", inject)
        monkeypatch.setattr(signal_abuse, "FORGES", {"as it was": lambda _, packet: packet})

    return count


def test_every_forged_signal_must_be_refused(lab: Lab, counting: Callable[..., None]) -> None:
    counting(seen=1.0)
    tried, accepted = demo_signals.forge(lab, "alpha", "delta", [b"signal"])
    assert (tried.value, accepted.value, accepted.met()) == (demo_signals.FORGED_OF_EACH_KIND, 0, True)


def test_one_that_any_element_takes_counts(lab: Lab, counting: Callable[..., None]) -> None:
    counting(seen=0.99, accepted=1)
    _, accepted = demo_signals.forge(lab, "alpha", "delta", [b"signal"])
    assert (accepted.value, accepted.met()) == (1, False)


def test_forgeries_that_nobody_saw_prove_nothing(lab: Lab, counting: Callable[..., None]) -> None:
    counting(seen=0.5)
    with pytest.raises(LaboratoryError, match="bravo saw 100 of 200"):
        demo_signals.forge(lab, "alpha", "delta", [b"signal"])
    with pytest.raises(LaboratoryError, match="no signal of alpha was captured"):
        demo_signals.forge(lab, "alpha", "delta", [])


def test_a_node_that_does_not_signal_is_named(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_abuse, "FORGES", {})
    monkeypatch.setattr(demo_signals, "agent_status", lambda _, node: {"signalling": {"error": f"{node} broke"}})
    with pytest.raises(LaboratoryError, match="alpha does not signal in band: alpha broke"):
        demo_signals.forge(lab, "alpha", "delta", [b"signal"])


def test_an_address_of_a_link_is_none_that_is_authorised(lab: Lab) -> None:
    own = demo_signals._link_address(lab, "alpha")
    assert own != lab.address("alpha")
    assert own == "10.1.1.1"


def test_the_security_page_tells_of_enrolled_nodes() -> None:
    refused = [{"reason": "bad_tag", "count": 600}, {"reason": "replayed", "count": 100}]
    pages: dict[str, Any] = {
        "/v1/node-keys": [
            {"node": "alpha", "key_epoch": 2, "refused_signals": refused},
            {"node": "stranger", "key_epoch": 0, "refused_signals": []},
        ],
        "/v1/identities": [{"identity": "node/alpha", "state": "enrolled"}, {"identity": "node/b", "state": "revoked"}],
    }
    transport = httpx.MockTransport(lambda asked: httpx.Response(200, json={"items": pages[asked.url.path]}))
    with httpx.Client(transport=transport, base_url="http://gateway") as rest:
        told = demo_signals.security_page(PlatformSettings(gateway_port=18080), rest, 700)
    assert told.startswith("security page http://127.0.0.1:18080/security: enrolled alpha (key epoch 2); 700 signals")


def test_signals_are_told_by_their_header_length() -> None:
    asked = qos.Qos(available_rate=qos.encode_rate(1_000_000), flow_type=1, source_port=40000)
    plain = bytes([0x45, 0, 0, 20]) + bytes(16)
    carried = qos.insert_ipv4(plain, qos.Signal(asked, sender=1, epoch=1, sequence=1))
    assert demo_signals.WITH_OPTIONS == "ip[0] & 0xf > 5"
    assert (plain[0] & 0xF) <= 5 < (carried[0] & 0xF)
