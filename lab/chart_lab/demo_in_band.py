"""How soon a flow of the demonstration knows its rate when it asks inside its own packets.

Brassil et al., The CHART System, section 2: one exchange of signals tells the sender its rate.
"""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from chart_lab.errors import LabError
from chart_lab.experiments.framework import Figure
from chart_lab.network import Lab
from chart_lab.programs import program

TOOL = "clients/chart-blast"
PORT = 5211
FLOWS = 7
DURATION_S = 0.5
LIMIT_S = 30.0


@contextmanager
def receiving(lab: Lab, receiver: str) -> Iterator[list[str]]:
    """While chart-blast waits for one flow on a node: the command that sends it, to be completed.

    Raises LabError when the receiver does not listen.
    """
    tool = str(program(TOOL))
    listening = lab.popen(receiver, [tool, "receive", "--listen", str(PORT)], stderr=subprocess.PIPE)
    try:
        assert listening.stderr is not None
        if "listening" not in listening.stderr.readline():
            raise LabError(f"chart-blast does not listen on {receiver}")
        yield [tool, "send", "--connect", f"{lab.address(receiver)}:{PORT}", "--available", "all",
               "--duration", str(DURATION_S)]  # fmt: skip
    finally:
        listening.kill()
        listening.communicate()


def first_rate_s(lab: Lab, sender: str, receiver: str) -> float | None:
    """Seconds from opening a flow until its program knows the available rate it asked for; None: it never did.

    Raises LabError when an end fails.
    """
    with receiving(lab, receiver) as command:
        done = lab.exec(sender, [*command, "--json"], check=False, timeout_s=LIMIT_S)
    if done.returncode != 0:
        raise LabError(f"chart-blast ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    told = json.loads(done.stdout)["first_rate_s"]
    return None if told is None else float(told)


def figure(lab: Lab, sender: str, receiver: str, round_trip_s: float) -> Figure:
    """Median over a few flows, one after the other; those that learned no rate count as the slowest.

    Raises LabError as `first_rate_s`.
    """
    told = [first_rate_s(lab, sender, receiver) for _ in range(FLOWS)]
    median_s = statistics.median(float("inf") if one is None else one for one in told)
    known = None if median_s == float("inf") else median_s / round_trip_s
    return Figure("in_band_rate_rtts", known, "RTT", "<= 1.2")
