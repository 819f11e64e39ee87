"""`chart settings`: settings of the whole platform, followed by its services without a restart."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from chart_client.client import Client
from chart_client.commands.common import JsonOption, ServerOption, TokenOption, out, session, show_one, told
from chart_client.platform_settings import ApplicationLimits, PlatformSettings
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import parse_rate

app = typer.Typer(help="Settings of the whole platform.", no_args_is_help=True)

UNSET = "unset"
_WHOLE = ("inference_active_pairs", "inference_active_priority")
_NUMBERS = (
    "oversubscription",
    "lease_idle_share",
    "lease_greatest_share",
    "snapshot_period_s",
    "probe_share",
    "inference_fraction",
    "inference_active_valid_s",
)
NAMES = (*_NUMBERS, *_WHOLE, "authority_unauthorised", "authority_free_available_bps")


def setting_of(text: str) -> tuple[str, Any]:
    """A setting from NAME=VALUE; None for NAME=unset.

    Raises:
        typer.BadParameter: it does not read so.
    """
    name, _, value = text.partition("=")
    name = name.replace("-", "_")
    if name not in NAMES or not value:
        raise typer.BadParameter(f"{text!r} must be NAME=VALUE, with one of {', '.join(NAMES)}")
    if value == UNSET:
        return name, None
    try:
        if name in _NUMBERS:
            return name, float(value)
        if name in _WHOLE:
            return name, int(value)
        return name, parse_rate(value) if name.endswith("_bps") else value
    except ValueError:
        what = "a rate, such as 10M" if name.endswith("_bps") else "a number"
        raise typer.BadParameter(f"{name} must be {what}, or {UNSET}, is {value!r}") from None


def limits_words(limits: ApplicationLimits) -> str:
    """Limits of one owner, for people."""
    return ", ".join(f"{name} {value}" for name, value in limits.model_dump(exclude_none=True).items()) or "no limits"


def _known(client: Client) -> PlatformSettings:
    return next(client.platform_settings.list(), None) or PlatformSettings()


@app.command("show")
def show_settings(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """What is set; what is not set is what the services were started with."""
    show_one(server, token, lambda client: client.platform_settings.get(), _show, as_json=as_json)


def _show(settings: PlatformSettings) -> None:
    out.print(f"revision {settings.revision}", markup=False)
    for name in NAMES:
        value = getattr(settings, name)
        shown = f"{value:g}" if isinstance(value, float) else "as started" if value is None else str(value)
        out.print(f"  {name:<30}{shown}", markup=False)
    if settings.application_limits is None:
        out.print(f"  {'application_limits':<30}as started", markup=False)
    for owner, limits in (settings.application_limits or {}).items():
        out.print(f"  {'limits of ' + owner:<30}{limits_words(limits)}", markup=False)


@app.command("set")
def set_settings(
    settings: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help=f"{', '.join(NAMES)}; {UNSET}: as started.")
    ],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set some; the others stay."""
    changes = dict(setting_of(one) for one in settings)
    with session(server, token, as_json=as_json) as client:
        known = _known(client)
        stored = client.platform_settings.put(revision=known.revision, **{**known.stated(), **changes})
    told(stored, f"set at revision {stored.revision}: {', '.join(changes)}", as_json=as_json)


@app.command("limit")
def limit_application(
    owner: Annotated[str, typer.Argument(metavar="OWNER", help="Owner of sensing configurations; *: all others.")],
    configurations: Annotated[int | None, typer.Option(help="Configurations on one sensor pod.")] = None,
    priority: Annotated[int | None, typer.Option(help="Highest priority.")] = None,
    period_ms: Annotated[int | None, typer.Option(help="Shortest period, milliseconds.")] = None,
    one_shots_per_minute: Annotated[int | None, typer.Option(help="Single runs in a minute.")] = None,
    probe_share: Annotated[float | None, typer.Option(help="Part of each link's probing budget, 0 to 1.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="No limits of its own any more.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Limit what an application may take of each sensor pod; what is left out stays."""
    said = {
        "configurations": configurations,
        "priority": priority,
        "period_ms": period_ms,
        "one_shots_per_minute": one_shots_per_minute,
        "probe_share": probe_share,
    }
    changes = {name: value for name, value in said.items() if value is not None}
    if remove == bool(changes):
        raise typer.BadParameter("give limits, or --remove")
    with session(server, token, as_json=as_json) as client:
        known = _known(client)
        stated = known.stated()
        limits: dict[str, Any] = dict(stated["application_limits"] or {})
        if remove:
            limits.pop(owner, None)
        else:
            limits[owner] = {**limits.get(owner, {}), **changes}
        stored = client.platform_settings.put(revision=known.revision, **{**stated, "application_limits": limits})
    left = (stored.application_limits or {}).get(owner, ApplicationLimits())
    told(stored, f"{owner}: {limits_words(left)}", as_json=as_json)
