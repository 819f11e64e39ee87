"""`make demo`: CHART's main job on one machine, measured.

Brassil et al., The CHART System, section 7, on one link of the lab: sense the path, ask for a rate over REST, move bulk
data with CUBIC, BBR and CHART in interleaved turns, and say what came out beside what was possible.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from chart_lab import demo_in_band as flows_in_band
from chart_lab.experiments.framework import Figure
from chart_lab.experiments.traffic import PAYLOAD_SHARE, Account, Transfer
from chart_lab.network import Lab
from chart_lab.platform.laboratory import LaboratoryError, fetch, request_rate

Progress = Callable[[str], None]

TOPOLOGY = "demo"
SENDER, RECEIVER = "alpha", "delta"
BAD_LINK = "bravo-charlie"
BAD_LINK_ENDS = ("bravo", "charlie")
CHART_PORT = 5201
PEER_PORT = 5301
GUARANTEED_BPS = 60_000_000
ORDER = ("cubic", "bbr", "chart", "chart", "bbr", "cubic")
SENSING_LIMIT_S = 90.0
REQUEST = {
    "source": SENDER,
    "destination": RECEIVER,
    "protocol": "tcp",
    "destination_port": CHART_PORT,
    "service": "variable",
    "guaranteed_bps": GUARANTEED_BPS,
    "description": "demonstration",
}


@dataclass(frozen=True)
class Truth:
    """What the bad link is set to."""

    rate_bps: float
    loss: float
    round_trip_us: float

    @property
    def limit_bps(self) -> float:
        """What a TCP flow could deliver at best: the rate that survives the loss, without headers."""
        return self.rate_bps * (1 - self.loss) * PAYLOAD_SHARE


@dataclass(frozen=True)
class Turn:
    """One bulk transfer as its receiver saw it, counted from the first SYN."""

    control: str
    goodput_bps: float
    first_second_bytes: float


@dataclass(frozen=True)
class Sensed:
    """What the pods say of the bad link."""

    available_bandwidth_bps: float
    rtt_us: float


def truth(lab: Lab) -> Truth:
    """Parameters of the bad link and of the path across it, from the emulator."""
    forward = lab.parameters(BAD_LINK)["forward"]
    reverse = lab.parameters(BAD_LINK)["reverse"]
    return Truth(
        rate_bps=float(forward["rate_bps"]),
        loss=float(forward["loss"]),
        round_trip_us=float(forward["delay_us"]) + float(reverse["delay_us"]),
    )


def wait_sensed(rest: httpx.Client, since: float) -> Sensed:
    """The first bandwidth and RTT that the pods measured over the bad link after ``since`` (seconds since the epoch).

    Raises:
        LaboratoryError: nothing arrived in time.
    """
    source, destination = BAD_LINK_ENDS
    end = time.monotonic() + SENSING_LIMIT_S
    found: dict[str, float] = {}
    wanted = ("available_bandwidth_bps", "rtt_min_us")
    while len(found) < len(wanted):
        if time.monotonic() > end:
            missing = ", ".join(sorted(set(wanted) - set(found)))
            msg = f"no {missing} from {source} to {destination} after {SENSING_LIMIT_S:.0f} s"
            raise LaboratoryError(msg)
        for item in fetch(rest, "/v1/measurements", source=source, destination=destination)["items"]:
            if item["metric"] in wanted and not item.get("error"):
                found[item["metric"]] = float(item["value"])
        time.sleep(0.25)
    return Sensed(found["available_bandwidth_bps"], found["rtt_min_us"])


def ask_for_rate(rest: httpx.Client) -> tuple[dict[str, Any], float]:
    """The rate request of the demonstration, and how long it took until it was enforced (milliseconds).

    Raises:
        LaboratoryError: refused, or not enforced in time; says why.
    """
    return request_rate(rest, REQUEST)


def take_turn(lab: Lab, control: str, duration_s: float) -> Turn:
    """One bulk transfer across the lab; ``chart`` is an ordinary application whose flow has a grant.

    Raises:
        LabError: an end failed; the message has its output.
    """
    granted = control == "chart"
    account: Account = Transfer(
        lab,
        SENDER,
        RECEIVER,
        duration_s=duration_s,
        congestion=None if granted else control,
        port=CHART_PORT if granted else PEER_PORT,
    ).finish()
    return Turn(control, account.goodput_bps(duration_s), account.bytes_until(1.0))


def figures(truth_: Truth, sensed: Sensed, enforced_ms: float, turns: list[Turn]) -> list[Figure]:
    """The figures of the demonstration; goodputs are arithmetic means, first seconds medians of the turns."""

    def goodput(control: str) -> float:
        return statistics.fmean(turn.goodput_bps for turn in turns if turn.control == control)

    def first(control: str) -> float:
        return statistics.median(turn.first_second_bytes for turn in turns if turn.control == control)

    def gain(ours: float, peers: float) -> float | None:
        return ours / peers if peers else None

    cubic, bbr, chart = goodput("cubic"), goodput("bbr"), goodput("chart")
    bandwidth_error = abs(sensed.available_bandwidth_bps - truth_.rate_bps) / truth_.rate_bps
    rtt_error_ms = abs(sensed.rtt_us - truth_.round_trip_us) / 1000
    limit_bps = truth_.limit_bps
    return [
        Figure("goodput_cubic_bps", cubic, "bit/s"),
        Figure("goodput_bbr_bps", bbr, "bit/s"),
        Figure("goodput_chart_bps", chart, "bit/s", peer=bbr),
        Figure("gain_over_cubic", gain(chart, cubic), "ratio", ">= 20"),
        Figure("gain_over_bbr", gain(chart, bbr), "ratio", ">= 1"),
        Figure("share_of_limit", chart / limit_bps, "ratio", ">= 0.92", bbr / limit_bps),
        Figure("first_second_gain_over_bbr", gain(first("chart"), first("bbr")), "ratio", ">= 2"),
        Figure("sensed_bandwidth_error", bandwidth_error, "ratio", "<= 0.15"),
        Figure("sensed_rtt_error_ms", rtt_error_ms, "ms", "<= 2"),
        Figure("request_to_enforced_ms", enforced_ms, "ms", "<= 1000"),
    ]


def in_band(lab: Lab) -> Figure:
    """Round trips until a flow across the bad link that asks inside its own packets knows its rate.

    Raises LabError when an end of a flow fails.
    """
    links = [lab.parameters(link.name) for link in lab.topology.links]
    round_trip_us = sum(float(one[way]["delay_us"]) for one in links for way in ("forward", "reverse"))
    return flows_in_band.figure(lab, SENDER, RECEIVER, round_trip_us / 1e6)


def run(rest: httpx.Client, state_dir: Path, duration_s: float, progress: Progress) -> list[Figure]:
    """The demonstration on a platform and a lab that are up; returns its figures.

    Raises:
        LaboratoryError: a step did not do its work; says which and why.
    """
    lab = Lab.load(TOPOLOGY, state_dir=state_dir / "lab")
    real = truth(lab)
    progress(
        f"the bad link carries {real.rate_bps / 1e6:.0f} Mb/s with {real.loss:.0%} loss and "
        f"{real.round_trip_us / 1000:.0f} ms round trip; waiting for the pods to sense it"
    )
    sensed = wait_sensed(rest, time.time())
    progress(f"sensed: {sensed.available_bandwidth_bps / 1e6:.1f} Mb/s free, RTT {sensed.rtt_us / 1000:.1f} ms")
    request, enforced_ms = ask_for_rate(rest)
    progress(
        f"POST /v1/rate-requests: {request['granted_bps'] / 1e6:.0f} Mb/s guaranteed, enforced on every node after "
        f"{enforced_ms:.0f} ms"
    )
    turns = []
    try:
        for number, control in enumerate(ORDER, start=1):
            progress(f"turn {number} of {len(ORDER)}: {control.upper()} for {duration_s:.0f} s")
            turns.append(take_turn(lab, control, duration_s))
            progress(f"  {turns[-1].goodput_bps / 1e6:.2f} Mb/s")
    finally:
        rest.post(f"/v1/rate-requests/{request['id']}/release")
    return figures(real, sensed, enforced_ms, turns)
