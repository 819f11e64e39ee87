"""`chart tenant`: which ends of flows belong to whom."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from chart_client.commands.common import (
    JsonOption,
    ServerOption,
    TokenOption,
    out,
    session,
    show_all,
    show_one,
    told,
)
from chart_client.tenants import Tenant, TenantEnd
from chart_client.transport import DEFAULT_SERVER

app = typer.Typer(help="Which ends of flows applications may ask for.", no_args_is_help=True)

TenantId = Annotated[str, typer.Argument(metavar="TENANT", help="default: applications that belong to no other.")]

_FIELDS = {"node": "node", "prefix": "prefix", "protocol": "protocol", "ports": "ports", "cgroup": "cgroup_id"}


def end_of(text: str) -> dict[str, Any]:
    """Ends of flows from FIELD=VALUE,...

    Raises:
        typer.BadParameter: it does not read so.
    """
    end: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in _FIELDS or not value or (name == "cgroup" and not value.isdecimal()):
            raise typer.BadParameter(f"{part!r} must be FIELD=VALUE, with one of {', '.join(_FIELDS)}")
        end[_FIELDS[name]] = int(value) if name == "cgroup" else value
    return end


def end_words(end: TenantEnd) -> str:
    """Ends of flows as `end_of` reads them."""
    values = end.model_dump(exclude_none=True)
    return ",".join(f"{name}={values[field]}" for name, field in _FIELDS.items() if field in values)


def _owned(tenant: Tenant) -> str:
    return " ".join(end_words(end) for end in tenant.ends) or "nothing"


@app.command("list")
def list_tenants(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """Tenants with what they own."""
    show_all(
        server,
        token,
        lambda client: client.tenants.list(),
        ("id", "members", "namespaces", "owns", "description"),
        lambda one: (one.id, ", ".join(one.members), ", ".join(one.namespaces), _owned(one), one.description),
        "no tenants",
        as_json=as_json,
    )


@app.command("show")
def show_tenant(
    tenant_id: TenantId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """One tenant."""
    show_one(server, token, lambda client: client.tenants.get(tenant_id), _show, as_json=as_json)


def _show(tenant: Tenant) -> None:
    title = f" ({tenant.description})" if tenant.description else ""
    out.print(f"{tenant.id}{title}: revision {tenant.revision}", markup=False)
    members = "who belongs to no other tenant" if tenant.id == "default" else ", ".join(tenant.members) or "nobody"
    out.print(f"  members     {members}", markup=False)
    if tenant.namespaces:
        out.print(f"  namespaces  {', '.join(tenant.namespaces)}", markup=False)
    for end in tenant.ends:
        out.print(f"  owns        {end_words(end)}", markup=False)
    if not tenant.ends:
        out.print("  owns        nothing", markup=False)


@app.command("set")
def set_tenant(
    tenant_id: TenantId,
    own: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE,...",
            help="Ends of flows: node, prefix, protocol, ports, cgroup; repeatable, replaces all.",
        ),
    ] = None,
    nothing: Annotated[bool, typer.Option("--nothing", help="It owns nothing.")] = False,
    member: Annotated[
        list[str] | None, typer.Option(help="Subject or client id of a token; repeatable, replaces all.")
    ] = None,
    namespace: Annotated[
        list[str] | None, typer.Option(help="Kubernetes namespace of service accounts; repeatable, replaces all.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set a tenant; of an existing one, what is left out stays."""
    if nothing and own:
        raise typer.BadParameter("state --own or --nothing, not both")
    changes: dict[str, Any] = {
        "ends": [] if nothing else [end_of(one) for one in own] if own else None,
        "members": member,
        "namespaces": namespace,
        "description": description,
    }
    stated = {field: value for field, value in changes.items() if value is not None}
    with session(server, token, as_json=as_json) as client:
        known = next((one for one in client.tenants.list() if one.id == tenant_id), None)
        before = known.stated() if known else {}
        stored = client.tenants.put(tenant_id, revision=known.revision if known else None, **{**before, **stated})
    told(stored, f"{stored.id} owns {_owned(stored)}", as_json=as_json)


@app.command("delete")
def delete_tenant(
    tenant_id: TenantId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Remove a tenant: its members belong to `default` from then on."""
    with session(server, token, as_json=as_json) as client:
        client.tenants.delete(tenant_id)
    told({"deleted": tenant_id}, f"{tenant_id} is removed", as_json=as_json)
