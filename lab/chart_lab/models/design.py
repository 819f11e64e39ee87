"""The gains of the link controllers, and a picture of what they do: `python -m chart_lab.models.design --out FOLDER`.

Both laws are the same linear loop around their working point. With r the relative error of the rate, x(n) = r(n - d)
that of the load (d periods old) and Q = Q + x the queue in units of what the link carries in a period,

    r(n + 1) = r(n) - A1 x(n) - A0 Q(n),   so that   (z - 1)^2 z^d + A1 (z - 1) + A0 z = 0.

NEC (Kolarov and Ramamurthy, 1999): A1 = 0.57/(d + 2), A0 = 0.14/(d + 2)^2, the normalised a1 N T and a0 N T, and the
virtual queue for Q. RCP (Dukkipati, 2007): A1 = alpha T/d0, and A0 = 0, since the queue that it sees is the real one,
which drains at C while the load settles 3 % below: there is none at the working point. (With a queue that stands,
A0 = beta (T/d0)^2 would be unstable from d = 6 on: there RCP swings until the queue is gone.) The greatest |z| says how
fast an error dies out; the gain margin says by how much the count of flows that answer may be wrong before it does not.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chart.allocator import laws
from chart_lab.models.link import ControlledLink, FlowGroup, LinkSimulator

MAXIMUM_DELAY = 16
# Periods of a drawn response: one flow alone, a second one joins, and leaves again.
JOIN_AT, LEAVE_AT, DRAWN_PERIODS = 20, 60, 100
_MARGIN_STEP = 1.01
_MARGIN_LIMIT = 100.0


@dataclass(frozen=True, slots=True)
class Gains:
    """Normalised gains of one law at one feedback delay."""

    derivative: float
    proportional: float


def gains(name: str, delay_periods: int) -> Gains:
    """What the law `name` uses at a feedback delay of so many periods."""
    if name == laws.NEC:
        after = delay_periods + 2
        return Gains(laws.NEC_DERIVATIVE / after, laws.NEC_PROPORTIONAL / after**2)
    return Gains(laws.RCP_ALPHA / max(delay_periods + 1, 2), 0.0)


def spectral_radius(delay_periods: int, used: Gains) -> float:
    """Greatest |z| of the loop: below 1 it is stable, and an error shrinks by this factor per period."""
    if used.proportional == 0.0:
        # Without the queue one root at 1 is that of the sum Q, which nobody reads.
        polynomial = np.zeros(delay_periods + 2)
        polynomial[:2] += (1.0, -1.0)
        polynomial[-1] += used.derivative
        return float(np.abs(np.roots(polynomial)).max())
    polynomial = np.zeros(delay_periods + 3)
    polynomial[:3] += (1.0, -2.0, 1.0)
    polynomial[-2:] += (used.derivative + used.proportional, -used.derivative)
    return float(np.abs(np.roots(polynomial)).max())


def gain_margin(delay_periods: int, used: Gains) -> float:
    """Factor on both gains at which the loop stops being stable, to one per cent."""
    factor = 1.0
    while factor < _MARGIN_LIMIT:
        if spectral_radius(delay_periods, Gains(used.derivative * factor, used.proportional * factor)) >= 1.0:
            return factor
        factor *= _MARGIN_STEP
    return factor


def best_gains(delay_periods: int) -> tuple[float, Gains]:
    """Smallest spectral radius on a grid around (d + 2)-scaled gains, and the gains that give it."""
    after = delay_periods + 2
    grid = [
        Gains(derivative / after, proportional / after**2)
        for derivative in np.arange(0.10, 1.30, 0.03)
        for proportional in np.arange(0.02, 0.62, 0.02)
    ]
    return min(((spectral_radius(delay_periods, one), one) for one in grid), key=lambda found: found[0])


def response(name: str, delay_periods: int) -> list[tuple[float, float]]:
    """(rate of the first flow, queue in ms) by period on 100 Mb/s: alone, a second joins, and leaves."""
    link = LinkSimulator(ControlledLink(name), 100e6, delay_periods=delay_periods)
    link.groups = [FlowGroup(1)]
    found = []
    for period in range(DRAWN_PERIODS):
        if period == JOIN_AT:
            link.groups.append(FlowGroup(1))
        elif period == LEAVE_AT:
            link.groups.pop()
        step = link.step()
        found.append((step.rates_bps[0], step.queue_us / 1e3))
    return found


def table() -> str:
    """Markdown: both laws by delay, beside the best gains on the grid."""
    lines = [
        "| delay, periods | NEC radius | best on the grid | NEC gain margin | RCP radius | RCP gain margin |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for delay in range(MAXIMUM_DELAY + 1):
        nec, rcp = gains(laws.NEC, delay), gains(laws.RCP, delay)
        best, _ = best_gains(delay)
        lines.append(
            f"| {delay} | {spectral_radius(delay, nec):.3f} | {best:.3f} | {gain_margin(delay, nec):.2f}"
            f" | {spectral_radius(delay, rcp):.3f} | {gain_margin(delay, rcp):.2f} |"
        )
    return "\n".join(lines) + "\n"


def plot(path: Path) -> None:
    """PNG: rate and queue after a join and a leave, per law and delay."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(9, 5), sharex=True)
    for column, name in enumerate(laws.LAWS):
        for delay in (0, 2, 4, 16):
            rates, queues = zip(*response(name, delay), strict=True)
            axes[0][column].plot([rate / 1e6 for rate in rates], label=f"d = {delay}")
            axes[1][column].plot(queues)
        axes[0][column].set_title(name)
        axes[1][column].set_xlabel("control period (100 ms)")
    axes[0][0].set_ylabel("rate of the first flow, Mb/s")
    axes[1][0].set_ylabel("queue, ms")
    axes[0][1].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> int:
    """Write the table and the picture."""
    parser = argparse.ArgumentParser(description="Gains of the link controllers: table and step responses.")
    parser.add_argument("--out", type=Path, required=True, help="folder for gains.md and gains.png")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    (out / "gains.md").write_text(table())
    plot(out / "gains.png")
    print(f"written to {out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
