"""`chart lab`: build, watch, impair and remove networks on this machine, and run the experiments on them."""

from __future__ import annotations

import functools
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from chart_lab import enrolment, network, registration, supervise, topology
from chart_lab.errors import LabError, NoisyMachineError, UnfinishedError
from chart_lab.network import Lab

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Networks on this machine: namespaces, emulated links, experiments.",
)
output = Console()
progress = Console(stderr=True)

P = ParamSpec("P")
R = TypeVar("R")

LabOption = Annotated[str | None, typer.Option("--lab", help="id of the lab; not needed while only one is up")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]

# Experiments of several runs that can be done one at a time.
KEEPING = "two-path-grid, fairness, er-overlay, impairments, itm-*, kill-matrix"

EXIT_FAILED = 1
# Both: the same command again may do better (EX_TEMPFAIL).
EXIT_NOISY = EXIT_UNFINISHED = 75


def reported(function: Callable[P, R]) -> Callable[P, R]:
    """Turns what the lab cannot do into a sentence and an exit status."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except NoisyMachineError as error:
            progress.print(f"[yellow]too noisy:[/yellow] {error}")
            raise typer.Exit(EXIT_NOISY) from None
        except UnfinishedError as error:
            progress.print(f"[yellow]not finished:[/yellow] {error}", highlight=False)
            raise typer.Exit(EXIT_UNFINISHED) from None
        except LabError as error:
            progress.print(f"[red]error:[/red] {error}", highlight=False)
            raise typer.Exit(EXIT_FAILED) from None

    return wrapper


def show(value: object) -> None:
    """Prints JSON for programs."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def chosen(lab_id: str | None) -> Lab:
    """The lab a command speaks of: the named one, or the only one that is up."""
    known = network.list_ids()
    if lab_id is None:
        if len(known) != 1:
            raise LabError("no lab is up" if not known else f"several labs are up, say --lab: {', '.join(known)}")
        lab_id = known[0]
    return Lab.load(lab_id)


@app.command()
@reported
def up(
    name: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="name in lab/topologies or path of a YAML file")],
    lab_id: LabOption = None,
    seed: Annotated[int, typer.Option(help="of the links' chances")] = 1,
    management: Annotated[bool, typer.Option("--management", help="join the nodes to the management bridge")] = False,
    platform: Annotated[
        bool, typer.Option("--platform", help="register it at the gateway and run agent and sensor pod on every node")
    ] = False,
    gateway: Annotated[str | None, typer.Option(help="address of the gateway", show_default="local platform")] = None,
    enrol: Annotated[
        bool,
        typer.Option("--enrol/--no-enrol", help="with --platform: enrol the nodes at the local platform's authority"),
    ] = True,
    series: Annotated[bool, typer.Option("--series", help="links write their counters over time as CSV")] = False,
    as_json: JsonOption = False,
) -> None:
    """Build a lab."""
    lab = Lab(topology.load(name), lab_id, seed=seed, management=management or platform, series=series)
    if lab.standing() and not lab.left_behind():
        raise LabError(f"lab {lab.id} is up: `chart lab down --lab {lab.id}` removes it")
    with progress.status(f"lab {lab.id}") as status:
        try:
            lab.up(lambda step: status.update(f"lab {lab.id}: {step}"))
            if platform:
                lab.set_platform(gateway or registration.gateway_url(), enrolment.authority_url() if enrol else "")
                status.update(f"lab {lab.id}: registering nodes, links and what to sense")
                registration.register(lab.topology, lab.gateway)
                if lab.authority:
                    status.update(f"lab {lab.id}: enrolling nodes")
                    enrolment.enrol(lab, registration.authorisation_policy(lab.topology))
                    registration.authorise(lab.topology, lab.gateway)
                status.update(f"lab {lab.id}: starting agents and sensor pods")
                supervise.start(lab, supervise.node_processes(lab))
        except BaseException:
            lab.down()
            raise
    if as_json:
        show(describe(lab))
    else:
        output.print(f"lab {lab.id} is up: {len(lab.topology.nodes)} nodes, {len(lab.topology.links)} links")


@app.command()
@reported
def down(
    lab_id: LabOption = None,
    everything: Annotated[bool, typer.Option("--all", help="every lab, and what crashes left behind")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a lab; nothing of it outlives this."""
    with progress.status("removing") as status:
        if everything:
            removed = network.remove_all(lambda step: status.update(f"removing {step}"))
        else:
            lab = chosen(lab_id)
            forget(lab, lambda step: status.update(f"removing {step}"))
            removed = [lab.id]
    if as_json:
        show({"removed": removed})
    else:
        output.print(f"removed: {', '.join(removed) or 'nothing was up'}")


def forget(lab: Lab, told: Callable[[str], None]) -> None:
    """Removes a lab and what the platform knows of it; a platform that is gone already knows nothing to remove."""
    if lab.gateway:
        told("what the gateway knows of it")
        try:
            registration.deregister(lab.topology, lab.gateway, authorised=bool(lab.authority))
        except LabError as error:
            progress.print(f"not deregistered: {error}", highlight=False)
    lab.down(told)
    if lab.authority:
        told("identities of its nodes")
        try:
            enrolment.revoke(lab)
        except LabError as error:
            progress.print(f"not revoked: {error}", highlight=False)


def describe(lab: Lab) -> dict[str, Any]:
    """A lab as JSON: nodes with their addresses, links with parameters and ground truth."""
    return {
        "lab": lab.id,
        "topology": lab.topology.name,
        "nodes": [
            {
                "name": node.name,
                "address": lab.address(node.name),
                "networks": [str(item) for item in topology.node_networks(lab.topology, node.name)],
                "management_address": lab.management_address(node.name) if lab.management else None,
                "namespace": lab.namespace(node.name),
                "cgroup": str(lab.node_cgroup(node.name)),
                "processes": lab.processes(node.name),
                "enrolment": asdict(enrolment.of_node(lab, node.name)) if lab.gateway else None,
            }
            for node in lab.topology.nodes
        ],
        "supervised": [
            {"name": name, "state": state, "detail": detail} for name, state, detail in supervise.processes(lab)
        ],
        "links": [
            {
                "name": link.name,
                "ends": [end.link_id for end in topology.link_ends(lab.topology, link)],
                "parameters": lab.parameters(link.name),
                "ground_truth": lab.ground_truth(link.name),
            }
            for link in lab.topology.links
        ],
    }


@app.command()
@reported
def status(lab_id: LabOption = None, as_json: JsonOption = False) -> None:
    """What is up, what its links are set to and what they carried."""
    labs = [chosen(lab_id)] if lab_id else [Lab.load(known) for known in network.list_ids()]
    described = [describe(lab) for lab in labs]
    if as_json:
        show(described)
        return
    if not described:
        output.print("no lab is up")
    for lab in described:
        table = Table("link", "direction", "rate Mb/s", "delay ms", "loss", "carried MB", "dropped", "queue kB")
        for link in lab["links"]:
            for direction in ("forward", "reverse"):
                settings, truth = link["parameters"][direction], link["ground_truth"][direction]
                table.add_row(
                    link["name"],
                    direction,
                    f"{settings['rate_bps'] / 1e6:g}",
                    f"{settings['delay_us'] / 1e3:g}",
                    "outage" if settings["outage"] else f"{settings['loss']:g}",
                    f"{truth['carried']['bytes'] / 1e6:.3f}",
                    str(sum(cause["packets"] for cause in truth["dropped"].values())),
                    f"{truth['queue']['bytes'] / 1e3:.1f}",
                )
        output.print(f"lab {lab['lab']} (topology {lab['topology']})", table)
        for process in lab["supervised"]:
            output.print(f"{process['name']}: {process['state']} {process['detail']}")
        for node in lab["nodes"]:
            if node["enrolment"] is not None:
                words = enrolment.NodeEnrolment(**node["enrolment"]).in_words
                output.print(f"{node['name']}: {words}", markup=False)


@app.command("list")
@reported
def list_(as_json: JsonOption = False) -> None:
    """The topologies and experiments there are."""
    from chart_lab import experiments

    topologies = {name: topology.load(name).description for name in topology.available()}
    known = {name: experiment.description for name, experiment in experiments.REGISTRY.items()}
    if as_json:
        show({"topologies": topologies, "experiments": known})
        return
    for title, entries in (("topology", topologies), ("experiment", known)):
        table = Table(title, "what it is")
        for name, description in entries.items():
            table.add_row(name, description)
        output.print(table)


def queue_from(packets: int | None, kilobytes: float | None, red: str | None) -> topology.Queue | None:
    """The queue that the options of `impair` describe; None when they describe none."""
    if red is not None:
        try:
            minimum, maximum, *rest = [float(item) for item in red.split(",")]
        except ValueError:
            raise LabError("--queue-red is MIN,MAX[,MAX_PROBABILITY[,WEIGHT]] in packets") from None
        names = ("maximum_probability", "weight")
        extra = dict(zip(names, rest, strict=False))
        return topology.Queue(
            red=topology.Red.model_validate({"minimum_packets": minimum, "maximum_packets": maximum, **extra})
        )
    if packets is None and kilobytes is None:
        return None
    return topology.Queue(packets=packets, bytes=None if kilobytes is None else round(kilobytes * 1000))


@app.command()
@reported
def impair(
    link: Annotated[str, typer.Argument(help="pair of nodes (bravo-charlie) or directed link (bravo:to-charlie)")],
    lab_id: LabOption = None,
    rate_mbit: Annotated[float | None, typer.Option(help="with IP headers; 0 is no limit")] = None,
    delay_ms: Annotated[float | None, typer.Option(help="one way")] = None,
    jitter_ms: float | None = None,
    loss: Annotated[float | None, typer.Option(help="a fraction, 0 to 1")] = None,
    burst: Annotated[
        str | None, typer.Option(help="Gilbert-Elliott: ENTER,LEAVE[,LOSS_GOOD[,LOSS_BAD]], or none")
    ] = None,
    duplicate: Annotated[float | None, typer.Option(help="a fraction")] = None,
    reorder: Annotated[float | None, typer.Option(help="fraction of packets held back")] = None,
    reorder_extra_ms: Annotated[float | None, typer.Option(help="by how much")] = None,
    queue_packets: int | None = None,
    queue_kb: float | None = None,
    queue_red: Annotated[str | None, typer.Option(help="MIN,MAX[,MAX_PROBABILITY[,WEIGHT]] in packets")] = None,
    queue_default: Annotated[
        bool, typer.Option("--queue-default", help="what passes in max(2 x delay, 100 ms)")
    ] = False,
    outage: Annotated[bool | None, typer.Option("--outage/--no-outage", help="nothing passes")] = None,
    drop_options: Annotated[
        bool | None, typer.Option("--drop-options/--pass-options", help="packets with IP options do not pass")
    ] = None,
    outage_s: Annotated[float | None, typer.Option(help="an outage that ends by itself")] = None,
    direction: Annotated[str | None, typer.Option(help="forward (left to right), reverse or both")] = None,
    as_json: JsonOption = False,
) -> None:
    """Change a link while it runs."""
    if direction not in (None, "forward", "reverse", "both"):
        raise LabError("--direction is forward, reverse or both")
    wanted: dict[str, object] = {
        "rate_mbit": rate_mbit,
        "delay_ms": delay_ms,
        "jitter_ms": jitter_ms,
        "loss": loss,
        "duplicate": duplicate,
        "reorder": reorder,
        "reorder_extra_ms": reorder_extra_ms,
        "outage": outage,
        "drop_options": drop_options,
        "queue": "default" if queue_default else queue_from(queue_packets, queue_kb, queue_red),
        "burst": burst_from(burst),
    }
    try:
        impairment = topology.Impairment.model_validate({k: v for k, v in wanted.items() if v is not None})
    except ValueError as error:
        raise LabError(str(error)) from error
    lab = chosen(lab_id)
    lab.impair(link, impairment, direction)  # type: ignore[arg-type] # checked above
    if outage_s is not None:
        lab.outage(link, outage_s, direction)  # type: ignore[arg-type] # checked above
    if as_json:
        show(lab.parameters(link))


def burst_from(text: str | None) -> topology.Burst | str | None:
    """The Gilbert-Elliott parameters that --burst describes."""
    if text is None or text == "none":
        return text
    try:
        numbers = [float(item) for item in text.split(",")]
        return topology.Burst.model_validate(
            dict(zip(("enter", "leave", "loss_good", "loss_bad"), numbers, strict=False))
        )
    except ValueError:
        raise LabError("--burst is ENTER,LEAVE[,LOSS_GOOD[,LOSS_BAD]], four probabilities, or none") from None


@app.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@reported
def exec_(
    node: str,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...")],
    lab_id: LabOption = None,
) -> None:
    """Run a command in a node; its exit status is passed on."""
    lab = chosen(lab_id)
    command = command[1:] if command[0] == "--" else command
    raise typer.Exit(subprocess.run(lab.command_line(node, command), check=False).returncode)


def numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    """A list of numbers with commas; None stays None."""
    if text is None:
        return None
    try:
        result = tuple(float(item) for item in text.split(","))
    except ValueError:
        raise LabError(f"{option} is a number or several with commas, not {text}") from None
    if any(not value >= 0 for value in result):
        raise LabError(f"{option} cannot be negative")
    return result


def words(text: str | None, option: str, allowed: tuple[str, ...]) -> tuple[str, ...] | None:
    """A list of words with commas out of those allowed; None stays None."""
    if text is None:
        return None
    result = tuple(dict.fromkeys(text.split(",")))
    for word in result:
        if word not in allowed:
            raise LabError(f"{option} is one or several of {', '.join(allowed)}, not {word}")
    return result


def one_of(text: str, option: str, allowed: tuple[str, ...]) -> str:
    """One word out of those allowed."""
    if text not in allowed:
        raise LabError(f"{option} is one of {', '.join(allowed)}, not {text}")
    return text


def one_or_two(text: str | None, option: str) -> tuple[float, ...] | None:
    """A number, or two with a comma."""
    found = numbers(text, option)
    if found is not None and len(found) > 2:
        raise LabError(f"{option} is one number, or BEFORE,AFTER, not {text}")
    return found


def before_after(text: str | None, option: str) -> tuple[int, int] | None:
    """Two whole numbers; one stands for both."""
    found = one_or_two(text, option)
    if found is None:
        return None
    if any(number != int(number) or number > 1000 for number in found):
        raise LabError(f"{option} is BEFORE,AFTER in whole numbers up to 1000, not {text}")
    return int(found[0]), int(found[-1])


@app.command()
@reported
def run(
    experiment: Annotated[str, typer.Argument(help="see `chart lab list`")],
    out: Annotated[Path, typer.Option(help="folder for result.json, table.md, plot.png, details.json")],
    rate_mbit: Annotated[str | None, typer.Option(help="list, Mb/s with IP headers")] = None,
    loss: Annotated[str | None, typer.Option(help="list of fractions, both directions")] = None,
    delay_ms: Annotated[str | None, typer.Option(help="list, one way per link")] = None,
    duration: Annotated[float | None, typer.Option(min=1.0, help="seconds per transfer")] = None,
    congestion: Annotated[str | None, typer.Option(help="list of cubic, bbr, reno, chart")] = None,
    direction: Annotated[str | None, typer.Option(help="list of upload, download")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    repeat: Annotated[int | None, typer.Option(min=1, help="runs per point, in the order A B B A")] = None,
    ignore_noise: Annotated[bool, typer.Option("--ignore-noise", help="judge on a busy machine too")] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help=f"throughput-grid, {KEEPING}: keep what an earlier run there finished",
        ),
    ] = False,
    slice_s: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help=f"{KEEPING}: begin nothing that would not be over by then; --resume goes on (s)",
        ),
    ] = None,
    in_band: Annotated[
        bool, typer.Option("--in-band", help="throughput-grid: chart's rate is agreed by signals in the flow")
    ] = False,
    installed: Annotated[
        bool,
        typer.Option("--installed", help="on the platform as it is installed: authority, pods, rates agreed in band"),
    ] = False,
    rtt: Annotated[Path | None, typer.Option(help="inference-accuracy: matrix of round-trip times, ms")] = None,
    throughput: Annotated[
        Path | None, typer.Option(help="inference-accuracy: lines of source, destination, bit/s, RTT in ms")
    ] = None,
    fraction: Annotated[
        float | None, typer.Option(min=0.01, max=0.95, help="inference-accuracy: share of the RTT pairs to measure")
    ] = None,
    throughput_fraction: Annotated[
        float | None,
        typer.Option(min=0.01, max=0.95, help="inference-accuracy: share of the directed pairs to measure"),
    ] = None,
    target_pps: Annotated[
        str | None,
        typer.Option(help="itm-step: packets of 1000 bytes per second; BEFORE,AFTER for a step of the target"),
    ] = None,
    cross: Annotated[
        str | None,
        typer.Option(
            help="itm-step: cross connections BEFORE,AFTER the step; sensing-accuracy: list of poisson, burst, tcp"
        ),
    ] = None,
    load: Annotated[
        str | None, typer.Option(help="sensing-accuracy: list of shares of the link that other traffic takes")
    ] = None,
    sensor: Annotated[str | None, typer.Option(help="sensing-accuracy: list of pathrate, spruce, pathchirp")] = None,
    octets: Annotated[
        int | None, typer.Option("--bytes", min=1000, help="signal-cells: octets through each cell")
    ] = None,
    cell: Annotated[str | None, typer.Option(help="signal-cells: list of cells; all without it")] = None,
    connections: Annotated[
        int | None, typer.Option(min=100, help="middleboxes: connections through all of them together")
    ] = None,
    elements: Annotated[
        str | None, typer.Option(help="er-overlay: the ends of the virtual link: hosts (default) or routers")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run an experiment: measure, and write figures, table and plot."""
    from chart_lab import experiments
    from chart_lab.experiments import framework

    if experiment not in experiments.REGISTRY:
        raise LabError(f"there is no experiment {experiment}; there are {', '.join(experiments.REGISTRY)}")
    if installed and not experiments.REGISTRY[experiment].installed:
        able = ", ".join(name for name, one in experiments.REGISTRY.items() if one.installed)
        raise LabError(f"{experiment} does not run on the platform as it is installed; --installed is for {able}")
    if installed and in_band:
        raise LabError("--installed has its rates in band: leave --in-band out")
    losses = numbers(loss, "--loss")
    if losses and max(losses) >= 1:
        raise LabError("--loss is a fraction below 1: 0.05 is 5 %")
    rates = numbers(rate_mbit, "--rate-mbit")
    if rates and min(rates) <= 0:
        raise LabError("--rate-mbit must be above 0")
    loads = numbers(load, "--load")
    if loads and max(loads) >= 1:
        raise LabError("--load is a share below 1: 0.6 is 60 % of the link")
    sensing = experiment == "sensing-accuracy"
    settings = framework.Settings(
        out=out,
        rate_mbit=rates,
        loss=losses,
        delay_ms=numbers(delay_ms, "--delay-ms"),
        duration_s=duration,
        congestion=words(congestion, "--congestion", ("cubic", "bbr", "reno", "chart")),
        direction=words(direction, "--direction", ("upload", "download")),
        seed=seed,
        repeat=repeat,
        judge_noise=not ignore_noise,
        resume=resume,
        slice_s=slice_s,
        in_band=in_band,
        installed=installed,
        rtt_file=rtt,
        throughput_file=throughput,
        fraction=fraction,
        throughput_fraction=throughput_fraction,
        target_pps=one_or_two(target_pps, "--target-pps"),
        cross=None if sensing else before_after(cross, "--cross"),
        cross_kinds=words(cross, "--cross", ("poisson", "burst", "tcp")) if sensing else None,
        load=loads,
        sensor=words(sensor, "--sensor", ("pathrate", "spruce", "pathchirp")),
        elements=None if elements is None else one_of(elements, "--elements", tuple(experiments.er_overlay.ELEMENTS)),
        connections=connections,
        octets=octets,
        cells=words(cell, "--cell", tuple(each.name for each in experiments.signal_cells.CELLS)),
    )
    # A lab must go when its experiment is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Progress(console=progress, transient=True) as bar:
        task = bar.add_task(experiment, total=1.0)
        outcome = experiments.REGISTRY[experiment].run(
            settings, lambda text, share: bar.update(task, description=text, completed=share)
        )
    command = shlex.join(["chart", "lab", "run", *sys.argv[sys.argv.index("run") + 1 :]])
    framework.write(outcome, command, out, installed=installed)
    if as_json:
        sys.stdout.write((out / "result.json").read_text())
        return
    output.print(outcome.table, soft_wrap=True, highlight=False, markup=False)
    for figure in outcome.figures:
        if "/" not in figure.name and figure.value is not None:
            met = {True: "met", False: "[red]missed[/red]", None: ""}[figure.met()]
            output.print(f"{figure.name} = {figure.value:.4g} {figure.unit}  {figure.goal or ''} {met}")
    output.print(f"written to {out}")
