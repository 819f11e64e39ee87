"""Reserves a rate for the first time in which it fits, and keeps it only when it is soon enough.

python next_window.py --from alpha --to delta --rate 40e6 --hours 2 --within-hours 24
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta

from chart_client import Client, errors


def main() -> int:
    """Look, hold, decide."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", required=True)
    parser.add_argument("--to", dest="destination", required=True)
    parser.add_argument("--rate", type=float, required=True, help="bits per second")
    parser.add_argument("--hours", type=float, required=True, help="how long it is needed")
    parser.add_argument("--within-hours", type=float, default=24.0, help="no later than this")
    asked = parser.parse_args()
    rate = {"guaranteed_bps": int(asked.rate), "service": "guaranteed", "duration_s": int(asked.hours * 3600)}

    with Client() as chart:
        # The same answer that `create` would give, and nothing is committed.
        preview = chart.rate_requests.preview(asked.source, asked.destination, **rate)
        start = None
        if not preview.granted:
            if not preview.windows:
                print(f"it never fits: {preview.refusal.detail if preview.refusal else ''}", file=sys.stderr)
                return 1
            start = preview.windows[0].start
        # Held for 900 s: nobody else gets it while we decide.
        try:
            held = chart.rate_requests.create(asked.source, asked.destination, **rate, start=start, hold=True)
        except errors.RefusedError as refusal:
            print(f"somebody was quicker: {refusal}", file=sys.stderr)
            return 1
        latest = datetime.now(UTC) + timedelta(hours=asked.within_hours)
        if start is not None and start > latest:
            chart.rate_requests.release(held.id)
            print(f"only from {start.isoformat()}, which is too late", file=sys.stderr)
            return 1
        request = chart.rate_requests.commit(held.id)
    print(f"{request.id}: from {(start or request.created_at).isoformat()} along {' > '.join(request.path)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
