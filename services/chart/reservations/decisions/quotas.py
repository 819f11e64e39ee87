"""What one application may have at once: requests, total and held rate, priority, horizon. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from chart.common.rpc_errors import RefusalError, invalid
from chart.common.units import format_bps, format_duration_us, rfc3339
from chart.reservations.decisions.rates import Change
from chart.reservations.decisions.reservation import Reservation
from chart.reservations.decisions.validation import CheckedRequest
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1 import reservations_pb2
from chart.v1.rate_request_pb2 import Lifecycle, RateRequestSpecification

DEFAULT_OWNER = "default"


@dataclass(frozen=True)
class Quota:
    """Bounds of one application; 0: none."""

    owner: str
    revision: int = 0
    max_requests: int = 0
    max_total_bps: int = 0
    max_priority_plus_one: int = 0
    horizon_us: int = 0
    max_held_bps: int = 0


@dataclass(frozen=True)
class Use:
    """What an application has now."""

    requests: int = 0
    total_bps: int = 0
    held_bps: int = 0

    def after(self, spending: Spending) -> Use:
        """With what was taken meanwhile."""
        held_bps = self.held_bps + (spending.rate_bps if spending.held else 0)
        return Use(self.requests + spending.requests, self.total_bps + spending.rate_bps, held_bps)


@dataclass(frozen=True)
class Spending:
    """What a new request (`requests` 1), or a change of one, takes from its owner's quota."""

    owner: str
    requests: int
    rate_bps: int
    priority: int
    end_us: int
    # Whether the rate waits for a commit.
    held: bool = False
    # Of an operator, whom the default quota does not bound.
    operator: bool = False


def spending_of_new(owner: str, checked: CheckedRequest, *, operator: bool = False) -> Spending:
    """What a new request takes from its owner's quota."""
    ask, specification = checked.ask, checked.specification
    return Spending(
        owner, 1, ask.wanted_bps, specification.preemption_priority, ask.end_us, specification.hold, operator
    )


def with_end(checked: CheckedRequest, quota: Quota | None, now_us: int) -> CheckedRequest:
    """The request as its owner's quota lets it last: one that states no end has the latest that is allowed."""
    if quota is None or not quota.horizon_us or checked.ask.end_us != FOREVER_US:
        return checked
    specification = RateRequestSpecification()
    specification.CopyFrom(checked.specification)
    specification.end_us = now_us + quota.horizon_us
    ask = dataclasses.replace(checked.ask, end_us=specification.end_us)
    return dataclasses.replace(checked, specification=specification, ask=ask)


def spending_of_change(change: Change, before: Reservation, *, operator: bool = False) -> Spending | None:
    """What a change takes more from the quota; None when it asks for nothing more."""
    rate = max(0, (change.guaranteed_bps or 0) - before.granted_bps)
    later = change.end_us is not None and change.end_us > before.end_us
    priority = change.preemption_priority or 0
    if not rate and not later and priority <= before.specification.preemption_priority:
        return None
    end_us = change.end_us if change.end_us is not None else 0
    held = before.lifecycle == Lifecycle.LIFECYCLE_HELD
    return Spending(before.owner, 0, rate, priority, end_us, held, operator)


def of(owner: str, quotas: Mapping[str, Quota], *, operator: bool = False) -> Quota | None:
    """The quota that bounds: the owner's own, or the default one, which is not for operators."""
    return quotas.get(owner) or (None if operator else quotas.get(DEFAULT_OWNER))


def check(quota: Quota, use: Use, spending: Spending, now_us: int) -> None:
    """Raise a refusal when this would be more than the quota allows."""
    rate_bps, end_us = spending.rate_bps, spending.end_us
    if quota.max_requests and spending.requests and use.requests >= quota.max_requests:
        raise _refusal(
            "",
            f"the application has {use.requests} requests, the most that its quota allows",
            "release one that is not needed",
        )
    if quota.max_total_bps and use.total_bps + rate_bps > quota.max_total_bps:
        left = max(0, quota.max_total_bps - use.total_bps)
        error = _refusal(
            "guaranteed_bps",
            f"the application's requests use {format_bps(use.total_bps)},"
            f" its quota is {format_bps(quota.max_total_bps)}, {format_bps(rate_bps)} more were requested",
            f"request at most {left} bit/s" if left >= 1000 else "release a request that is not needed",
        )
        if left >= 1000:
            error.refusal.floor_bps, error.refusal.ceiling_bps = 1000, left
        raise error
    if spending.held:
        _check_held(quota, use, rate_bps)
    if quota.max_priority_plus_one and spending.priority >= quota.max_priority_plus_one:
        greatest = quota.max_priority_plus_one - 1
        raise _refusal(
            "preemption_priority",
            f"the quota of the application allows priorities up to {greatest}",
            f"use a priority of at most {greatest}",
        )
    if quota.horizon_us and end_us > now_us + quota.horizon_us:
        latest = now_us + quota.horizon_us
        words = "has no end" if end_us == FOREVER_US else f"ends {rfc3339(end_us)}"
        raise _refusal(
            "end_us",
            f"the request {words}, the quota allows ends up to {format_duration_us(quota.horizon_us)} ahead",
            f"set an end before {rfc3339(latest)}",
        )


def _check_held(quota: Quota, use: Use, rate_bps: int) -> None:
    if quota.max_held_bps and use.held_bps + rate_bps > quota.max_held_bps:
        left = max(0, quota.max_held_bps - use.held_bps)
        error = _refusal(
            "guaranteed_bps",
            f"the application holds {format_bps(use.held_bps)} that wait for their commit, its quota for that is"
            f" {format_bps(quota.max_held_bps)}, {format_bps(rate_bps)} more were requested",
            "commit or release what is held",
        )
        if left >= 1000:
            error.refusal.floor_bps, error.refusal.ceiling_bps = 1000, left
        raise error


def _refusal(field: str, detail: str, *suggestions: str) -> RefusalError:
    refusal = reservations_pb2.Refusal(code="quota-exceeded", detail=detail, field=field, suggestions=suggestions)
    return RefusalError(refusal)


def checked(message: reservations_pb2.Quota) -> Quota:
    """A quota as an operator states it.

    Raises:
        RefusalError: INVALID_ARGUMENT, with the field.
    """
    if not message.owner or len(message.owner) > 128 or "\x00" in message.owner:
        raise invalid("owner", "the application's subject, 1 to 128 characters")
    if message.max_priority_plus_one > 256:
        raise invalid("max_priority", "at most 255")
    for name, most in (
        ("max_total_bps", 1 << 62),
        ("max_requests", 1 << 31),
        ("horizon_us", 1 << 62),
        ("max_held_bps", 1 << 62),
    ):
        if getattr(message, name) >= most:
            raise invalid(name, f"must be below {most}")
    return Quota(
        message.owner,
        message.revision,
        message.max_requests,
        message.max_total_bps,
        message.max_priority_plus_one,
        message.horizon_us,
        message.max_held_bps,
    )


def message(quota: Quota) -> reservations_pb2.Quota:
    """The quota as a message."""
    return reservations_pb2.Quota(**dataclasses.asdict(quota))
