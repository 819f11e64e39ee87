"""Limits per application: how much of the pod, and of each link's probing budget, one owner's configurations take.

Pure. An application is the ``owner`` of a configuration or a one-shot.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields

from chart.sensor_pod.budget import WINDOW_US, ByteBudget
from chart.sensor_pod.model import PERIOD_FLOOR_MS, Configuration
from chart.v1.platform_settings_pb2 import ApplicationLimitsByOwner

# Name of the limits of whoever has none of its own.
ANYONE = "*"
# Between an owner and a link in the budget's names: neither contains it.
_SEPARATOR = "\n"


class LimitExceededError(ValueError):
    """More than an application may have; ``floor`` or ``ceiling`` say what would be accepted."""

    def __init__(self, field: str, detail: str, *, floor: float | None = None, ceiling: float | None = None) -> None:
        super().__init__(detail)
        self.field = field
        self.floor = floor
        self.ceiling = ceiling


@dataclass(frozen=True)
class Limits:
    """What one application may have on this pod."""

    configurations: int = 20_000
    # Highest priority.
    priority: int = 255
    # Shortest period of a configuration.
    period_ms: int = PERIOD_FLOOR_MS
    one_shots_per_minute: int = 600
    # Part of each link's probing budget that its own runs may use, 0..1.
    probe_share: float = 1.0


def limits_from_json(text: str) -> dict[str, Limits]:
    """Limits by application from a JSON object; ``*`` is for all others.

    Raises:
        ValueError: naming what cannot be read.
    """
    try:
        stated = json.loads(text or "{}")
    except ValueError as error:
        msg = f"application limits are no JSON: {error}"
        raise ValueError(msg) from None
    known = {entry.name for entry in fields(Limits)}
    found: dict[str, Limits] = {}
    if not isinstance(stated, dict) or not all(isinstance(values, dict) for values in stated.values()):
        msg = 'application limits must be an object of objects, such as {"*": {"configurations": 100}}'
        raise ValueError(msg)
    for owner, values in stated.items():
        for name, value in values.items():
            if name not in known:
                msg = f"application limits of {owner!r}: {name!r} is not one of {', '.join(sorted(known))}"
                raise ValueError(msg)
            kinds = (int, float) if name == "probe_share" else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or value < 0:
                what = "a number" if float in kinds else "a whole number"
                msg = f"application limits of {owner!r}: {name} must be {what} that is not negative"
                raise ValueError(msg)
            if name == "probe_share" and value > 1:
                msg = f"application limits of {owner!r}: probe_share must be at most 1"
                raise ValueError(msg)
        found[owner] = Limits(**values)
    return found


def limits_of(stated: ApplicationLimitsByOwner) -> dict[str, Limits]:
    """Limits by application, of what operators set for the platform."""
    return {
        owner: Limits(**{field.name: value for field, value in limits.ListFields()})
        for owner, limits in stated.owners.items()
    }


class Applications:
    """Who has what, and what more each may have."""

    def __init__(self, limits: dict[str, Limits] | None = None) -> None:
        self._limits = limits or {}
        self._configurations: Counter[str] = Counter()
        self._one_shots: dict[str, deque[int]] = {}

    def replace(self, limits: dict[str, Limits]) -> None:
        """Other limits from now on; what is configured already stays."""
        self._limits = limits

    def of(self, owner: str) -> Limits:
        """The limits of an application."""
        return self._limits.get(owner) or self._limits.get(ANYONE) or Limits()

    def check(self, configuration: Configuration, known: Configuration | None) -> None:
        """Refuse a configuration that its owner may not have; ``known`` is the one it replaces.

        Raises:
            LimitExceededError: with the limit.
        """
        owner, limits = configuration.owner, self.of(configuration.owner)
        who = f"application {owner!r}" if owner else "whoever states no owner"
        if configuration.priority > limits.priority:
            detail = f"{who} may have a priority of at most {limits.priority}"
            raise LimitExceededError("priority", detail, ceiling=limits.priority)
        if configuration.period_us and configuration.period_us < limits.period_ms * 1000:
            detail = f"{who} may measure every {limits.period_ms} ms at most"
            raise LimitExceededError("period_ms", detail, floor=limits.period_ms)
        if known is not None and known.owner == owner:
            return
        if self._configurations[owner] >= limits.configurations:
            detail = f"{who} has its {limits.configurations} configurations on this pod; remove one first"
            raise LimitExceededError("owner", detail, ceiling=limits.configurations)

    def check_one_shot(self, configuration: Configuration, now_us: int) -> None:
        """Count a one-shot of its owner.

        Raises:
            LimitExceededError: there were as many within a minute as there may be.
        """
        self.check(configuration, configuration)
        owner, limits = configuration.owner, self.of(configuration.owner)
        times = self._one_shots.setdefault(owner, deque())
        while times and times[0] <= now_us - WINDOW_US:
            times.popleft()
        if len(times) >= limits.one_shots_per_minute:
            who = f"application {owner!r}" if owner else "whoever states no owner"
            detail = f"{who} may ask for {limits.one_shots_per_minute} single runs a minute"
            raise LimitExceededError("owner", detail, ceiling=limits.one_shots_per_minute)
        times.append(now_us)

    def note(self, owner: str, change: int) -> None:
        """An application has one configuration more or less."""
        self._configurations[owner] += change
        if not self._configurations[owner]:
            del self._configurations[owner]

    def configurations(self) -> dict[str, int]:
        """Configurations by application."""
        return dict(self._configurations)

    # The part of a link's budget

    def accounts(self, owners: Collection[str], links: Sequence[str], budget: ByteBudget) -> list[tuple[str, ...]]:
        """Names in the budget of which one must have room as well: one entry for each owner, () when one is free.

        A run that serves several applications goes on the account of whichever has room.
        """
        found: list[tuple[str, ...]] = []
        for owner in sorted(owners):
            share = self.of(owner).probe_share
            if share >= 1:
                return [()]
            names = tuple(f"{owner}{_SEPARATOR}{link}" for link in links)
            for name, link in zip(names, links, strict=True):
                budget.set_part(name, link, share)
            found.append(names)
        return found or [()]


def is_account(name: str) -> bool:
    """Whether a name in the budget is an application's part of a link."""
    return _SEPARATOR in name


def accounts_of(names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """(name, owner, link) of the applications' parts among the names in a budget."""
    for name in names:
        owner, separator, link = name.partition(_SEPARATOR)
        if separator:
            yield name, owner, link
