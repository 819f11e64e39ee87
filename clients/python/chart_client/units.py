"""Rates and durations as people write and read them. Factors of rates are powers of 1000."""

from __future__ import annotations

import re

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_RATE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:bit/s|bits/s|bps|b/s|bit)?\s*$", re.IGNORECASE)


def parse_rate(text: str) -> int:
    """Bits per second of "60M", "1.5 Gbit/s", "1000".

    Raises:
        ValueError: not a rate.
    """
    match = _RATE.match(text)
    if match is None:
        msg = f"{text!r} is not a rate: write a number with an optional k, M, G or T, for example 60M"
        raise ValueError(msg)
    return round(float(match[1]) * _FACTORS[match[2].lower()])


_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*$")


def parse_duration_s(text: str) -> int:
    """Seconds of "90", "30m", "1h", "7d".

    Raises:
        ValueError: not a duration.
    """
    match = _DURATION.match(text)
    if match is None:
        msg = f"{text!r} is not a time: write a number with s, m, h or d, for example 30m"
        raise ValueError(msg)
    return round(float(match[1]) * _SECONDS[match[2]])


def format_bps(rate_bps: float | None) -> str:
    """A rate for people: "93.4 Mbit/s"; "-" when unknown."""
    if rate_bps is None:
        return "-"
    for factor, unit in ((10**12, "Tbit/s"), (10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s")):
        if abs(rate_bps) >= factor:
            return f"{rate_bps / factor:.4g} {unit}"
    return f"{rate_bps:.0f} bit/s"
