"""`signal-timing`: when a rate is known and in full use, and that nothing bursts when the rate ends.

Brassil et al., The CHART System, section 2: one exchange of signals tells the sender its rate; section 5: the sender
"immediately jumps to the explicit rate". The release is caused by killing every other element's agent, so that no
renewal is answered any more.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from chart.common import qos
from chart_lab.errors import LabError
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, temporary_lab
from chart_lab.experiments.signal_capture import Capture, Packet
from chart_lab.experiments.signal_lab import Signals, ask, elements, line_topology
from chart_lab.experiments.traffic import Transfer
from chart_lab.network import Lab

RATE_MBIT = 100.0
DELAY_MS = 20.0
REPEAT = 3
PORT = 5001
CONTROL = "trinity"
# Half of the link is asked for, so that a burst at the end of the rate would find room.
ASKED_SHARE = 0.5
# In full use: this share of the rate over half a round trip.
FULL_SHARE = 0.95
KILL_AFTER_S = 1.5
AFTER_RELEASE_S = 1.0
RELEASE_TIMEOUT_S = 6.0
IDLE_S = 0.5
# Bins of the figure.
BIN_S = 0.02


@dataclass(frozen=True)
class Timing:
    """One flow, in round trips from its first signal, and what followed the end of its rate."""

    rate_bps: float
    rate_known_rtts: float
    full_rate_rtts: float
    released_after_s: float
    release_overshoot: float
    # Seconds from the first signal on: when the elements died, when the socket was given back, what was sent per bin.
    killed_s: float = 0.0
    released_s: float = 0.0
    sent_mbit: tuple[float, ...] = ()


def first_signal(packets: Sequence[Packet], status: qos.Status) -> tuple[float, qos.Qos]:
    """When the first signal of a status passed, and what it said. Raises LabError when there is none."""
    for packet in packets:
        parsed = packet.signal
        if parsed is not None and parsed.signal.qos.status == status:
            return packet.at_s, parsed.signal.qos
    raise LabError(f"no {status.name} was captured")


def sent_between(packets: Sequence[Packet], start_s: float, end_s: float) -> int:
    """Octets of IP of the flow's own packets between two times."""
    return sum(packet.length for packet in packets if start_s <= packet.at_s < end_s)


def full_use_s(packets: Sequence[Packet], rate_bps: float, span_s: float) -> float:
    """When the first span begins in which the rate is used in full. Raises LabError when there is none."""
    wanted = FULL_SHARE * rate_bps * span_s / 8
    first = total = 0
    for last, packet in enumerate(packets):
        total += packet.length
        while packets[last].at_s - packets[first].at_s > span_s:
            total -= packets[first].length
            first += 1
        if total >= wanted:
            return packets[first].at_s
    raise LabError("the rate was never in full use")


def binned(packets: Sequence[Packet], start_s: float, end_s: float, bin_s: float = BIN_S) -> tuple[float, ...]:
    """Mb/s of IP octets in each bin between two times."""
    octets = [0] * max(0, round((end_s - start_s) / bin_s))
    for packet in packets:
        place = int((packet.at_s - start_s) / bin_s)
        if packet.at_s >= start_s and place < len(octets):
            octets[place] += packet.length
    return tuple(8 * count / bin_s / 1e6 for count in octets)


def released(lab: Lab) -> float:
    """Waits until alpha's flow is no longer at its rate; the time. Raises LabError when it stays."""
    deadline = time.time() + RELEASE_TIMEOUT_S
    while time.time() < deadline:
        told = lab.exec("alpha", ["ss", "-Htin", "state", "established", "dport", "=", f":{PORT}"]).stdout
        if told and CONTROL not in told:
            return time.time()
        time.sleep(0.005)
    raise LabError(f"the flow was still at its rate {RELEASE_TIMEOUT_S:g} s after the elements died")


def run_once(lab: Lab, signals: Signals, rtt_s: float) -> Timing:
    """One flow from its first signal to a second after its rate ended."""
    with elements(lab, signals) as running, Capture(lab, "alpha", "to-mid", "src", "host", lab.address("alpha")) as out:
        time.sleep(IDLE_S)
        with Capture(lab, "alpha", "to-mid", "dst", "host", lab.address("alpha"), name="back") as back:
            total_s = KILL_AFTER_S + RELEASE_TIMEOUT_S + AFTER_RELEASE_S
            transfer = Transfer(lab, "alpha", "bravo", duration_s=total_s, port=PORT)
            try:
                time.sleep(KILL_AFTER_S)
                for node in ("mid", "bravo"):
                    running[node].kill()
                killed_s = time.time()
                released_s = released(lab)
                time.sleep(AFTER_RELEASE_S + rtt_s)
            finally:
                transfer.close()
    packets = out.packets()
    asked_s, _ = first_signal(packets, qos.Status.REQUEST)
    known_s, agreed = first_signal(back.packets(), qos.Status.RESPONSE)
    rate_bps = qos.decode_rate(agreed.guaranteed_rate) + qos.decode_rate(agreed.available_rate)
    own = [packet for packet in packets if packet.signal is None]
    sent_bits = 8 * sent_between(own, released_s, released_s + AFTER_RELEASE_S)
    return Timing(
        rate_bps=rate_bps,
        rate_known_rtts=(known_s - asked_s) / rtt_s,
        full_rate_rtts=(full_use_s(own, rate_bps, rtt_s / 2) - asked_s) / rtt_s,
        released_after_s=released_s - killed_s,
        release_overshoot=sent_bits / (rate_bps * AFTER_RELEASE_S),
        killed_s=killed_s - asked_s,
        released_s=released_s - asked_s,
        sent_mbit=binned(own, asked_s, released_s + AFTER_RELEASE_S),
    )


def evaluate(timings: Sequence[Timing]) -> list[Figure]:
    """The figures of the experiment: medians, of the overshoot the worst."""
    return [
        Figure("rate_known_rtts", statistics.median(t.rate_known_rtts for t in timings), "RTT", "<= 1.1"),
        Figure("full_rate_rtts", statistics.median(t.full_rate_rtts for t in timings), "RTT", "<= 2.1"),
        Figure("release_overshoot", max(t.release_overshoot for t in timings), "ratio", "<= 1.05"),
        Figure("released_after_s", statistics.median(t.released_after_s for t in timings), "s", "<= 3"),
        Figure("rate_bps", statistics.median(t.rate_bps for t in timings), "bit/s"),
    ]


def table(timings: Sequence[Timing]) -> str:
    """Markdown: one line per flow."""
    lines = ["# When a rate is known, used and gone", ""]
    lines += ["| known, RTT | in full use, RTT | released after s | sent in the next second / rate |"]
    lines += ["| --- | --- | --- | --- |"]
    lines += [
        f"| {t.rate_known_rtts:.3f} | {t.full_rate_rtts:.3f} | {t.released_after_s:.2f} | {t.release_overshoot:.3f} |"
        for t in timings
    ]
    return "\n".join(lines) + "\n"


def plot(timings: Sequence[Timing], path: Path) -> None:
    """PNG: what every flow sent over time, its rate, when the elements died and when the rate ended."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(timings), 1, figsize=(8, 2.4 * len(timings)), sharex=True, squeeze=False)
    for axis, timing in zip(axes[:, 0], timings, strict=True):
        axis.step([BIN_S * number for number in range(len(timing.sent_mbit))], timing.sent_mbit, linewidth=0.8)
        axis.axhline(timing.rate_bps / 1e6, color="black", linestyle=":", label="agreed rate")
        axis.axvline(timing.killed_s, color="tab:red", linestyle="--", label="nobody renews any more")
        axis.axvline(timing.released_s, color="tab:green", linestyle="--", label="the rate ended")
        axis.set_ylabel("sent, Mb/s")
        axis.set_ylim(bottom=0, top=2 * timing.rate_bps / 1e6)
    axes[0, 0].legend(loc="upper right", fontsize="small", ncols=3)
    axes[-1, 0].set_xlabel("seconds from the first signal on")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def run(settings: Settings, report: Report) -> Outcome:
    """Some flows one after the other, each on elements started anew."""
    rate_mbit = (settings.rate_mbit or (RATE_MBIT,))[0]
    delay_ms = (settings.delay_ms or (DELAY_MS,))[0]
    loss = (settings.loss or (0.0,))[0]
    repeat = settings.repeat or REPEAT
    topology = line_topology(("alpha", "mid", "bravo"), rate_mbit=rate_mbit, delay_ms=delay_ms, loss=loss)
    rtt_s = 4 * delay_ms / 1e3
    timings: list[Timing] = []
    for number in range(repeat):
        report(f"flow {number + 1}", number / repeat)
        signals = Signals(topology, asks={"alpha": [ask(port=PORT, available_bps=ASKED_SHARE * rate_mbit * 1e6)]})
        with temporary_lab(topology, settings.seed * 1000 + number) as lab:
            timings.append(run_once(lab, signals, rtt_s))
    details = [asdict(timing) for timing in timings]
    return Outcome(evaluate(timings), table(timings), details, lambda path: plot(timings, path))


EXPERIMENT = Experiment(
    "signal-timing", "When an in-band rate is known and in full use; no burst when it ends (sections 2 and 5).", run
)
