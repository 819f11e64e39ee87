"""Leases: what is granted until a moment, and when to renew it (design: leases of link rates 10 s, grants 60 s).

Pure functions over microseconds since the epoch. A holder treats a lease that has run out as if it had never been
given; a giver renews at half of the lease, so that one lost record does not end it.
"""

from __future__ import annotations


def is_valid(valid_until_us: int, now_us: int) -> bool:
    """Whether a lease still holds; the last microsecond does not."""
    return now_us < valid_until_us


def expiry_us(now_us: int, lease_us: int, end_us: int = 0) -> int:
    """When a lease given now ends: after ``lease_us``, but not after ``end_us`` (0: no such end)."""
    until = now_us + lease_us
    return min(until, end_us) if end_us else until


def renewal_due(issued_at_us: int, valid_until_us: int, now_us: int) -> bool:
    """Whether half of the lease is over."""
    return 2 * (now_us - issued_at_us) >= valid_until_us - issued_at_us
