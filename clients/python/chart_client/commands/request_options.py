"""The options of `chart request create` and `preview`: one for each field of a rate request's body."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer

from chart_client.commands.common import Rate, rate_option
from chart_client.commands.completion import nodes, services


@dataclass(frozen=True)
class AskedField:
    """How a field of the body is stated in the shell: the option, its type for typer, and its default."""

    option: str
    annotation: Any
    default: Any = inspect.Parameter.empty
    # A field that has no say in whether and what would be granted: `preview` does not take it.
    of_preview: bool = True


def _field(
    option: str, kind: Any, words: str, default: Any = None, *, of_preview: bool = True, **more: Any
) -> AskedField:
    return AskedField(option, Annotated[kind, typer.Option(option, help=words, **more)], default, of_preview)


def _rate(option: str, words: str) -> AskedField:
    return _field(option, Rate | None, words, parser=rate_option)


REQUIRED = inspect.Parameter.empty

FIELDS: dict[str, AskedField] = {
    "source": _field("--from", str, "Sending node, address or prefix.", REQUIRED, autocompletion=nodes),
    "destination": _field("--to", str, "Receiving node, address or prefix.", REQUIRED, autocompletion=nodes),
    "guaranteed_bps": _rate("--rate", "Guaranteed rate, such as 60M."),
    "service": _field(
        "--service", str, "available, guaranteed, maximum or variable.", "variable", autocompletion=services
    ),
    "minimum_bps": _rate("--minimum", "Accept at least this rate when --rate cannot be granted."),
    "maximum_bps": _rate("--maximum", "Upper bound of the rate."),
    "protocol": _field("--protocol", str | None, "tcp or udp; default: any, or tcp when a port is set."),
    "destination_port": _field("--port", int | None, "Destination port.", min=1, max=65535),
    "source_port": _field("--source-port", int | None, "Source port.", min=1, max=65535),
    "dscp": _field("--dscp", int | None, "Only packets with this differentiated services code point.", min=0, max=63),
    "cgroup_id": _field("--cgroup-id", int | None, "Only sockets of this cgroup v2 of the sending node.", min=1),
    "priority": _field(
        "--priority", int, "0 lowest to 255; a higher request may pre-empt a lower one.", 0, min=0, max=255
    ),
    "delay_priority": _field("--delay-priority", int, "0 to 255; from 128 on expedited.", 0, min=0, max=255),
    "burst_tolerance": _field("--burst-tolerance", int, "TIA-1039 burst tolerance.", 0, min=0, max=15),
    "start": _field("--start", datetime | None, "Local time; default: now."),
    "end": _field("--end", datetime | None, "Local time; default: until released."),
    "duration_s": _field("--duration", int | None, "Seconds, instead of --end.", min=1),
    "traffic_class": _field(
        "--background/--foreground",
        bool,
        "Background: uses the rate that foreground requests leave, up to --rate; each change is reported.",
        False,
    ),
    "avoid": _field("--avoid", list[str] | None, "Node or link that the path must not use; repeatable."),
    "description": _field("--description", str, "What it is for.", "", of_preview=False),
    "tags": _field("--tag", list[str] | None, "name=value; repeatable.", of_preview=False),
    "callback_url": _field(
        "--callback", str | None, "URL that receives a signed callback for each change.", of_preview=False
    ),
    "hold": _field(
        "--hold", bool, "Hold the request for up to 900 s until `chart request commit`.", False, of_preview=False
    ),
}
# What a refusal names -> what the user wrote.
OPTION_OF = {name: field.option.partition("/")[0] for name, field in FIELDS.items()}


def parse_tags(pairs: list[str] | None, *, values: bool = True) -> dict[str, str]:
    """Tags from "name=value"; without `values` a name alone is accepted."""
    found = {}
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not name or (values and not separator):
            raise typer.BadParameter(f"{pair!r} is not a tag: write name=value", param_hint="--tag")
        found[name] = value
    return found


def _body(stated: dict[str, Any]) -> dict[str, Any]:
    """The fields of the body from the values of the options."""
    ports = stated["destination_port"] is not None or stated["source_port"] is not None
    found = {**stated, "guaranteed_bps": int(stated["guaranteed_bps"] or 0), "avoid": stated["avoid"] or []}
    if found["protocol"] is None and ports:
        found["protocol"] = "tcp"
    found["traffic_class"] = "background" if found["traffic_class"] else "foreground"
    for name in ("start", "end"):
        found[name] = found[name].astimezone() if found[name] else None
    if "tags" in found:
        found["tags"] = parse_tags(found["tags"])
    return found


def asked_options(*, preview: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a rate request; it gets them as the fields of the body in ``asked``."""
    fields = {name: field for name, field in FIELDS.items() if field.of_preview or not preview}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name != "asked"]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.annotation)
            for name, field in fields.items()
        ]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            stated = {name: values.pop(name) for name in fields}
            command(asked=_body(stated), **values)

        rest = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        run.__signature__ = inspect.Signature([*added, *rest])  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in (*added, *rest)}
        return run

    return decorate
