"""What operators may set for the whole platform: bounds, and what contradicts itself. Pure.

The bounds are those of the services' own settings (their tests compare them).
"""

from __future__ import annotations

from chart.common.platform_settings import KEY
from chart.common.rpc_errors import invalid
from chart.v1.platform_settings_pb2 import ApplicationLimits, PlatformSettings

# Least and greatest value by field.
BOUNDS: dict[str, tuple[float, float]] = {
    "oversubscription": (1, 1000),
    "lease_idle_share": (0, 1),
    "lease_greatest_share": (0, 1),
    "snapshot_period_s": (0, 366 * 86_400),
    "probe_share": (0.0001, 0.5),
    "inference_fraction": (0.001, 1),
    "inference_active_pairs": (0, 200),
    "inference_active_valid_s": (10, 3600),
    "inference_active_priority": (0, 255),
    "authority_free_available_bps": (0, 10**13),
}
LIMITS: dict[str, tuple[float, float]] = {
    "configurations": (0, 1_000_000),
    "priority": (0, 255),
    "period_ms": (0, 30 * 86_400_000),
    "one_shots_per_minute": (0, 1_000_000),
    "probe_share": (0, 1),
}
UNAUTHORISED = ("drop", "free")
MAX_OWNERS = 1000
MAX_OWNER = 128


def platform_settings(stated: PlatformSettings) -> PlatformSettings:
    """The settings in their stored form, without their revision.

    Raises:
        RefusalError: names the field.
    """
    if stated.id not in ("", KEY):
        raise invalid("id", f"must be {KEY!r}, is {stated.id!r}", KEY)
    _check_bounds("", stated, BOUNDS)
    if stated.HasField("authority_unauthorised") and stated.authority_unauthorised not in UNAUTHORISED:
        words = f"must be {' or '.join(UNAUTHORISED)}, is {stated.authority_unauthorised!r}"
        raise invalid("authority_unauthorised", words, *UNAUTHORISED)
    if (
        stated.HasField("lease_idle_share")
        and stated.HasField("lease_greatest_share")
        and stated.lease_idle_share > stated.lease_greatest_share
    ):
        words = f"must be at most lease_greatest_share, {stated.lease_greatest_share:g}, is {stated.lease_idle_share:g}"
        raise invalid("lease_idle_share", words)
    owners = stated.application_limits.owners
    if len(owners) > MAX_OWNERS:
        raise invalid("application_limits", f"must be of at most {MAX_OWNERS} owners, are of {len(owners)}")
    for owner, limits in owners.items():
        if not 1 <= len(owner) <= MAX_OWNER:
            raise invalid("application_limits", f"an owner's name has 1 to {MAX_OWNER} characters; * is for all others")
        _check_bounds(f"application_limits.{owner}.", limits, LIMITS)
    stored = PlatformSettings()
    stored.CopyFrom(stated)
    stored.id, stored.revision = KEY, 0
    return stored


def _check_bounds(
    prefix: str, stated: PlatformSettings | ApplicationLimits, bounds: dict[str, tuple[float, float]]
) -> None:
    for field, (least, most) in bounds.items():
        if not stated.HasField(field):  # type: ignore[arg-type]  # a name of the table
            continue
        value = getattr(stated, field)
        # Written so that a value that is no number is refused too.
        if not least <= value <= most:
            raise invalid(f"{prefix}{field}", f"must be between {least:g} and {most:g}, is {value:g}")
