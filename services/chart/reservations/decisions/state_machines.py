"""The life of a request as four small state machines, written as tables.

Lifecycle, enforcement, service and callback move on their own; their states are those of
proto/chart/v1/rate_request.proto. Every state that waits has a time limit. The drawings in docs/ come from `mermaid`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from chart.v1.rate_request_pb2 import CallbackState, Enforcement, Lifecycle, ServiceState


class LifecycleEvent(StrEnum):
    """What moves a request along."""

    COMMIT_FOR_LATER = "commit, start later"
    COMMIT_NOW = "commit, start now"
    START = "start reached"
    END = "end reached"
    RELEASE = "release"
    CANCEL = "cancel"
    HOLD_TIMEOUT = "not committed in time"


class EnforcementEvent(StrEnum):
    """What the agents on the path say about a grant."""

    ALL_APPLIED = "every node applied"
    NODE_FAILED = "a node failed"
    TIMEOUT = "a node did not confirm in time"
    AGAIN_OPEN = "a node has to confirm anew"
    END = "the request ended"


class ServiceEvent(StrEnum):
    """What happens to the rate of a granted request."""

    PREEMPT = "pre-empted by a higher priority"
    DEGRADE = "a link of the path failed or shrank"
    RESTORE = "the rate is free again"


class CallbackEvent(StrEnum):
    """What happens to the notification of a request."""

    QUEUE = "change to tell"
    DELIVER = "receiver accepted"
    GIVE_UP = "retries used up"


@dataclass(frozen=True)
class StateMachine:
    """States are numbers of a protobuf enum, `names` are theirs without the prefix."""

    name: str
    names: Mapping[int, str]
    initial: tuple[int, ...]
    transitions: Mapping[tuple[int, StrEnum], int]
    # Seconds that a state may wait, and the event that ends it.
    limits: Mapping[int, tuple[float, StrEnum]]

    def next(self, state: int, event: StrEnum) -> int | None:
        """The state after an event; None when the event means nothing in this state."""
        return self.transitions.get((state, event))

    def final(self, state: int) -> bool:
        """Whether no event leads out of a state."""
        return not any(origin == state for origin, _ in self.transitions)


def _names(items: Iterable[tuple[str, int]], prefix: str) -> dict[int, str]:
    return {number: name.removeprefix(prefix) for name, number in items if number}


_HELD, _RESERVED, _ACTIVE = Lifecycle.LIFECYCLE_HELD, Lifecycle.LIFECYCLE_RESERVED, Lifecycle.LIFECYCLE_ACTIVE
_RELEASED, _EXPIRED = Lifecycle.LIFECYCLE_RELEASED, Lifecycle.LIFECYCLE_EXPIRED
_CANCELLED = Lifecycle.LIFECYCLE_CANCELLED

HOLD_LIMIT_S = 900.0

LIFECYCLE = StateMachine(
    "lifecycle",
    _names(Lifecycle.items(), "LIFECYCLE_"),
    (_HELD, _RESERVED, _ACTIVE),
    {
        (_HELD, LifecycleEvent.COMMIT_FOR_LATER): _RESERVED,
        (_HELD, LifecycleEvent.COMMIT_NOW): _ACTIVE,
        (_HELD, LifecycleEvent.CANCEL): _CANCELLED,
        (_HELD, LifecycleEvent.RELEASE): _CANCELLED,
        (_HELD, LifecycleEvent.HOLD_TIMEOUT): _EXPIRED,
        (_RESERVED, LifecycleEvent.START): _ACTIVE,
        (_RESERVED, LifecycleEvent.END): _EXPIRED,
        (_RESERVED, LifecycleEvent.RELEASE): _CANCELLED,
        (_RESERVED, LifecycleEvent.CANCEL): _CANCELLED,
        (_ACTIVE, LifecycleEvent.RELEASE): _RELEASED,
        (_ACTIVE, LifecycleEvent.END): _EXPIRED,
    },
    {_HELD: (HOLD_LIMIT_S, LifecycleEvent.HOLD_TIMEOUT)},
)

_PENDING, _ENFORCED = Enforcement.ENFORCEMENT_PENDING, Enforcement.ENFORCEMENT_ENFORCED
_FAILED, _ENDED = Enforcement.ENFORCEMENT_FAILED, Enforcement.ENFORCEMENT_ENDED

CONFIRMATION_LIMIT_S = 10.0

ENFORCEMENT = StateMachine(
    "enforcement",
    _names(Enforcement.items(), "ENFORCEMENT_"),
    (_PENDING,),
    {
        (_PENDING, EnforcementEvent.ALL_APPLIED): _ENFORCED,
        (_PENDING, EnforcementEvent.NODE_FAILED): _FAILED,
        (_PENDING, EnforcementEvent.TIMEOUT): _FAILED,
        (_PENDING, EnforcementEvent.AGAIN_OPEN): _PENDING,
        (_ENFORCED, EnforcementEvent.NODE_FAILED): _FAILED,
        (_ENFORCED, EnforcementEvent.AGAIN_OPEN): _PENDING,
        # A late confirmation heals: the grant goes on being published.
        (_FAILED, EnforcementEvent.ALL_APPLIED): _ENFORCED,
        (_FAILED, EnforcementEvent.AGAIN_OPEN): _PENDING,
        (_PENDING, EnforcementEvent.END): _ENDED,
        (_ENFORCED, EnforcementEvent.END): _ENDED,
        (_FAILED, EnforcementEvent.END): _ENDED,
    },
    {_PENDING: (CONFIRMATION_LIMIT_S, EnforcementEvent.TIMEOUT)},
)

_GRANTED, _PREEMPTED = ServiceState.SERVICE_STATE_GRANTED, ServiceState.SERVICE_STATE_PREEMPTED
_DEGRADED = ServiceState.SERVICE_STATE_DEGRADED

SERVICE = StateMachine(
    "service",
    _names(ServiceState.items(), "SERVICE_STATE_"),
    (_GRANTED,),
    {
        (_GRANTED, ServiceEvent.PREEMPT): _PREEMPTED,
        (_GRANTED, ServiceEvent.DEGRADE): _DEGRADED,
        (_PREEMPTED, ServiceEvent.RESTORE): _GRANTED,
        (_PREEMPTED, ServiceEvent.DEGRADE): _DEGRADED,
        (_DEGRADED, ServiceEvent.RESTORE): _GRANTED,
        (_DEGRADED, ServiceEvent.PREEMPT): _PREEMPTED,
    },
    {},
)

_NONE, _QUEUED = CallbackState.CALLBACK_STATE_NONE, CallbackState.CALLBACK_STATE_PENDING
_DELIVERED, _DEAD = CallbackState.CALLBACK_STATE_DELIVERED, CallbackState.CALLBACK_STATE_DEAD

CALLBACK_LIMIT_S = 24 * 3600.0

CALLBACK = StateMachine(
    "callback",
    _names(CallbackState.items(), "CALLBACK_STATE_"),
    (_NONE,),
    {
        (_NONE, CallbackEvent.QUEUE): _QUEUED,
        (_QUEUED, CallbackEvent.QUEUE): _QUEUED,
        (_QUEUED, CallbackEvent.DELIVER): _DELIVERED,
        (_QUEUED, CallbackEvent.GIVE_UP): _DEAD,
        (_DELIVERED, CallbackEvent.QUEUE): _QUEUED,
        (_DEAD, CallbackEvent.QUEUE): _QUEUED,
    },
    {_QUEUED: (CALLBACK_LIMIT_S, CallbackEvent.GIVE_UP)},
)

ALL = (LIFECYCLE, ENFORCEMENT, SERVICE, CALLBACK)


def mermaid(machine: StateMachine) -> str:
    """The machine as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {machine.names[state]}" for state in machine.initial]
    for (origin, event), target in machine.transitions.items():
        limit = machine.limits.get(origin)
        after = f" ({limit[0]:g} s)" if limit and limit[1] == event else ""
        lines.append(f"    {machine.names[origin]} --> {machine.names[target]}: {event}{after}")
    lines += [f"    {name} --> [*]" for state, name in machine.names.items() if machine.final(state)]
    return "\n".join(lines) + "\n"
