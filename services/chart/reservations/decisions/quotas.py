"""What one application may have at once: requests, total rate, priority, horizon. Pure."""

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


@dataclass(frozen=True)
class Use:
    """What an application has now."""

    requests: int = 0
    total_bps: int = 0

    def after(self, spending: Spending) -> Use:
        """With what was taken meanwhile."""
        return Use(self.requests + spending.requests, self.total_bps + spending.rate_bps)


@dataclass(frozen=True)
class Spending:
    """What a new request (`requests` 1), or a change of one, takes from its owner's quota."""

    owner: str
    requests: int
    rate_bps: int
    priority: int
    end_us: int


def spending_of_new(owner: str, checked: CheckedRequest) -> Spending:
    """What a new request takes from its owner's quota."""
    ask = checked.ask
    return Spending(owner, 1, ask.wanted_bps, checked.specification.preemption_priority, ask.end_us)


def spending_of_change(change: Change, before: Reservation) -> Spending | None:
    """What a change takes more from the quota; None when it asks for nothing more."""
    rate = max(0, (change.guaranteed_bps or 0) - before.granted_bps)
    later = change.end_us is not None and change.end_us > before.end_us
    priority = change.preemption_priority or 0
    if not rate and not later and priority <= before.specification.preemption_priority:
        return None
    return Spending(before.owner, 0, rate, priority, change.end_us if change.end_us is not None else 0)


def of(owner: str, quotas: Mapping[str, Quota]) -> Quota | None:
    """The quota of an application: its own, or the default one."""
    return quotas.get(owner) or quotas.get(DEFAULT_OWNER)


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
    for name, most in (("max_total_bps", 1 << 62), ("max_requests", 1 << 31), ("horizon_us", 1 << 62)):
        if getattr(message, name) >= most:
            raise invalid(name, f"must be below {most}")
    return Quota(
        message.owner,
        message.revision,
        message.max_requests,
        message.max_total_bps,
        message.max_priority_plus_one,
        message.horizon_us,
    )


def message(quota: Quota) -> reservations_pb2.Quota:
    """The quota as a message."""
    return reservations_pb2.Quota(**dataclasses.asdict(quota))
