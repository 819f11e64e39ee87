"""Table and plot of the throughput grid: ours beside the peers and what the paper's text states of figures 4-6."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chart_lab.experiments.traffic import PAYLOAD_SHARE

# Brassil et al., The CHART System, section 7, at 100 Mb/s: (loss, one-way delay in ms) -> Mb/s. The paper's figures
# have no numbers; these are the ones its text gives.
PAPER_CHART_MBIT = {(0.1, 0.0): 65.0, (0.1, 100.0): 2.0}
PAPER_LEGACY_MBIT = {(0.1, 0.0): 0.6, (0.1, 100.0): 0.18}


@dataclass(frozen=True)
class Cell:
    """One point of the grid."""

    rate_mbit: float
    loss: float
    delay_ms: float
    direction: str

    @property
    def limit_bps(self) -> float:
        """Payload that the link can carry: rate x (1 - forward loss) x 1448/1500."""
        return self.rate_mbit * 1e6 * (1 - self.loss) * PAYLOAD_SHARE

    def __str__(self) -> str:
        return f"{self.rate_mbit:g} Mb/s, loss {self.loss:g}, {self.delay_ms:g} ms, {self.direction}"


@dataclass(frozen=True)
class CellResult:
    """Medians over the repeats of one cell under one control."""

    goodput_bps: float
    goodput_range_bps: tuple[float, float]
    share_of_limit: float
    first_second_bytes: float
    rtt_inflation_p99_ms: float | None


Results = Mapping[tuple[Cell, str], CellResult]


def controls_of(results: Results) -> list[str]:
    """The congestion controls, in the order they were asked for."""
    return list(dict.fromkeys(control for _, control in results))


def cells_of(results: Results) -> list[Cell]:
    """The cells, in the order of the grid."""
    return list(dict.fromkeys(cell for cell, _ in results))


def _mbit(result: CellResult) -> str:
    low, high = result.goodput_range_bps
    spread = f" ({low / 1e6:.2f}-{high / 1e6:.2f})" if high > low else ""
    return f"{result.goodput_bps / 1e6:.2f}{spread}"


def _paper(values: Mapping[tuple[float, float], float], cell: Cell) -> str:
    value = values.get((cell.loss, cell.delay_ms)) if cell.rate_mbit == 100 else None
    return "" if value is None else f"{value:g}"


def table(results: Results, duration_s: float, repeat: int) -> str:
    """Markdown: one line per cell, goodput in Mb/s, share of the limit, first second, RTT inflation."""
    controls = controls_of(results)
    heads = ["rate Mb/s", "loss", "delay ms", "direction", "limit Mb/s"]
    heads += [f"{control} Mb/s" for control in controls]
    heads += [f"{control} share" for control in controls]
    heads += [f"{control} 1st second MB" for control in controls]
    heads += [f"{control} RTT p99 + ms" for control in controls]
    heads += ["paper CHART Mb/s", "paper TCP Mb/s"]
    lines = [
        "# Goodput over loss and delay",
        "",
        f"{duration_s:g} s per transfer, {repeat} per cell and control (median, range), counted from the first SYN.",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + " --- |" * len(heads),
    ]
    for cell in cells_of(results):
        own = [results[cell, control] for control in controls]
        row = [f"{cell.rate_mbit:g}", f"{cell.loss:g}", f"{cell.delay_ms:g}", cell.direction]
        row.append(f"{cell.limit_bps / 1e6:.2f}")
        row += [_mbit(result) for result in own]
        row += [f"{result.share_of_limit:.3f}" for result in own]
        row += [f"{result.first_second_bytes / 1e6:.2f}" for result in own]
        row += ["" if r.rtt_inflation_p99_ms is None else f"{r.rtt_inflation_p99_ms:.1f}" for r in own]
        row += [_paper(PAPER_CHART_MBIT, cell), _paper(PAPER_LEGACY_MBIT, cell)]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def plot(results: Results, path: Path) -> None:
    """PNG: a panel per control with a line per loss over delay (figures 4, 5), and the gain over CUBIC (figure 6)."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    controls = controls_of(results)
    first = cells_of(results)[0]
    shown = [c for c in cells_of(results) if (c.rate_mbit, c.direction) == (first.rate_mbit, first.direction)]
    gains = {"cubic", "chart"} <= set(controls)
    panels = len(controls) + gains
    figure, axes = pyplot.subplots(1, panels, figsize=(4 * panels, 3.6), squeeze=False)
    for axis, control in zip(axes[0], controls, strict=False):
        for loss in dict.fromkeys(cell.loss for cell in shown):
            line = [cell for cell in shown if cell.loss == loss]
            goodput = [results[cell, control].goodput_bps / 1e6 for cell in line]
            axis.plot([cell.delay_ms for cell in line], goodput, marker="o", label=f"loss {loss:g}")
        axis.set(title=control, xlabel="one-way delay, ms", ylabel="goodput, Mb/s", ylim=(0, first.rate_mbit))
    if gains:
        axis = axes[0][-1]
        for loss in dict.fromkeys(cell.loss for cell in shown):
            line = [cell for cell in shown if cell.loss == loss]
            ratio = [results[c, "chart"].goodput_bps / max(results[c, "cubic"].goodput_bps, 1) for c in line]
            axis.plot([cell.delay_ms for cell in line], ratio, marker="o", label=f"loss {loss:g}")
        axis.set(title="chart over cubic", xlabel="one-way delay, ms", ylabel="ratio", yscale="log")
    axes[0][0].legend()
    figure.suptitle(f"{first.rate_mbit:g} Mb/s, {first.direction}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
