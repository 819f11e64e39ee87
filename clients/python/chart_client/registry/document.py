"""Files that state nodes, links and more: YAML (or JSON), one or several documents, each a list of items by kind.

Everything that can be known to be wrong before anything is sent is told with its line and field.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from chart_client.registry.kinds import KIND_OF, KINDS, FieldType, Kind, Stated
from chart_client.registry.node_ends import FieldError, Item
from chart_client.units import parse_rate

MOST_TOLD = 20


class DocumentError(Exception):
    """A file cannot be applied; every fault with file, line and field."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        more = f"\nand {len(faults) - MOST_TOLD} more" if len(faults) > MOST_TOLD else ""
        super().__init__("\n".join(faults[:MOST_TOLD]) + more)


class _Loader(yaml.SafeLoader):
    """YAML in which `off` is a word, as it is in a policy, and a time is one too."""


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


_CONSTRUCTOR = yaml.constructor.SafeConstructor()


def read(sources: Iterable[tuple[str, str]]) -> Stated:
    """What files state; ``sources`` are their names and texts.

    Raises:
        DocumentError: one of them is wrong.
    """
    stated = Stated()
    faults: list[str] = []
    for file, text in sources:
        try:
            for document in yaml.compose_all(text, _Loader):
                faults += _read_document(file, document, stated)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            faults.append(f"{file}:{mark.line + 1 if mark else 1}: {error.problem or error.context}")
        except yaml.YAMLError as error:
            faults.append(f"{file}:1: {error}")
    if faults:
        raise DocumentError(faults)
    return stated


def check_references(stated: Stated, known: Mapping[str, Iterable[str]]) -> None:
    """Refuse items that name what is neither stated nor known; ``known`` are ids by kind.

    Raises:
        DocumentError: some do.
    """
    faults = []
    for kind in KINDS:
        for key, item in stated.items.get(kind.name, {}).items():
            for name, of_kind, identity in kind.references(item):
                there = [*stated.items.get(of_kind, {}), *known.get(of_kind, ())]
                if identity not in there:
                    place = stated.place(kind.name, key, name)
                    noun = KIND_OF[of_kind].noun
                    words = f"there is no {noun} {identity!r}, neither stated nor registered"
                    faults.append(f"{place}: {kind.noun} {key}: {name}: {words}{_meant(identity, there)}")
    if faults:
        raise DocumentError(faults)


def _meant(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _read_document(file: str, document: yaml.Node | None, stated: Stated) -> Iterator[str]:
    """Take one document in; yields what is wrong."""
    if document is None:
        return
    if not isinstance(document, yaml.MappingNode):
        yield f"{file}:{_line(document)}: must be lists of items by kind, such as `nodes:`"
        return
    for name_node, list_node in document.value:
        name = str(_value(name_node))
        kind = KIND_OF.get(name)
        if kind is None:
            known = ", ".join(KIND_OF)
            yield f"{file}:{_line(name_node)}: there is no kind {name!r}{_meant(name, KIND_OF)}: {known}"
            continue
        stated.items.setdefault(name, {})
        if not isinstance(list_node, yaml.SequenceNode):
            # `links:` without anything: none of them.
            if _value(list_node) is not None:
                yield f"{file}:{_line(list_node)}: {name}: must be a list"
            continue
        for number, node in enumerate(list_node.value):
            yield from _read_item(file, f"{name}[{number}]", kind, node, stated)


def _read_item(file: str, words: str, kind: Kind, node: yaml.Node, stated: Stated) -> Iterator[str]:
    place = f"{file}:{_line(node)}: {words}"
    if not isinstance(node, yaml.MappingNode):
        yield f"{place}: must be fields of a {kind.noun}"
        return
    found: Item = {}
    lines: dict[str, int] = {}
    faults: list[str] = []
    for name_node, value_node in node.value:
        name = str(_value(name_node))
        at = f"{file}:{_line(name_node)}: {words}.{name}"
        lines[name] = _line(name_node)
        known = kind.fields.get(name)
        if name in found:
            faults.append(f"{at}: is stated twice")
        elif known is None and name not in kind.identity:
            faults.append(f"{at}: a {kind.noun} has no such field{_meant(name, (*kind.identity, *kind.fields))}")
        else:
            try:
                optional = known is not None and known.default is None
                found[name] = typed(known.type if known else "text", _value(value_node), optional=optional)
            except ValueError as error:
                faults.append(f"{at}: {error}")
    required = (*kind.identity, *(name for name, one in kind.fields.items() if one.required))
    faults += [f"{place}: {name} is missing" for name in required if name not in lines]
    if not faults:
        try:
            found = kind.complete(found)
        except FieldError as error:
            faults.append(f"{file}:{lines[error.field]}: {words}.{error.field}: {error}")
    if faults:
        yield from faults
        return
    key = kind.key(found)
    if key in stated.items[kind.name]:
        yield f"{place}: {kind.noun} {key} is stated twice, first in {stated.place(kind.name, key)}"
        return
    stated.items[kind.name][key] = found
    stated.places[kind.name, key] = (file, _line(node))
    stated.lines.update({(kind.name, key, name): line for name, line in lines.items()})


def typed(kind: FieldType, value: Any, *, optional: bool) -> Any:
    """A value of a file as the interface takes it: rates may be "100M", texts of a map may be numbers.

    Raises:
        ValueError: it is of another type.
    """
    if value is None and optional:
        return None
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind == "rate":
        if not whole and not isinstance(value, str):
            raise ValueError(f"{value!r} is no rate, such as 100M")
        return value if whole else parse_rate(value)
    if kind == "text" and (whole or isinstance(value, str)):
        return str(value)
    if kind == "integer" and whole:
        return value
    if kind == "flag" and isinstance(value, bool):
        return value
    if kind in ("share", "number") and (whole or isinstance(value, float)):
        return float(value)
    if kind == "texts" and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return value
    if kind in ("text map", "integer map", "position") and isinstance(value, dict):
        return _map(kind, value)
    if kind == "edges" and isinstance(value, list) and all(isinstance(one, dict) for one in value):
        rate = "aggregate_bps"
        return [{**one, rate: typed("rate", one[rate], optional=False)} if rate in one else one for one in value]
    if (kind == "ends" and isinstance(value, list)) or (
        kind in ("proxied", "overlay", "limits") and isinstance(value, dict)
    ):
        return value
    words = {
        "edges": "a list of edges",
        "ends": "a list of tunnel ends",
        "proxied": "interfaces, prefixes and a mode",
        "overlay": "prefixes, or member: false",
        "texts": "a list of texts",
        "flag": "true or false",
        "share": "a number",
        "limits": "limits by owner",
        "integer": "a whole number",
    }
    raise ValueError(f"{value!r} is not {words.get(kind, f'a {kind}')}")


def _map(kind: FieldType, value: dict[Any, Any]) -> dict[str, Any]:
    if kind == "text map":
        wrong = next((name for name, one in value.items() if not isinstance(one, str | int | float)), None)
        if wrong is not None:
            raise ValueError(f"{wrong}: {value[wrong]!r} is no text")
        # YAML's words for yes and no stay words.
        return {str(name): str(one).lower() if isinstance(one, bool) else str(one) for name, one in value.items()}
    allowed = (int,) if kind == "integer map" else (int, float)
    wrong = next((name for name, one in value.items() if not isinstance(one, allowed) or isinstance(one, bool)), None)
    if wrong is not None:
        raise ValueError(f"{wrong}: {value[wrong]!r} is no number")
    return {str(name): float(one) if kind == "position" else one for name, one in value.items()}


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _value(node: yaml.Node) -> Any:
    return _CONSTRUCTOR.construct_document(node)


def written(items: Mapping[str, Mapping[str, Item]]) -> str:
    """The YAML that states items: what is as the default has it is left out."""
    shown: dict[str, list[Item]] = {}
    for kind in KINDS:
        if kind.name in items:
            shown[kind.name] = [shortened(kind, item) for _, item in sorted(items[kind.name].items())]
    return str(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=120))


def shortened(kind: Kind, item: Item) -> Item:
    """The identity of an item and what differs from the defaults."""
    stated = {name: item[name] for name in kind.fields if kind.fields[name].default != item[name]}
    return {**{name: item[name] for name in kind.identity}, **stated}
