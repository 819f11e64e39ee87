"""What an operator may state of a tunnel: pure functions that return the stored form or refuse it, naming the field."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from chart.common.rpc_errors import RefusalError, conflict, invalid
from chart.tunnels.controller import CONNECTIONS_MAX
from chart.v1 import reservations_pb2
from chart.v1.tunnel_command_pb2 import TunnelController
from chart.v1.tunnels_pb2 import TunnelScheduleEntry, TunnelSettings

MAX_RATE_BPS = 10**13
MAX_ENTRIES = 100
MAX_CUSTOMERS = 64
MAX_WEIGHT = 10_000
MAX_WINDOW_SEGMENTS = 1000.0
MAX_GAIN = 1e6
CONTROLLERS = ("none", "naive", "p", "pi")

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def settings(stated: TunnelSettings) -> TunnelSettings:
    """A tunnel's settings in their stored form, without the revision.

    Raises:
        RefusalError: names the field.
    """
    check_name(stated.tunnel)
    kind = TunnelController
    if stated.controller not in kind.values() or stated.controller == kind.TUNNEL_CONTROLLER_UNSPECIFIED:
        raise invalid("controller", f"must be one of {', '.join(CONTROLLERS)}", *CONTROLLERS)
    for field in ("target_bps", "capacity_bps"):
        if getattr(stated, field) > MAX_RATE_BPS:
            raise _above(field, MAX_RATE_BPS, "bit/s")
    if stated.capacity_bps and stated.target_bps >= stated.capacity_bps:
        raise _too_much("target_bps", stated.target_bps, stated.capacity_bps)
    if not 0 <= stated.window_min_segments <= MAX_WINDOW_SEGMENTS:
        raise invalid("window_min_segments", f"must be between 0 (no guard) and {MAX_WINDOW_SEGMENTS:g} segments")
    for field in ("connections", "connections_maximum"):
        if getattr(stated, field) > CONNECTIONS_MAX:
            raise invalid(field, f"must be at most {CONNECTIONS_MAX}, is {getattr(stated, field)}")
    if stated.connections and stated.controller != kind.TUNNEL_CONTROLLER_NONE:
        raise invalid("connections", "a number of connections can be set only with the controller none")
    _check_gains(stated)
    _check_weights(stated)
    stored = TunnelSettings()
    stored.CopyFrom(stated)
    stored.revision = 0
    del stored.schedule[:]
    stored.schedule.extend(_schedule(stated.schedule, stated.capacity_bps))
    return stored


def check_name(name: str) -> None:
    """Refuse what is no name of a tunnel (a DNS label, as `chart-tunnel --name` takes it).

    Raises:
        RefusalError: INVALID_ARGUMENT.
    """
    if not _NAME.fullmatch(name):
        words = "must be a DNS label: 1 to 63 of a-z, 0-9 and -, neither first nor last a -"
        raise invalid("tunnel", f"tunnel {name!r} {words}")


def check_revision(name: str, expected: int, stored: int | None) -> None:
    """Refuse a change that was made to another revision than the stored one; 0 expects nothing.

    Raises:
        RefusalError: ABORTED.
    """
    if expected and stored is None:
        raise conflict(f"tunnel {name!r} has no settings, so there is no revision {expected}")
    if expected and stored != expected:
        raise conflict(f"tunnel {name!r} is at revision {stored}, not {expected}: read it again and repeat the change")


def _check_gains(stated: TunnelSettings) -> None:
    kind = TunnelController
    for field in ("kp", "ki"):
        if not stated.HasField(field):
            continue
        gain = getattr(stated, field)
        if not math.isfinite(gain) or not 0 <= gain <= MAX_GAIN:
            raise invalid(field, f"must be between 0 and {MAX_GAIN:g} connections per Mbit/s")
    if stated.controller == kind.TUNNEL_CONTROLLER_P and not stated.HasField("kp"):
        raise invalid(
            "kp", "controller p needs its gain: set kp in connections per Mbit/s, or use pi, which computes its gains"
        )
    if stated.HasField("ki") and stated.controller != kind.TUNNEL_CONTROLLER_PI:
        raise invalid("ki", "only pi has an integral gain")
    if stated.controller == kind.TUNNEL_CONTROLLER_PI and stated.HasField("ki") != stated.HasField("kp"):
        missing = "kp" if stated.HasField("ki") else "ki"
        raise invalid(missing, "set both gains, or neither: then they are computed from C, alpha and tau")


def _check_weights(stated: TunnelSettings) -> None:
    if len(stated.weights) > MAX_CUSTOMERS:
        raise invalid("weights", f"must be at most {MAX_CUSTOMERS} customers, are {len(stated.weights)}")
    for customer, weight in stated.weights.items():
        if not 0 < len(customer) <= 63:
            raise invalid("weights", "a customer's name has 1 to 63 characters")
        if not 1 <= weight <= MAX_WEIGHT:
            raise invalid(f"weights.{customer}", f"must be between 1 and {MAX_WEIGHT}, is {weight}")


def _schedule(stated: Sequence[TunnelScheduleEntry], capacity_bps: int) -> list[TunnelScheduleEntry]:
    if len(stated) > MAX_ENTRIES:
        raise invalid("schedule", f"must have at most {MAX_ENTRIES} entries, has {len(stated)}")
    for index, entry in enumerate(stated):
        where = f"schedule[{index}]"
        if entry.start_us < 0 or entry.end_us < 0:
            raise invalid(f"{where}.start", "must be a time since the epoch")
        if entry.end_us and entry.end_us <= entry.start_us:
            raise invalid(f"{where}.end", "must be later than the entry's start")
        if entry.target_bps > MAX_RATE_BPS:
            raise _above(f"{where}.target_bps", MAX_RATE_BPS, "bit/s")
        if capacity_bps and entry.target_bps >= capacity_bps:
            raise _too_much(f"{where}.target_bps", entry.target_bps, capacity_bps)
    return list(stated)


def _above(field: str, ceiling: int, unit: str) -> RefusalError:
    return invalid(field, f"must be at most {ceiling} {unit}")


def _too_much(field: str, target_bps: int, capacity_bps: int) -> RefusalError:
    words = f"{target_bps} bit/s cannot be reached on {capacity_bps} bit/s with any number of connections"
    error = invalid(field, words)
    error.refusal.MergeFrom(reservations_pb2.Refusal(ceiling_bps=capacity_bps - 1))
    return error
