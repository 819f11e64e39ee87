"""`overlay-scale`: the structured overlay Chimera at 256 and 1,024 nodes, of which a tenth dies at once.

The nodes are those of `dataplane/lib/chimera`, in simulated time (`chimera-simulate`): each knows some tens of others,
they join one after the other while messages are lost, and every pair is tried before the deaths and after the repair.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field

from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings
from chart_lab.programs import program

SIZES = (256, 1024)
REPEAT = 3
DYING, LOSS = 0.1, 0.01
LIMIT_S = 1800.0


@dataclass(frozen=True)
class Run:
    """What `chimera-simulate` prints: times in seconds of simulated time, shares from 0 to 1."""

    nodes: int
    seed: int
    loss: float
    joined_s: float
    # Questions, answers and probes of who was heard of, without the probes of peers.
    messages_per_node_s: float
    peers_mean: float
    hops_mean: float
    hops_max: int
    undelivered_before: int
    tried_before: int
    died: int
    # From the deaths to the last message that did not arrive.
    repair_s: float
    lost_in_first_second: float
    undelivered_after_1s: int
    tried_after_1s: int
    undelivered: int
    tried: int
    hops_mean_after: float
    peers_mean_after: float
    lost: int = field(init=False)
    sent: int = field(init=False)

    def __post_init__(self) -> None:
        """What was lost although its destination lived and was to be found, and how much was sent."""
        lost = self.undelivered_before + self.undelivered_after_1s + self.undelivered
        object.__setattr__(self, "lost", lost)
        object.__setattr__(self, "sent", self.tried_before + self.tried_after_1s + self.tried)


def simulate(nodes: int, seed: int, *, loss: float = LOSS, dying: float = DYING) -> Run:
    """One overlay. Raises CalledProcessError."""
    command = [str(program("dataplane/chimera-simulate")), "--nodes", str(nodes), "--seed", str(seed)]
    command += ["--loss", str(loss), "--die", str(dying)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    return Run(**json.loads(answer.stdout))


def run(settings: Settings, report: Report) -> Outcome:
    """Each size with each seed; a loss of its own by ``--loss``."""
    loss = settings.loss[0] if settings.loss else LOSS
    repeat = settings.repeat or REPEAT
    runs: list[Run] = []
    for size in SIZES:
        for number in range(repeat):
            report(f"{size} nodes", len(runs) / (repeat * len(SIZES)))
            runs.append(simulate(size, settings.seed + number, loss=loss))
    largest = [one for one in runs if one.nodes == SIZES[-1]]
    figures = [
        Figure("hops_mean", max(one.hops_mean for one in largest), "hops", "<= 3"),
        Figure("repair_s", max(one.repair_s for one in runs), "s", "<= 1"),
        Figure("undelivered", sum(one.lost for one in runs), "messages", "<= 0"),
        Figure("undelivered_tried", sum(one.sent for one in runs), "messages"),
        Figure("lost_in_first_second", max(one.lost_in_first_second for one in runs), "share"),
        Figure("peers_mean", max(one.peers_mean for one in largest), "peers"),
        Figure("messages_per_node_s", max(one.messages_per_node_s for one in largest), "1/s"),
        *(
            Figure(f"hops_mean/nodes={size}", max(one.hops_mean for one in runs if one.nodes == size), "hops")
            for size in SIZES
        ),
    ]
    lines = [
        "# Chimera: a tenth of all nodes dies at once",
        "",
        "| nodes | seed | peers | hops | most | repair s | lost in the first second | undelivered | of |",
        "| --- " * 9 + "|",
    ]
    lines += [
        f"| {one.nodes} | {one.seed} | {one.peers_mean:.0f} | {one.hops_mean:.2f} | {one.hops_max} |"
        f" {one.repair_s:.2f} | {one.lost_in_first_second:.1%} | {one.lost} | {one.sent} |"
        for one in runs
    ]
    return Outcome(figures, "\n".join(lines) + "\n", [asdict(one) for one in runs])


EXPERIMENT = Experiment(
    "overlay-scale", "The structured overlay at 256 and 1,024 nodes, of which a tenth dies at once (simulated).", run
)
