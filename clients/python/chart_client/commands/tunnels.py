"""`chart tunnels`: elastic tunnels: settings and state."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from chart_client.commands.common import (
    JsonOption,
    Rate,
    ServerOption,
    TokenOption,
    out,
    print_json,
    print_table,
    rate_option,
    session,
    show_all,
    show_one,
    told,
    weight_of,
)
from chart_client.models import Tunnel, TunnelStep
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps, parse_rate

app = typer.Typer(help="Elastic tunnels: a target rate over ordinary TCP connections.", no_args_is_help=True)

TunnelArgument = Annotated[str, typer.Argument(metavar="TUNNEL", help="Name of the tunnel, as given to its origin.")]


class Controller(StrEnum):
    """Controller of the number of connections."""

    none = "none"
    naive = "naive"
    p = "p"
    pi = "pi"


def schedule_entry(text: str) -> dict[str, Any]:
    """START/END=RATE or START/=RATE as the gateway takes it.

    Raises:
        typer.BadParameter: it does not read so.
    """
    times, equals, rate = text.rpartition("=")
    start, slash, end = times.partition("/")
    if not equals or not slash:
        raise typer.BadParameter(f"{text!r} must be START/END=RATE, such as 2026-03-01T09:00Z/2026-03-01T17:00Z=20M")
    try:
        moments = [datetime.fromisoformat(moment) if moment else None for moment in (start, end)]
        target_bps = parse_rate(rate)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}") from None
    if moments[0] is None:
        raise typer.BadParameter(f"{text!r} has no start")
    first, last = (moment and (moment if moment.tzinfo else moment.astimezone()).isoformat() for moment in moments)
    return {"start": first, "end": last, "target_bps": target_bps}


@app.command("list")
def list_tunnels(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List tunnels with rate, target and connections."""
    show_all(
        server,
        token,
        lambda client: client.tunnels.list(),
        ("id", "ends", "controller", "target", "from", "rate", "connections", "remark"),
        lambda one: (
            one.id,
            f"{one.state.origin} - {one.state.destination}" if one.state else "-",
            one.settings.controller if one.settings else "-",
            format_bps(one.target_bps) if one.target_bps else "-",
            one.target_source,
            format_bps(one.rate_bps) if one.state else "-",
            one.state.connections_established if one.state else "-",
            one.reason,
        ),
        "no tunnels",
        as_json=as_json,
    )


@app.command()
def show(
    tunnel: TunnelArgument, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Show a tunnel: last decision, and settling time, overshoot, steady-state error and changes of each step."""
    show_one(server, token, lambda client: client.tunnels.get(tunnel), _print, as_json=as_json)


@app.command("set")
def set_tunnel(
    tunnel: TunnelArgument,
    target: Annotated[
        Rate | None,
        typer.Option(parser=rate_option, metavar="RATE", help="Target, such as 20M, IP headers included; 0: none."),
    ] = None,
    controller: Annotated[Controller | None, typer.Option(help="Controller; pi computes its gains.")] = None,
    request: Annotated[
        str | None,
        typer.Option(metavar="REQUEST", help="Follow this rate request's guaranteed rate; empty: stop following."),
    ] = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(metavar="START/END=RATE", help="A target for a time; repeatable, replaces the schedule."),
    ] = None,
    no_schedule: Annotated[bool, typer.Option("--no-schedule", help="Remove the schedule.")] = False,
    capacity: Annotated[
        Rate | None, typer.Option(parser=rate_option, metavar="RATE", help="Capacity of the bottleneck; 0: estimated.")
    ] = None,
    window_min: Annotated[
        float | None, typer.Option(help="Guard: no new connection while a window is smaller, segments; 0: no guard.")
    ] = None,
    connections: Annotated[int | None, typer.Option(help="Fixed number of connections, with controller none.")] = None,
    connections_maximum: Annotated[
        int | None, typer.Option(help="Most connections; 0: the tunnel's own limit.")
    ] = None,
    kp: Annotated[float | None, typer.Option(help="Connections per Mbit/s; for p, and for pi with --ki.")] = None,
    ki: Annotated[float | None, typer.Option(help="Connections per Mbit/s and period.")] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="CUSTOMER=WEIGHT", help="Weight of a customer; repeatable, replaces all."),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set a tunnel's target and controller; options that are left out keep their values."""
    changes: dict[str, Any] = {
        "target_bps": None if target is None else int(target),
        "controller": controller.value if controller else None,
        "request_id": request,
        "schedule": [] if no_schedule else [schedule_entry(entry) for entry in schedule] if schedule else None,
        "capacity_bps": None if capacity is None else int(capacity),
        "window_min_segments": window_min,
        "connections": connections,
        "connections_maximum": connections_maximum,
        "kp": kp,
        "ki": ki,
        "weights": dict(weight_of(one) for one in weight) if weight else None,
    }
    stated = {name: value for name, value in changes.items() if value is not None}
    if not stated:
        raise typer.BadParameter("set at least one option, such as --target 20M")
    with session(server, token, as_json=as_json) as client:
        known = {one.id: one for one in client.tunnels.list()}.get(tunnel)
        before: dict[str, Any] = {}
        if known is not None and known.settings is not None:
            before = known.settings.model_dump(mode="json", exclude={"revision"})
        if controller is not None and before and controller.value != before["controller"]:
            # Gains and a fixed number belong to the law that they were stated for.
            before.update(kp=None, ki=None, connections=0)
        changed = client.tunnels.put(tunnel, **{**before, **stated})
    if as_json:
        print_json(changed)
        return
    _print(changed)


@app.command()
def release(
    tunnel: TunnelArgument,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Stop controlling a tunnel; when its lease expires it shrinks to one connection."""
    with session(server, token, as_json=as_json) as client:
        client.tunnels.delete(tunnel)
    told({"id": tunnel, "controlled": False}, f"{tunnel} is no longer controlled", as_json=as_json)


def _print(found: Tunnel) -> None:
    settings, state, decision = found.settings, found.state, found.decision
    target = format_bps(found.target_bps) if found.target_bps else "none"
    lines = [f"{found.id}: {format_bps(found.rate_bps)}, target {target} ({found.target_source})"]
    if found.reason:
        lines.append(f"  {found.reason}")
    if settings:
        guard = f"{settings.window_min_segments:g} segments" if settings.window_min_segments else "off"
        lines.append(f"  controller {settings.controller}, guard {guard}, revision {settings.revision}")
        for entry in settings.schedule:
            end = entry.end.isoformat() if entry.end else "open"
            lines.append(f"  scheduled {entry.start.isoformat()} to {end}: {format_bps(entry.target_bps)}")
    if state:
        lines.append(
            f"  {state.origin} - {state.destination}: {state.connections_established} of {state.connections_wanted}"
            f" connections, {state.queue_packets} packets queued, {state.dropped_packets} dropped"
        )
    if decision and decision.spectral_radius is not None:
        stable = "stable" if decision.equation_14_stable else "unstable"
        lines.append(
            f"  wants {decision.wanted:.2f} connections; largest pole of the sampled loop"
            f" {decision.spectral_radius:.2f}; by equation (14) {stable}"
        )
    for line in lines:
        out.print(line, markup=False)
    print_table(
        ("from", "target", "controller", "periods", "settling", "overshoot", "steady-state error", "peak m", "changes"),
        [_step_row(step) for step in found.steps],
        "  no steps yet",
    )


def _step_row(step: TunnelStep) -> tuple[object, ...]:
    return (
        step.start.astimezone().strftime("%H:%M:%S"),
        format_bps(step.target_bps),
        step.controller,
        step.periods,
        f"{step.settling_periods} periods" if step.settling_periods is not None else "not yet",
        f"{step.overshoot:.1%}",
        f"{step.steady_error:.1%}",
        step.connections_peak,
        step.connection_changes,
    )
