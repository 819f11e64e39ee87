"""From what is stated to what has to be done: create, change, and with `prune` delete."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from chart_client.errors import ChartError, ProblemError
from chart_client.models import Problem
from chart_client.registry.document import DocumentError, check_references, shortened
from chart_client.registry.kinds import KIND_OF, KINDS, Kind, Stated
from chart_client.registry.node_ends import Item
from chart_client.resource import Resource, path_of

PAGE = 1000


@dataclass(frozen=True)
class Step:
    """One thing to do, and the fields in which it differs: what they are and what they are to be."""

    action: Literal["create", "change", "delete"]
    kind: Kind
    key: str
    item: Item
    fields: Mapping[str, tuple[Any, Any]]
    revision: int | None = None

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        changes = {name: {"before": before, "after": after} for name, (before, after) in self.fields.items()}
        return {"action": self.action, "kind": self.kind.name, "id": self.key, "fields": changes}


@dataclass(frozen=True)
class Plan:
    """Steps in the order in which they are taken, and how many items need none."""

    steps: list[Step]
    unchanged: int

    def counts(self) -> str:
        """How many of what, for people."""
        words = [
            f"{sum(step.action == action for step in self.steps)} to {action}"
            for action in ("create", "change", "delete")
            if any(step.action == action for step in self.steps)
        ]
        return ", ".join([*words, f"{self.unchanged} unchanged"])


class NotAppliedError(DocumentError):
    """A step was refused: those before are done, it and those after are not."""

    def __init__(self, words: str, done: list[Step], left: list[Step], cause: ChartError) -> None:
        self.done, self.left = done, left
        self.problem = cause.problem if isinstance(cause, ProblemError) else Problem(detail=str(cause))
        super().__init__([words])


class Registered(Resource):
    """What is stated now, and steps that change it."""

    def listing(self, kind: Kind) -> dict[str, Item]:
        """Every item of a kind by id, with its revision where it has one."""
        found: dict[str, Item] = {}
        cursor = None
        while True:
            query = {"cursor": cursor, "limit": PAGE}
            page = self._transport.request("GET", path_of(kind.name), query=query).json()
            for item in page["items"]:
                if kind.listed(item):
                    found[kind.key(item)] = item
            cursor = page.get("next_cursor")
            if cursor is None:
                return found

    def take(self, step: Step) -> None:
        """Do one step.

        Raises:
            ProblemError: it is refused.
        """
        address = step.kind.address(step.item)
        if step.action == "delete":
            self._transport.request("DELETE", address)
            return
        headers = {"If-Match": f'"{step.revision}"'} if step.revision else {}
        self._transport.request("PUT", address, body=step.kind.body(step.item), headers=headers)


def export(registered: Registered, kinds: Iterable[str]) -> dict[str, dict[str, Item]]:
    """What is stated now, by kind and id."""
    found = {}
    for kind in KINDS:
        if kind.name in set(kinds):
            rows = registered.listing(kind)
            found[kind.name] = {key: _own(kind, item) for key, item in rows.items() if kind.lasting(item)}
    return found


def plan(registered: Registered, stated: Stated, *, prune: bool) -> Plan:
    """What has to be done so that everything is as in the files. With ``prune`` what they leave out is deleted, of the
    kinds that they have.

    Raises:
        DocumentError: an item names something that is not there.
    """
    named = {of_kind for kind in KINDS for of_kind in _named(kind, stated)}
    listed = {name: registered.listing(KIND_OF[name]) for name in KIND_OF if name in stated.items or name in named}
    gone = {
        name: {
            key
            for key, item in listed[name].items()
            if key not in items and key not in KIND_OF[name].permanent and KIND_OF[name].lasting(item)
        }
        for name, items in stated.items.items()
        if prune
    }
    check_references(stated, {name: rows.keys() - gone.get(name, set()) for name, rows in listed.items()})
    steps: list[Step] = []
    unchanged = 0
    for kind in KINDS:
        for key, item in stated.items.get(kind.name, {}).items():
            step = _step(kind, key, item, listed[kind.name].get(key))
            steps += [step] if step else []
            unchanged += step is None
    for kind in reversed(KINDS):
        for key in sorted(gone.get(kind.name, ())):
            fields = {name: (value, None) for name, value in _changes(kind, listed[kind.name][key]).items()}
            steps.append(Step("delete", kind, key, listed[kind.name][key], fields))
    return Plan(steps, unchanged)


def apply(registered: Registered, stated: Stated, steps: list[Step]) -> Iterator[Step]:
    """Take the steps; yields each one that is done.

    Raises:
        NotAppliedError: one was refused.
    """
    for number, step in enumerate(steps):
        try:
            registered.take(step)
        except ChartError as error:
            at_fault = error.problem.field if isinstance(error, ProblemError) else None
            name = re.split(r"[.\[]", at_fault or "")[0]
            place = stated.place(step.kind.name, step.key, name) + ": " if step.action != "delete" else ""
            detail = str(error)
            told = detail if not name or detail.startswith(name) else f"{name}: {detail}"
            words = f"{place}{step.kind.noun} {step.key}: {told}"
            raise NotAppliedError(words, steps[:number], steps[number:], error) from error
        yield step


def _named(kind: Kind, stated: Stated) -> Iterator[str]:
    for item in stated.items.get(kind.name, {}).values():
        for _, of_kind, _ in kind.references(item):
            yield of_kind


def _own(kind: Kind, item: Item) -> Item:
    return {name: item[name] for name in (*kind.identity, *kind.fields)}


def _changes(kind: Kind, item: Item) -> Item:
    """What an item says besides its identity and the defaults."""
    return {name: value for name, value in shortened(kind, item).items() if name not in kind.identity}


def _step(kind: Kind, key: str, item: Item, there: Item | None) -> Step | None:
    if there is None:
        fields = {name: (None, value) for name, value in _changes(kind, item).items()}
        return Step("create", kind, key, item, fields)
    fields = {name: (there[name], item[name]) for name in kind.fields if there[name] != item[name]}
    return Step("change", kind, key, item, fields, there.get("revision")) if fields else None
