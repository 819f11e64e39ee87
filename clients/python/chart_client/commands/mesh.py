"""`chart mesh`: nodes that measure each other."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from chart_client.commands.common import (
    JsonOption,
    ServerOption,
    TokenOption,
    local_time,
    out,
    print_table,
    session,
    show_all,
    show_one,
    tag_of,
    told,
    value_words,
)
from chart_client.meshes import Coverage, Mesh
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

app = typer.Typer(help="Meshes: nodes that measure each other.", no_args_is_help=True)

MeshId = Annotated[str, typer.Argument(metavar="MESH")]


def sensor_of(text: str) -> dict[str, Any]:
    """A sensor from SENSOR=SECONDS[,NAME=VALUE...].

    Raises:
        typer.BadParameter: it does not read so.
    """
    first, *others = text.split(",")
    sensor, _, period = first.partition("=")
    try:
        period_ms = round(float(period) * 1000)
    except ValueError:
        raise typer.BadParameter(f"{text!r} must be SENSOR=SECONDS, such as ping=10 or ping=10,count=5") from None
    return {"sensor": sensor, "period_ms": period_ms, "parameters": dict(tag_of(one) for one in others)}


def _members(mesh: Mesh) -> str:
    return ", ".join([*mesh.nodes, *(f"{name}={value}" for name, value in mesh.node_tags.items())]) or "all"


def _sensors(mesh: Mesh) -> str:
    return ", ".join(f"{one.sensor} every {one.period_ms / 1000:g} s" for one in mesh.sensors)


def _measuring(mesh: Mesh) -> int:
    return sum(1 for member in mesh.plan.members if member.state == "measuring")


@app.command("list")
def list_meshes(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List meshes."""
    show_all(
        server,
        token,
        lambda client: client.meshes.list(),
        ("id", "state", "members", "measuring", "sensors", "configurations", "budget"),
        lambda mesh: (
            *(mesh.id, "enabled" if mesh.enabled else "disabled", _members(mesh), _measuring(mesh), _sensors(mesh)),
            *(mesh.plan.configurations, f"{mesh.budget_share:.2%} of a link"),
        ),
        "no meshes: `chart mesh set all --sensor ping=10`",
        as_json=as_json,
    )


@app.command("show")
def show_mesh(
    mesh_id: MeshId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """One mesh: its members, and what it takes of each link."""
    show_one(server, token, lambda client: client.meshes.get(mesh_id), _show, as_json=as_json)


def _show(mesh: Mesh) -> None:
    out.print(f"{mesh.id}: {'enabled' if mesh.enabled else 'disabled'}, revision {mesh.revision}", markup=False)
    out.print(f"  sensors         {_sensors(mesh)}", markup=False)
    out.print(f"  members         {_members(mesh)}", markup=False)
    slower = f", periods up to {mesh.plan.slowest:g} times as long" if mesh.plan.slowest > 1 else ""
    out.print(f"  configurations  {mesh.plan.configurations}{slower}", markup=False)
    if mesh.plan.chosen:
        out.print(f"  chosen          {mesh.plan.chosen} of them by inference", markup=False)
    if mesh.plan.changed_at:
        out.print(f"  laid out        {local_time(mesh.plan.changed_at)}", markup=False)
    for remark in mesh.plan.remarks:
        out.print(f"  remark          {remark}", markup=False)
    print_table(("node", "state"), [(one.node, one.state) for one in mesh.plan.members], "no members")
    rows = [
        (
            one.link,
            format_bps(one.capacity_bps) if one.capacity_bps else "unknown",
            f"{one.planned_bytes} of {one.limit_bytes} B a minute",
            f"{one.share:.3%}",
        )
        for one in mesh.plan.links
    ]
    print_table(("link", "capacity", "probes and answers", "of the link"), rows, "no link is crossed")


@app.command("set")
def set_mesh(
    mesh_id: MeshId,
    sensors: Annotated[
        list[str],
        typer.Option(
            "--sensor", help="SENSOR=SECONDS[,NAME=VALUE...]: what every pair measures, how often; repeatable."
        ),
    ],
    nodes: Annotated[list[str] | None, typer.Option("--node", help="A member, by id; repeatable.")] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="NAME=VALUE: nodes with all tags are members; repeatable.")
    ] = None,
    budget_percent: Annotated[
        float,
        typer.Option("--budget", min=0.001, max=1, help="Most of each link that probes and answers take, percent."),
    ] = 0.5,
    priority: Annotated[int, typer.Option(min=0, max=255)] = 0,
    description: Annotated[str, typer.Option()] = "",
    enabled: Annotated[bool, typer.Option("--enabled/--disabled")] = True,
    active: Annotated[
        bool, typer.Option("--active/--passive", help="Whether pairs that inference chooses go ahead of others.")
    ] = True,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set a mesh. Without --node and --tag every node with a sensor pod is a member."""
    fields = {
        "description": description,
        "nodes": nodes or [],
        "node_tags": dict(tag_of(one) for one in tags or ()),
        "sensors": [sensor_of(one) for one in sensors],
        "budget_share": budget_percent / 100,
        "priority": priority,
        "enabled": enabled,
        "active": active,
    }
    with session(server, token, as_json=as_json) as client:
        stored = client.meshes.put(mesh_id, **fields)
    told(stored, f"{stored.id}: {_sensors(stored)}; members: {_members(stored)}", as_json=as_json)


@app.command("delete")
def delete_mesh(
    mesh_id: MeshId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Remove a mesh; stored results are kept."""
    with session(server, token, as_json=as_json) as client:
        client.meshes.delete(mesh_id)
    told({"deleted": mesh_id}, f"{mesh_id} is removed; its results are kept", as_json=as_json)


@app.command("coverage")
def coverage(
    mesh_id: MeshId,
    stale: Annotated[bool, typer.Option("--stale", help="Only pairs that are not fresh.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """The latest result of every pair, and how many are fresh (younger than two periods)."""

    def show(found: Coverage) -> None:
        out.print(f"{found.fresh} of {found.pairs} pairs are fresh")
        rows = [
            (
                *(one.source_node, one.destination_node, one.sensor),
                value_words(one.value, one.unit),
                local_time(one.measured_at) if one.measured_at else "never",
                "fresh" if one.fresh else one.error or "stale",
            )
            for one in found.items
            if not (stale and one.fresh)
        ]
        print_table(("from", "to", "sensor", "value", "measured", "state"), rows, "no pairs")

    show_one(server, token, lambda client: client.meshes.coverage(mesh_id), show, as_json=as_json)
