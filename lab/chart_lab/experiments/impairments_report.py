"""What `impairments` makes of its runs: figures, table, plot, and the file of finished runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chart_lab.experiments.file_transfer import Fetched
from chart_lab.experiments.framework import Figure, Settings, dimensions, geometric_mean
from chart_lab.experiments.kept import Kept

GAIN_GOAL = ">= 10"


@dataclass(frozen=True)
class Run:
    """Both files under one control."""

    control: str
    files: tuple[Fetched, ...]
    # How many defects began before the last file was there.
    defects: int
    # Share of the seconds in which each flow was at an explicit rate.
    held: Mapping[str, float]
    # Per protocol: seconds since the start, octets there.
    progress: Mapping[str, Sequence[tuple[float, int]]]
    # Why it cannot be judged; None when it can.
    complaint: str | None = None


def kept_runs(settings: Settings, duration_s: float) -> Kept[Run]:
    """The finished runs in the folder. Raises LabError when the file there is not ours."""

    def read(record: dict[str, Any]) -> Run:
        files = tuple(Fetched(**one) for one in record["files"])
        progress = {name: [(at, size) for at, size in seen] for name, seen in record["progress"].items()}
        return Run(**{**record, "files": files, "progress": progress})

    conditions: dict[str, Any] = {"duration_s": duration_s, "seed": settings.seed}
    if settings.installed:
        conditions["installed"] = True
    return Kept(settings, conditions, write=asdict, read=read)


def times_s(runs: Sequence[Run]) -> dict[tuple[str, str], float]:
    """Transfer time by protocol and control, medians over the repeats."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        for file in run.files:
            found.setdefault((file.protocol, run.control), []).append(file.seconds)
    return {key: statistics.median(values) for key, values in found.items()}


def gains(times: Mapping[tuple[str, str], float], over: str, control: str = "chart") -> dict[str, float]:
    """By protocol, how many times longer a file takes under another control."""
    return {
        protocol: times[protocol, over] / seconds
        for (protocol, own), seconds in times.items()
        if own == control and (protocol, over) in times
    }


def evaluate(runs: Sequence[Run]) -> Iterator[Figure]:
    """The gains over both files (geometric means) and for each; then every transfer time and what CHART met."""
    times = times_s(runs)
    for over, goal in (("cubic", GAIN_GOAL), ("bbr", None)):
        own = gains(times, over)
        peers = gains(times, over, "bbr") if over == "cubic" else {}
        if own:
            peer = geometric_mean(list(peers.values()))
            yield Figure(f"gain_over_{over}", geometric_mean(list(own.values())), "ratio", goal, peer)
            for protocol, gain in own.items():
                name = f"gain_over_{over}{dimensions(protocol=protocol)}"
                yield Figure(name, gain, "ratio", None, peers.get(protocol))
    for (protocol, control), seconds in times.items():
        peer = times.get((protocol, "cubic" if control == "bbr" else "bbr"))
        yield Figure(f"transfer_s{dimensions(cc=control, protocol=protocol)}", seconds, "s", None, peer)
    explicit = [run for run in runs if run.control == "chart"]
    if explicit:
        yield Figure("defects_met", min(run.defects for run in explicit), "count", ">= 10")
        yield Figure("explicit_rate_share", min(min(run.held.values()) for run in explicit), "ratio")


def table(runs: Sequence[Run], sizes: Mapping[Any, int], defects: Sequence[str], duration_s: float) -> str:
    """Markdown: a line per file and control; a `>` before what was given up. Then the defects."""
    lines = [
        f"# Files through ten defects, {duration_s:g} s a round",
        "",
        "| file | control | transfer, s | goodput, Mb/s | CHART's gain | defects met | at an explicit rate |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    times = times_s(runs)
    for protocol, control in times:
        own = [(run, file) for run in runs for file in run.files if (file.protocol, run.control) == (protocol, control)]
        given_up = "> " if any(not file.complete for _, file in own) else ""
        goodput_bps = statistics.median(file.received_bytes * 8 / file.seconds for _, file in own)
        gain = gains(times, control).get(protocol) if control != "chart" else None
        lines.append(
            f"| {protocol}, {sizes[protocol] / 1e6:.1f} MB | {control} | {given_up}{times[protocol, control]:.1f}"
            f" | {goodput_bps / 1e6:.2f} | {'' if gain is None else f'{given_up}{gain:.1f}'}"
            f" | {min(run.defects for run, _ in own)} | {min(run.held[protocol] for run, _ in own):.2f} |"
        )
    lines += ["", "Defects, in their order:", ""]
    return "\n".join([*lines, *(f"{number}. {name}" for number, name in enumerate(defects, 1))]) + "\n"


def plot(runs: Sequence[Run], spans: Sequence[tuple[float, float]], path: Path) -> None:
    """PNG: what has arrived over time, a panel per file; the first round's defects are shaded."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    protocols = list(dict.fromkeys(file.protocol for run in runs for file in run.files))
    figure, axes = pyplot.subplots(1, len(protocols), figsize=(5 * len(protocols), 4), squeeze=False)
    colours = {"chart": "tab:green", "bbr": "tab:blue", "cubic": "tab:orange"}
    for axis, protocol in zip(axes[0], protocols, strict=True):
        for run in runs:
            seen = run.progress.get(protocol, ())
            at, there = [one[0] for one in seen], [one[1] / 1e6 for one in seen]
            axis.plot(at, there, color=colours.get(run.control), label=run.control)
        for begin_s, end_s in spans:
            axis.axvspan(begin_s, end_s, color="0.9", zorder=0)
        axis.set_title(protocol)
        axis.set_xlabel("s")
        axis.set_xlim(left=0)
    axes[0][0].set_ylabel("arrived, MB")
    handles = dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True))
    axes[0][0].legend(handles.values(), handles.keys())
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
