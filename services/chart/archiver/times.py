"""Microseconds since the epoch, as the streams have them, and times as the database has them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at_us: int) -> datetime:
    """A time of the streams for the database."""
    return _EPOCH + timedelta(microseconds=at_us)


def time_us(at: datetime) -> int:
    """A time of the database, microseconds since the epoch."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def day_of(at_us: int) -> date:
    """The day in UTC to which a time belongs."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).date()
