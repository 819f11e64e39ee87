"""chart-blast and libchart over three elements: a TCP flow that begins at its rate, datagrams paced at theirs."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from chart.common import qos
from chart_lab.experiments import signal_cells
from chart_lab.experiments.signal_lab import Signals, elements
from chart_lab.network import Lab
from chart_lab.programs import program
from support.figures import Figures

pytestmark = pytest.mark.lab

PORT = 5210
TOOL = "clients/chart-blast"


class Blast:
    """chart-blast from alpha to bravo; `sent` is what the sender tells."""

    def __init__(self, lab: Lab, *options: str, udp: bool = False) -> None:
        address = f"{lab.address('bravo')}:{PORT}"
        tool, kind = str(program(TOOL)), ["--udp"] if udp else []
        receiver = lab.popen("bravo", [tool, "receive", *kind, "--listen", address], stderr=subprocess.PIPE)
        try:
            assert receiver.stderr is not None
            assert "listening" in receiver.stderr.readline()
            command = [tool, "send", *kind, "--connect", address, "--bind", lab.address("alpha"), "--json", *options]
            self.result = lab.exec("alpha", command, check=False)
            receiver.wait(timeout=5)
        finally:
            receiver.kill()
            receiver.communicate()
        self.sent: dict[str, Any] = json.loads(self.result.stdout or "{}")


def test_a_stream_begins_at_its_rate_and_arrives_whole(lab: Lab, signals: Signals, figures: Figures) -> None:
    signals.asks = {}
    with elements(lab, signals):
        blast = Blast(lab, "--available", "50M", "--bytes", "5M", "--require")
    assert blast.result.returncode == 0, blast.result.stderr
    assert blast.sent["rate_bps"] == qos.decode_rate(qos.encode_rate(50_000_000))
    figures.at_most("until the stream has its rate", blast.sent["first_rate_s"], 0.2, "s", sound=5)
    assert blast.sent["receiver"]["bytes"] == 5_000_000
    assert blast.sent["receiver"]["sha256"] == blast.sent["sha256"]
    assert blast.sent["rate_events"][0]["state"] == "agreed"


def test_datagrams_are_paced_at_the_agreed_rate(lab: Lab, signals: Signals, figures: Figures) -> None:
    signals.asks = {}
    with elements(lab, signals):
        blast = Blast(lab, "--guaranteed", "8M", "--service", "guaranteed", "--duration", "3", "--require", udp=True)
    assert blast.result.returncode == 0, blast.result.stderr
    wanted_bps = qos.decode_rate(qos.encode_rate(8_000_000))
    assert blast.sent["guaranteed_bps"] == wanted_bps
    # With headers: payload of 1400 octets in packets of 1428. The first round trip goes at the fallback rate.
    paced = blast.sent["intervals"][1]["bits_per_second"] * 1428 / 1400 / wanted_bps
    figures.within("datagrams sent in the second second", paced, (0.97, 1.03), "of the rate", sound=(0.5, 1.5))
    # Of 2,100; a receiver that does not run for long loses what its socket cannot hold.
    figures.at_most("datagrams lost", blast.sent["receiver"]["lost"], 0, "datagrams", sound=200)


def test_without_an_agent_it_is_an_ordinary_flow_unless_a_rate_is_required(lab: Lab) -> None:
    blast = Blast(lab, "--available", "all", "--bytes", "100k")
    assert blast.result.returncode == 0
    assert "chart-agent" in blast.sent["no_rate_because"]
    strict = Blast(lab, "--available", "all", "--bytes", "100k", "--require")
    assert strict.result.returncode == 1
    assert "no rate was agreed on" in strict.result.stderr


@pytest.mark.parametrize("cell", [cell for cell in signal_cells.CELLS if not cell.restart], ids=lambda cell: cell.name)
def test_every_octet_arrives_through_a_bad_link(cell: signal_cells.Cell) -> None:
    """The experiment signal-cells with little data; an element that restarts has a test in test_rates.py."""
    octets = 20_000_000  # long enough for the second carrier to be tried
    result = signal_cells.run_cell(cell, octets, rate_mbit=100, delay_ms=5, seed=7)
    assert (result.octets, result.exact) == (octets, True)
    assert result.rate_as_expected, f"agreed on {result.rate_bps} bit/s"
