"""The default rules of telephony: a call that no program asks for gets 82 kb/s and waits less than 10 ms, whatever
fills the link beside it (Brassil et al., The CHART System, section 4: delay priority).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chart_lab.experiments.fair_share import bottleneck_topology
from chart_lab.experiments.framework import Settings, quantile
from chart_lab.experiments.signal_lab import Signals, ask, elements
from chart_lab.experiments.traffic import Transfer
from chart_lab.network import Lab
from support.calls import EXPEDITED, Call, Heard
from support.figures import Figures
from support.waiting import poll

pytestmark = pytest.mark.lab

BOTTLENECK, BOTTLENECK_MBIT, DELAY_MS = "west-east", 10.0, 5.0
MARKED_PORT, RULE_PORT, OTHER_PORT = 17000, 5004, 17002
BULK_PORT = 5001
CALL_BPS = 82_000
SECONDS = 6.0
# From when calls are judged: what is asked for one is known a round trip (14 ms) after its first packet, and packets
# until then wait as others do. Bulk flows have filled the link before.
BEGIN_S = 0.2
# From when the bulk flows are judged.
FULL_S = 1.5
QUEUEING_LIMIT_MS = 10.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """The dumbbell with a narrow link in its middle."""
    base = bottleneck_topology(Settings(tmp_path, rate_mbit=(BOTTLENECK_MBIT,), delay_ms=(DELAY_MS,)))
    links = [link.model_copy(update={"spin_us": 0}) for link in base.links]
    narrow = base.model_copy(update={"links": links})
    with Lab(narrow, f"t{secrets.token_hex(3)}", state_dir=tmp_path) as built:
        yield built


def waited_ms(lab: Lab, heard: Heard) -> list[float]:
    """How long each packet stood in queues: its delay without that of the links."""
    path = ("source1-west", BOTTLENECK, "east-sink1")
    base_ms = sum(link.delay_ms or 0 for link in lab.topology.links if link.name in path)
    return [delay - base_ms for delay in heard.delays_ms(BEGIN_S)]


def carried(lab: Lab) -> int:
    """Octets that the narrow link has carried."""
    return int(lab.ground_truth(BOTTLENECK)["forward"]["carried"]["bytes"])


def test_calls_wait_for_nobody(lab: Lab, figures: Figures) -> None:
    bulk_rule = ask(port=BULK_PORT, available_bps=10**12)
    signals = Signals(lab.topology, asks={"source2": [bulk_rule]}, default_asks={"source1": ["telephony"]})
    with elements(lab, signals) as running, ExitStack() as ends:
        bulk = [Transfer(lab, "source2", "sink2", duration_s=SECONDS + 3, port=BULK_PORT)]
        legacy_ports = (BULK_PORT + 1, BULK_PORT + 2)
        bulk += [
            Transfer(lab, "source2", "sink2", duration_s=SECONDS + 3, congestion="cubic", port=port)
            for port in legacy_ports
        ]
        for transfer in bulk:
            ends.callback(transfer.close)
        # Four tenths of a second of the narrow link: the bulk flows have found its end.
        assert poll(lambda: carried(lab), lambda octets: octets > 500_000, 30) > 500_000
        calls = {
            "code point": Call(lab, "source1", "sink1", MARKED_PORT, dscp=EXPEDITED, seconds=SECONDS),
            "port": Call(lab, "source1", "sink1", RULE_PORT, seconds=SECONDS),
            "no rule": Call(lab, "source1", "sink1", OTHER_PORT, seconds=SECONDS),
        }
        for call in calls.values():
            ends.callback(call.close)
        # Both calls are guaranteed on the narrow link, and the flow under CHART has its rate beside them.
        held = poll(lambda: running["west"].link("to-east"), lambda link: link["held_bps"] >= 1.9 * CALL_BPS, 5)
        heard = {name: call.finish() for name, call in calls.items()}
        accounts = [transfer.finish() for transfer in bulk]
    assert held["held_bps"] == pytest.approx(2 * CALL_BPS, rel=0.01), held
    assert accounts[0].congestion == "trinity"
    # The link was full, and of whom the queue is made has felt it.
    carried_bps = sum(account.goodput_bps(SECONDS, FULL_S) for account in accounts)
    figures.at_least("bulk flows", carried_bps / 1e6, 0.85 * BOTTLENECK_MBIT, "Mb/s", sound=0.5 * BOTTLENECK_MBIT)
    in_queue_ms = quantile(waited_ms(lab, heard["no rule"]), 0.5)
    figures.at_least("a call without a rule waits, p50", in_queue_ms, 2 * QUEUEING_LIMIT_MS, "ms", sound=1)
    for name in ("code point", "port"):
        waited = waited_ms(lab, heard[name])
        assert quantile(waited, 0.5) < in_queue_ms, f"the call by {name} overtakes the queue"
        figures.at_most(f"lost of the call by {name}", heard[name].lost(BEGIN_S), 0, "packets", sound=30)
        figures.at_most(f"the call by {name} waits, p99", quantile(waited, 0.99), QUEUEING_LIMIT_MS, "ms", sound=None)
