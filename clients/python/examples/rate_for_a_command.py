"""A rate for as long as a command runs, and what was delivered of it.

    python rate_for_a_command.py --to delta --port 5201 --rate 50e6 -- rsync -a big/ delta::big

Takes the gateway's address from CHART_SERVER and the token from CHART_TOKEN.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from chart_client import Client, errors


def main() -> int:
    """Ask, run, give back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", required=True, help="node that sends")
    parser.add_argument("--to", dest="destination", required=True, help="node that receives")
    parser.add_argument("--port", type=int, required=True, help="TCP port at the receiver")
    parser.add_argument("--rate", type=float, required=True, help="bits per second, IP headers included")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()

    with Client() as chart:
        try:
            request = chart.rate_requests.create(
                asked.source,
                asked.destination,
                guaranteed_bps=int(asked.rate),
                protocol="tcp",
                destination_port=asked.port,
                description=asked.command[0],
            )
        except errors.RefusedError as refusal:
            # The problem says what would fit: a ceiling, and other suggestions.
            print(f"no rate: {refusal}. At most {refusal.problem.ceiling} bit/s fit now.", file=sys.stderr)
            return 1
        try:
            chart.rate_requests.wait_enforced(request.id)
            status = subprocess.run(asked.command, check=False).returncode
        except errors.NotEnforcedError as reason:
            print(f"it would run at its own rate: {reason}", file=sys.stderr)
            return 1
        finally:
            chart.rate_requests.release(request.id)
        receipt = chart.rate_requests.receipt(request.id)
    print(f"{request.id}: granted {receipt.granted_bits:.0f} bit along {' > '.join(request.path)}")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
