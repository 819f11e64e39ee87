"""`er-overlay`: an explicit-rate overlay across a bottleneck that CHART does not own.

Two elements have an agent each; the routers between them have none, and legacy traffic of other hosts crosses the same
bottleneck. The elements are the sending and the receiving host of a dumbbell, or (`--elements routers`) routers before
such hosts, which then have agents too and real links to their elements. The link between the elements is virtual: what
it has is what spruce finds available plus what was sent meanwhile, with ping's round-trip time as a brake (The CHART
System, sections 4 and 5). Sensors run in the two elements, and their results go out as a pod would publish them;
broker, allocator and agents are the real ones.

The legacy traffic is a TCP flow that wants less than the link has. Figures: of what it leaves free, alone on the
link, the part that CHART delivers; its own goodput beside CHART over its goodput alone; and CHART's round-trip time
above the path's. Peers are CUBIC and BBR in CHART's place, in the same minutes.
"""

from __future__ import annotations

import json
import secrets
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from chart.common.processes import end_process
from chart.v1 import topology_pb2
from chart_lab.errors import LabError
from chart_lab.experiments import agents, closed_loop, fair_share, noise, traffic
from chart_lab.experiments.closed_loop import ControlPlane, Flow
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, dimensions, interleaved
from chart_lab.experiments.kept import Kept
from chart_lab.experiments.overlay_sensing import Reading, Sensors, sensing
from chart_lab.experiments.traffic import PAYLOAD_SHARE
from chart_lab.network import Lab
from chart_lab.topology import Topology, all_ends, find_link

RATE_MBIT = 30.0
DELAY_MS = 10.0
SENDER, RECEIVER = "source1", "sink1"
LEGACY, LEGACY_SINK = "source2", "sink2"
BOTTLENECK, BOTTLENECK_LINK = "west:to-east", "west-east"
PORT, LEGACY_PORT = 5001, 5201
SPIN_US = 50
LEGACY_LOAD = 0.4
DURATION_S = 30.0
# The first readings of the sensors take this long.
SENSING_S = 15.0
WARM_UP_S = 5.0
ATTEMPTS = 2
CONTROLS = ("none", "chart", "cubic", "bbr")


@dataclass(frozen=True)
class Elements:
    """The ends of the virtual link, its id, which is that of the interface it begins at, and the network."""

    topology: str
    near: str
    far: str
    virtual: str


ELEMENTS = {
    "hosts": Elements("dumbbell", SENDER, RECEIVER, "source1:to-west"),
    "routers": Elements("overlay", "near", "far", "near:to-west"),
}


@dataclass
class Run:
    """One control in the overlay's place ("none": only the legacy flow); None where there was no such flow."""

    control: str
    legacy_bps: float
    goodput_bps: float | None = None
    rtt_rise_ms: float | None = None
    complaint: str | None = None
    readings: list[Reading] = field(default_factory=list)
    # Seconds after the flow's SYN: what was handed out, bit/s.
    rates: list[tuple[float, int]] = field(default_factory=list)


def elements_of(settings: Settings) -> Elements:
    """Which elements were asked for."""
    return ELEMENTS[settings.elements or "hosts"]


def overlay_topology(settings: Settings) -> Topology:
    """The network of the elements with this bottleneck."""
    rate = settings.rate_mbit or (RATE_MBIT,)
    delay = settings.delay_ms or (DELAY_MS,)
    changed = Settings(settings.out, rate_mbit=rate, delay_ms=delay, loss=settings.loss)
    base = fair_share.bottleneck_topology(changed, elements_of(settings).topology)
    # Sensors read gaps: packets must not pass in groups. Only the bottleneck spins, and little.
    links = [
        link.model_copy(update={"spin_us": SPIN_US if link.name == BOTTLENECK_LINK else 0, "coalesce_us": 0})
        for link in base.links
    ]
    return base.model_copy(update={"links": links})


def link_bps_of(base: Topology) -> int:
    """Capacity of the bottleneck."""
    return round((find_link(base, BOTTLENECK)[0].rate_mbit or 0.0) * 1e6)


def base_rtt_ms(base: Topology) -> float:
    """Twice the delays of the path from the sender to the receiver."""
    links = [find_link(base, link_id)[0] for link_id in closed_loop.path_links(base, SENDER, RECEIVER)]
    return 2 * sum(link.delay_ms or 0.0 for link in links)


def overlay_path(base: Topology, elements: Elements) -> list[str]:
    """Ids of the links of a flow from the sender to the receiver: the virtual one between those before and after it."""
    before = closed_loop.path_links(base, SENDER, elements.near)
    return [*before, elements.virtual, *closed_loop.path_links(base, elements.far, RECEIVER)]


def stated_links(base: Topology, elements: Elements) -> list[topology_pb2.Link]:
    """The links of that path as an operator states them: of the virtual one the elements are the ends, and its capacity
    is the most that it may use.
    """
    bound_bps = link_bps_of(base)
    by_id = {end.link_id: (link, end) for link, end in all_ends(base)}
    stated = []
    for link_id in overlay_path(base, elements):
        link, end = by_id[link_id]
        one = topology_pb2.Link(id=link_id, from_node=end.node, to_node=end.peer)
        one.capacity_bps = round((link.rate_mbit or 0.0) * 1e6)
        if link_id == elements.virtual:
            one.MergeFrom(topology_pb2.Link(to_node=elements.far, capacity_bps=bound_bps, tags={"virtual": "true"}))
        stated.append(one)
    return stated


def merged(runs: Sequence[Run]) -> Run:
    """Medians over the repeats of one control; readings and rates are the first one's."""

    def median(values: Iterable[float | None]) -> float | None:
        told = [value for value in values if value is not None]
        return statistics.median(told) if told else None

    return replace(
        runs[0],
        legacy_bps=statistics.median(run.legacy_bps for run in runs),
        goodput_bps=median(run.goodput_bps for run in runs),
        rtt_rise_ms=median(run.rtt_rise_ms for run in runs),
    )


def read_run(record: dict[str, Any]) -> Run:
    """A run from what was kept of it."""
    readings = [Reading(**one) for one in record["readings"]]
    return Run(**{**record, "readings": readings, "rates": [(at, rate) for at, rate in record["rates"]]})


@contextmanager
def _iperf(lab: Lab, rate_bps: float, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """The legacy flow: CUBIC, wanting so much payload. Its client ends by itself and then tells what arrived."""
    address = lab.address(LEGACY_SINK)
    server = lab.popen(
        LEGACY_SINK,
        ["iperf3", "-s", "-1", "-B", address, "-p", str(LEGACY_PORT)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    client = None
    try:
        words = ["iperf3", "-c", address, "-p", str(LEGACY_PORT), "-B", lab.address(LEGACY), "-C", "cubic", "-J"]
        # The flow is paced by TCP itself: iperf3's own pacing sends bursts of many packets.
        words += ["--fq-rate", f"{rate_bps:.0f}", "-l", "8K", "-t", f"{seconds:g}", "-i", "0.5"]
        words += ["--connect-timeout", "3000"]
        traffic.await_listening(lab, LEGACY_SINK, LEGACY_PORT, server)
        client = lab.popen(LEGACY, words)
        yield client
    finally:
        for process in (client, server):
            if process is not None:
                end_process(process)
                if process.stdout is not None:
                    process.stdout.close()


def legacy_bps(told: str, from_s: float, until_s: float) -> float:
    """Goodput in the intervals of iperf3's JSON between two times of its own. Raises LabError when there are none."""
    try:
        parts = [one["sum"] for one in json.loads(told)["intervals"]]
        inside = [one for one in parts if one["start"] >= from_s and one["end"] <= until_s]
        octets, seconds = (sum(float(one[name]) for one in inside) for name in ("bytes", "seconds"))
        return octets * 8 / seconds
    except (ValueError, KeyError, ZeroDivisionError) as error:
        raise LabError(f"iperf3 told nothing of seconds {from_s:g} to {until_s:g}: {error!r}") from None


def figures(runs: Mapping[str, Run], link_bps: float) -> list[Figure]:
    """Those of the issue, with the better peer beside each, and each peer's own."""
    alone = runs["none"].legacy_bps
    spare = link_bps * PAYLOAD_SHARE - alone

    def of(run: Run) -> tuple[float, float, float]:
        if run.goodput_bps is None or run.rtt_rise_ms is None:
            raise LabError(f"the flow under {run.control} told no goodput or no round-trip time")
        return run.goodput_bps / spare, run.legacy_bps / alone, run.rtt_rise_ms

    peers = [name for name in runs if name not in ("none", "chart")]
    names = (
        ("spare_share", "ratio", ">= 0.9"),
        ("legacy_share_ratio", "ratio", ">= 0.97"),
        ("rtt_rise_ms", "ms", "<= 5"),
    )
    found = []
    for place, (name, unit, goal) in enumerate(names):
        others = [of(runs[peer])[place] for peer in peers]
        best = (min(others) if goal.startswith("<") else max(others)) if others else None
        found.append(Figure(name, of(runs["chart"])[place], unit, goal, best))
        found += [Figure(name + dimensions(cc=peer), of(runs[peer])[place], unit) for peer in peers]
    return [*found, Figure("legacy_alone_bps", alone, "bit/s"), Figure("spare_bps", spare, "bit/s")]


def table(runs: Mapping[str, Run]) -> str:
    """Markdown: one line per control."""
    lines = [
        "# An overlay across a bottleneck that is not its own",
        "",
        "| in the overlay's place | legacy flow, Mb/s | its own, Mb/s | RTT rise p99, ms |",
        "| --- | --- | --- | --- |",
    ]
    for run in runs.values():
        own = "-" if run.goodput_bps is None else f"{run.goodput_bps / 1e6:.2f}"
        rise = "-" if run.rtt_rise_ms is None else f"{run.rtt_rise_ms:.2f}"
        lines.append(f"| {run.control} | {run.legacy_bps / 1e6:.2f} | {own} | {rise} |")
    return "\n".join(lines) + "\n"


def plot(runs: Mapping[str, Run], link_bps: float, path: Path) -> None:
    """PNG: goodputs beside each other; what sensors said and what was handed out."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (bars, lines) = pyplot.subplots(1, 2, figsize=(10, 3.6))
    names = list(runs)
    bars.bar(names, [runs[name].legacy_bps / 1e6 for name in names], label="legacy flow")
    below = [runs[name].legacy_bps / 1e6 for name in names]
    bars.bar(names, [(runs[name].goodput_bps or 0) / 1e6 for name in names], bottom=below, label="in its place")
    bars.axhline(link_bps * PAYLOAD_SHARE / 1e6, color="k", linestyle=":")
    bars.set_ylabel("goodput, Mb/s")
    bars.legend(fontsize=7)
    chart = runs["chart"]
    began = min((one.at_ns for one in chart.readings), default=0)
    sensed = [(one.at_ns, one.value) for one in chart.readings if one.metric == "available_bandwidth_bps"]
    lines.plot(
        [(at - began) / 1e9 for at, _ in sensed], [value / 1e6 for _, value in sensed], ".", label="available, sensed"
    )
    lines.step([at for at, _ in chart.rates], [rate / 1e6 for _, rate in chart.rates], "k", where="post", label="R")
    lines.set_xlabel("s")
    lines.set_ylabel("Mb/s")
    lines.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def measure(
    plane: ControlPlane,
    base: Topology,
    elements: Elements,
    control: str,
    duration_s: float,
    load: float,
    seed: int,
) -> Run:
    """One control beside the legacy flow, in a lab of its own.

    Raises LabError when sensors or loop do not come up or a flow fails.
    """
    link_bps = link_bps_of(base)
    wanted_bps = load * link_bps * PAYLOAD_SHARE
    directory = Path(tempfile.mkdtemp(prefix="chart-lab-"))
    try:
        with (
            ExitStack() as stack,
            Lab(base, f"x{secrets.token_hex(3)}", state_dir=directory, seed=seed, management=True) as lab,
            _iperf(lab, wanted_bps, SENSING_S + duration_s + 2) as legacy,
        ):
            began_s = time.monotonic()
            overlay = None
            if control == "chart":
                overlay = stack.enter_context(_overlay(lab, plane, elements))
            time.sleep(max(0.0, began_s + SENSING_S - time.monotonic()))
            lab.reset_ground_truth(BOTTLENECK_LINK)
            before = noise.cpu_times(lab, plane.cpu_s())
            account = None
            started_s = time.monotonic() - began_s
            if control == "none":
                time.sleep(duration_s)
            else:
                asked = None if control == "chart" else control
                transfer = traffic.Transfer(lab, SENDER, RECEIVER, duration_s=duration_s, congestion=asked, port=PORT)
                account = transfer.finish()
            disturbed = noise.judge(before, noise.cpu_times(lab, plane.cpu_s()), lab.ground_truth(BOTTLENECK_LINK))
            told, _ = legacy.communicate(timeout=SENSING_S + duration_s + 20)
            stack.close()
        run = Run(
            control, legacy_bps(told, started_s + WARM_UP_S, started_s + duration_s), complaint=disturbed.complaint()
        )
        if account is not None:
            run.goodput_bps = account.goodput_bps(duration_s, WARM_UP_S)
            run.rtt_rise_ms = account.rtt_inflation_ms(base_rtt_ms(base), after_s=WARM_UP_S)
        if overlay is not None and account is not None:
            sensors, streams = overlay
            if account.congestion != agents.FLOW_CONTROL and run.complaint is None:
                raise LabError(f"the flow ended under {account.congestion}: {', '.join(sensors.failures[-3:])}")
            run.readings = sensors.readings
            first = min((one.at_ns for one in sensors.readings), default=0)
            run.rates = [((at - first) / 1e9, rate) for at, rate, _ in streams.watch.rates]
        return run
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _overlay(lab: Lab, plane: ControlPlane, elements: Elements) -> Iterator[tuple[Sensors, closed_loop.Streams]]:
    """Agents on the elements and the hosts behind them, the links between them, sensors and a grant; ready when
    everybody has told something.
    """
    link_bps, path = link_bps_of(lab.topology), overlay_path(lab.topology, elements)
    stated = {link.id: topology_pb2.TopologyEntity(link=link) for link in stated_links(lab.topology, elements)}
    plane.publish([("chart.topology.v1", link_id, entity) for link_id, entity in stated.items()])
    streams = closed_loop.Streams(plane.settings.kafka_bootstrap, elements.virtual)
    nodes = dict.fromkeys((RECEIVER, elements.far, elements.near, SENDER))
    options = {node: ["--bootstrap", plane.settings.node_bootstrap] for node in nodes}
    grant = closed_loop.grant_of(lab, Flow(SENDER, RECEIVER, PORT))
    del grant.link_ids[:]
    grant.link_ids.extend(path)
    sending = {(grant.request_id, link_id.split(":", 1)[0]) for link_id in path}
    try:
        with (
            agents.running(lab, options, {elements.virtual: link_bps}),
            sensing(lab, (elements.near, elements.far), link_bps, plane.settings.kafka_bootstrap) as sensors,
        ):
            try:
                closed_loop.await_all("rates of the links", lambda: streams.rated >= set(path))
                plane.publish([("chart.flow-grant.v1", grant.request_id, grant)])
                closed_loop.await_all("the grant applied", lambda: streams.applied.keys() >= sending)
                sensed = ("rtt_us", "available_bandwidth_bps")
                closed_loop.await_all("readings of the sensors", lambda: all(sensors.seen(one) for one in sensed))
                yield sensors, streams
            finally:
                plane.publish([("chart.flow-grant.v1", grant.request_id, None)])
    finally:
        streams.close()
        plane.publish([("chart.topology.v1", link_id, None) for link_id in stated])


def run(settings: Settings, report: Report) -> Outcome:
    """The legacy flow alone, then with the overlay and with its peers beside it; medians over the repeats."""
    base = overlay_topology(settings)
    link_bps = link_bps_of(base)
    duration_s = settings.duration_s or DURATION_S
    load = (settings.load or (LEGACY_LOAD,))[0]
    controls = CONTROLS if settings.congestion is None else ("none", "chart", *settings.congestion)
    elements = elements_of(settings)
    repeat = settings.repeat or 1
    conditions = {
        "duration_s": duration_s,
        "load": load,
        "link": [base.name, link_bps, settings.delay_ms, settings.loss],
    }
    kept = Kept[Run](settings, conditions, write=asdict, read=read_run)
    runs: dict[str, list[Run]] = {control: [] for control in controls}
    with closed_loop.control_plane() as plane:
        plane.state_policy("nec")
        for place, (number, control) in enumerate(interleaved(list(runs), repeat)):
            report(control, place / (len(runs) * repeat))
            seed = settings.seed + 1000 * number
            quietly = partial(
                noise.undisturbed,
                partial(measure, plane, base, elements, control, duration_s, load, seed),
                lambda one: one.complaint,
                control,
                attempts=ATTEMPTS,
                judge_noise=settings.judge_noise,
            )
            runs[control].append(kept.measured([control, seed], quietly, SENSING_S + duration_s))
    found = {control: merged(own) for control, own in runs.items()}
    details = {control: [asdict(one) for one in own] for control, own in runs.items()}
    return Outcome(figures(found, link_bps), table(found), details, lambda path: plot(found, link_bps, path))


EXPERIMENT = Experiment(
    "er-overlay",
    "A virtual link across a legacy bottleneck: what is spare is used, legacy traffic keeps its share.",
    run,
)
