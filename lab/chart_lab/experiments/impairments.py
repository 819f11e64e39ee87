"""`impairments`: files fetched through a network that ten defects beset one after the other, under each control.

Bavier et al., Increasing TCP Throughput with an Enhanced Internet Control Plane, section V, figures 4 and 5; Brassil et
al., The CHART System, section 7: scenarios of up to ten defects, bulk transfers by FTP and HTTP, a goal of ten times.

On `naval-fleet` the frigate fetches a file by FTP, through the carrier's radio and the low satellite, while the cruiser
fetches one by HTTP from the same server through the geostationary satellite. Servers and clients are ordinary programs
(file_transfer.py). The defects come in the same order at the same times from the first packet on, and again from the
beginning for whoever is not done: all meet the same weather, those who take longer more often. The files are as
large as an undisturbed link nearly passes in one round.

CHART is in-band signalling on every node: the server's agent asks by a rule of ports. The agents are told the links'
rates in fair weather and nothing of any defect. With `--installed` every run is a network of the platform as it is
installed, and the rates are requests over REST for the same ports.

Transfer times are curl's own. Who does not finish within PATIENCE rounds is given up; its time then counts as if it had
finished there, so that a gain over it is at least what is told.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from ipaddress import IPv4Network
from typing import Any

from chart_lab import topology
from chart_lab.errors import LabError
from chart_lab.experiments import agents, impairments_report, installed, noise, signal_lab
from chart_lab.experiments.file_transfer import DATA_PORTS, Fetch, Protocol, server_controls, servers, write_file
from chart_lab.experiments.framework import (
    Experiment,
    Outcome,
    Report,
    Settings,
    interleaved,
    temporary_lab,
)
from chart_lab.experiments.impairments_report import Run
from chart_lab.experiments.installed import Installation
from chart_lab.network import Lab
from chart_lab.topology import Burst, Direction, Impairment, Link, Topology, find_link

# chart first: what it takes says most about the rest.
CONTROLS = ("chart", "bbr", "cubic")
DURATION_S = 16.0
PATIENCE = 24.0
SERVER = "server"
CLIENTS: dict[Protocol, str] = {"ftp": "frigate", "http": "cruiser"}
# The narrowest link of each client's path, from the topology; noise is judged by both.
NARROW: dict[Protocol, str] = {"ftp": "leo-carrier", "http": "geo-cruiser"}
# A file, of what its narrow link could carry in one round.
SIZE_SHARE = 0.85
# Which part of its tenth of a round each defect takes.
DEFECT_PART = (0.1, 0.9)
TICK_S = 0.02
SAMPLE_S = 0.25
CONTROL_SAMPLE_S = 0.5
# A run that noise spoilt is not made again by itself: CUBIC's takes minutes, and --resume keeps the others.
ATTEMPTS = 1


@dataclass(frozen=True)
class Defect:
    """What goes wrong with one link; forward is towards the ships."""

    name: str
    link: str
    what: Impairment
    direction: Direction = "both"


DEFECTS = (
    Defect("handover to a lower satellite: 60 ms more", "leo-carrier", Impairment(delay_ms=80)),
    Defect("rain on the high satellite: 5 % loss", "geo-cruiser", Impairment(loss=0.05)),
    Defect(
        "radio shadow: loss in bursts, 5 %",
        "carrier-frigate",
        Impairment(burst=Burst(enter=0.01, leave=0.2)),
        "forward",
    ),
    Defect("the high satellite is out", "shore-geo", Impairment(outage=True)),
    Defect("the low satellite at half its rate", "shore-leo", Impairment(rate_mbit=10)),
    Defect("reordering ashore: 2 % by 5 ms", "server-shore", Impairment(reorder=0.02, reorder_extra_ms=5), "forward"),
    Defect("rain on the low satellite: 5 % loss", "leo-carrier", Impairment(loss=0.05)),
    Defect("acknowledgements lost, 10 %", "geo-cruiser", Impairment(loss=0.1), "reverse"),
    Defect("the radio is out", "carrier-frigate", Impairment(outage=True)),
    Defect("duplication ashore: 5 %", "server-shore", Impairment(duplicate=0.05)),
)


@dataclass(frozen=True)
class Event:
    """A change of a link so long after the start; `defect` is the number of the one that begins, None when one ends."""

    at_s: float
    link: str
    what: Impairment
    direction: Direction
    defect: int | None


def restored(link: Link, changed: Impairment, direction: Direction) -> Impairment:
    """What sets the parameters that a defect changed back to the topology's."""
    own = {**link.model_dump(exclude_none=True)}
    if direction == "reverse" and link.reverse is not None:
        own |= link.reverse.model_dump(exclude_none=True)
    without = {"outage": False, "burst": "none", "rate_mbit": 0.0, "queue": "default"}
    return Impairment.model_validate({name: own.get(name, without.get(name, 0)) for name in changed.model_fields_set})


def events(base: Topology, duration_s: float) -> Iterator[Event]:
    """The changes in the order of their times, without end: round after round of `duration_s`."""
    slot_s = duration_s / len(DEFECTS)
    for round_number in itertools.count():
        for number, defect in enumerate(DEFECTS):
            start_s = round_number * duration_s + number * slot_s
            link, _ = find_link(base, defect.link)
            begin_s, end_s = (start_s + part * slot_s for part in DEFECT_PART)
            yield Event(begin_s, defect.link, defect.what, defect.direction, number)
            back = restored(link, defect.what, defect.direction)
            yield Event(end_s, defect.link, back, defect.direction, None)


def file_bytes(base: Topology, protocol: Protocol, duration_s: float) -> int:
    """The size of a file: SIZE_SHARE of what its narrow link passes in one round."""
    link, _ = find_link(base, NARROW[protocol])
    if not link.rate_mbit:
        raise LabError(f"link {link.name} has no rate")
    return round(SIZE_SHARE * link.rate_mbit * 1e6 / 8 * duration_s)


def signals_of(base: Topology) -> signal_lab.Signals:
    """In-band signalling on every node; the server asks for all it may have for what comes from its data ports."""
    rules = [
        {"selector": {"protocol": "tcp", "source_port": port}, "available_bps": 10**12, "service": "available"}
        for ports in DATA_PORTS.values()
        for port in ports
    ]
    return signal_lab.Signals(base, asks={SERVER: rules})


def requests_of() -> Iterator[Mapping[str, Any]]:
    """The same as requests over REST: all that the path may give to what comes from each data port."""
    for protocol, ports in DATA_PORTS.items():
        for port in ports:
            yield {
                "source": SERVER,
                "destination": CLIENTS[protocol],
                "protocol": "tcp",
                "source_port": port,
                "service": "available",
            }


def rates(lab: Lab, control: str, product: Installation | None) -> AbstractContextManager[object]:
    """What gives the files' flows their rates under `chart`; nothing does under the other controls."""
    if control != "chart":
        return nullcontext()
    return product.rates(requests_of()) if product else signal_lab.elements(lab, signals_of(lab.topology))


def set_control(lab: Lab, control: str) -> None:
    """The congestion control of what the server sends to its clients.

    By its routes: the programs know nothing of it, and a namespace may not choose every control for its default.
    """
    clients = {IPv4Network(lab.address(node)) for node in CLIENTS.values()}
    for route in topology.routes(lab.topology, SERVER):
        if route.destination in clients:
            way = [str(route.destination), "via", str(route.gateway), "src", str(route.source)]
            lab.exec(SERVER, ["ip", "route", "replace", *way, "congctl", control])


class _Watch:
    """What is seen while files are on their way: how much has come, and under which control the server sends."""

    def __init__(self, lab: Lab, fetches: Sequence[Fetch]) -> None:
        self._lab, self._fetches = lab, fetches
        self.progress: dict[str, list[tuple[float, int]]] = {fetch.protocol: [] for fetch in fetches}
        self.controls: dict[str, list[str]] = {fetch.protocol: [] for fetch in fetches}
        self._next_s = self._next_control_s = 0.0

    def look(self, at_s: float) -> None:
        """Samples what is due."""
        if at_s >= self._next_s:
            self._next_s = at_s + SAMPLE_S
            for fetch in self._fetches:
                if not fetch.over():
                    self.progress[fetch.protocol].append((round(at_s, 3), fetch.received_bytes()))
        if at_s >= self._next_control_s:
            self._next_control_s = at_s + CONTROL_SAMPLE_S
            for fetch in self._fetches:
                self.controls[fetch.protocol] += server_controls(self._lab, SERVER, fetch.protocol)

    def held_share(self, protocol: str) -> float:
        """Share of the samples in which the flow was at an explicit rate."""
        seen = self.controls[protocol]
        return seen.count(agents.FLOW_CONTROL) / len(seen) if seen else 0.0


def _through_defects(lab: Lab, fetches: Sequence[Fetch], duration_s: float) -> tuple[_Watch, int]:
    """Lets the defects come until all files are there or given up; what was seen, and how many defects began."""
    watch, began = _Watch(lab, fetches), 0
    coming = events(lab.topology, duration_s)
    event, started = next(coming), time.monotonic()
    limit_s = max(fetch.limit_s for fetch in fetches) + 1
    while not all(fetch.over() for fetch in fetches):
        now_s = time.monotonic() - started
        if now_s > limit_s:
            break
        while event.at_s <= now_s:
            lab.impair(event.link, event.what, event.direction)
            began += event.defect is not None
            event = next(coming)
        watch.look(now_s)
        time.sleep(TICK_S)
    return watch, began


def run_once(base: Topology, control: str, seed: int, duration_s: float, product: Installation | None = None) -> Run:
    """Both files at once in a lab of their own, or on a network of a product.

    Raises LabError when a program fails or octets differ.
    """
    limit_s = PATIENCE * duration_s
    used_s = product.cpu_s if product else float
    with product.network(base, seed) if product else temporary_lab(base, seed) as lab:
        folder = lab.directory / "files"
        folder.mkdir()
        digests = {
            protocol: write_file(folder / f"{protocol}.bin", file_bytes(base, protocol, duration_s), seed)
            for protocol in CLIENTS
        }
        # A flow whose rate ends goes on under the control it had: the host's own, which here is always the same.
        set_control(lab, "cubic" if control == "chart" else control)
        with rates(lab, control, product), servers(lab, SERVER, folder):
            for link in NARROW.values():
                lab.reset_ground_truth(link)
            before = noise.cpu_times(lab, used_s())
            fetches: list[Fetch] = []
            try:
                for protocol, node in CLIENTS.items():
                    fetches.append(Fetch(lab, node, SERVER, protocol, f"{protocol}.bin", limit_s))
                watch, began = _through_defects(lab, fetches, duration_s)
                after = noise.cpu_times(lab, used_s())
                files = tuple(fetch.finish(digests[fetch.protocol]) for fetch in fetches)
            finally:
                for fetch in fetches:
                    fetch.close()
            told = (noise.judge(before, after, lab.ground_truth(link)).complaint() for link in NARROW.values())
            complaint = next((one for one in told if one is not None), None)
    held: dict[str, float] = {protocol: watch.held_share(protocol) for protocol in CLIENTS}
    if control == "chart" and not all(held.values()):
        raise LabError(f"a flow never had an explicit rate; shares of the time with one: {held}")
    return Run(control, files, began, held, watch.progress, complaint)


def run(settings: Settings, report: Report) -> Outcome:
    """Every control in turns; finished runs are kept in the folder and used again with --resume."""
    base = topology.load("naval-fleet")
    duration_s = settings.duration_s or DURATION_S
    todo = list(interleaved(settings.congestion or CONTROLS, settings.repeat or 1))
    kept = impairments_report.kept_runs(settings, duration_s)
    runs: list[Run] = []
    with installed.installation(report) if settings.installed else nullcontext() as product:
        for done, (number, control) in enumerate(todo):
            report(f"{control}, ten defects in {duration_s:g} s", done / len(todo))
            quietly = partial(
                noise.undisturbed,
                partial(run_once, base, control, settings.seed * 1000 + number, duration_s, product),
                lambda found: found.complaint,
                f"two files under {control}",
                attempts=ATTEMPTS,
                judge_noise=settings.judge_noise,
            )
            runs.append(kept.measured([number, control], quietly, duration_s))
    sizes = {protocol: file_bytes(base, protocol, duration_s) for protocol in CLIENTS}
    first_round = list(itertools.islice(events(base, duration_s), 2 * len(DEFECTS)))
    spans = [(begin.at_s, end.at_s) for begin, end in zip(first_round[::2], first_round[1::2], strict=True)]
    return Outcome(
        figures=list(impairments_report.evaluate(runs)),
        table=impairments_report.table(runs, sizes, [defect.name for defect in DEFECTS], duration_s),
        details=[{**asdict(one), "installed": settings.installed} for one in runs],
        plot=partial(impairments_report.plot, runs, spans),
    )


EXPERIMENT = Experiment(
    "impairments",
    "Files by FTP and HTTP through ten timed defects: transfer time (Increasing TCP Throughput, figures 4-5).",
    run,
    installed=True,
)
