"""Rates, sizes and times as people write them, and back; inside, bit/s and microseconds are used."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_RATE_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_RATE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:bit/s|bits/s|bps|b/s|bit)?\s*$", re.IGNORECASE)
_DURATION_US = {
    "us": 1,
    "ms": 1000,
    "s": 10**6,
    "m": 60 * 10**6,
    "min": 60 * 10**6,
    "h": 3600 * 10**6,
    "d": 86400 * 10**6,
}
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|m|h|d)\s*$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_rate(text: str) -> int:
    """Bits per second of "50M", "1.5 Gbit/s", "800kbps", "1000". Factors are powers of 1000.

    Raises:
        ValueError: not a rate.
    """
    match = _RATE.match(text)
    if match is None:
        msg = f"{text!r} is not a rate: write a number with an optional k, M, G or T, for example 50M"
        raise ValueError(msg)
    return round(float(match[1]) * _RATE_FACTORS[match[2].lower()])


def _three_digits(value: float) -> str:
    """Three digits, or the whole part where that has more; never an exponent."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def format_bps(rate_bps: float) -> str:
    """A rate for people: "93.4 Mbit/s"."""
    magnitude = abs(rate_bps)
    for factor, unit in ((10**12, "Tbit/s"), (10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s")):
        if magnitude >= factor:
            return f"{_three_digits(rate_bps / factor)} {unit}"
    return f"{rate_bps:.0f} bit/s"


def parse_duration_us(text: str) -> int:
    """Microseconds of "100ms", "10s", "5m", "1h", "7d".

    Raises:
        ValueError: not a duration.
    """
    match = _DURATION.match(text)
    if match is None:
        msg = f"{text!r} is not a duration: write a number with us, ms, s, m, h or d, for example 30s"
        raise ValueError(msg)
    return round(float(match[1]) * _DURATION_US[match[2]])


def format_duration_us(duration_us: float) -> str:
    """A duration for people: "12.3 ms"."""
    for factor, unit in ((86400 * 10**6, "d"), (3600 * 10**6, "h"), (60 * 10**6, "min"), (10**6, "s"), (1000, "ms")):
        if abs(duration_us) >= factor:
            return f"{_three_digits(duration_us / factor)} {unit}"
    return f"{duration_us:.0f} us"


def rfc3339(time_us: int) -> str:
    """RFC 3339 in UTC with microseconds of a time since the epoch."""
    return (_EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="microseconds").replace("+00:00", "Z")
