"""Draws the state machines of a request into docs/rate-requests.md: `python -m chart.reservations.drawings [--check]`.

With --check nothing is written; exit status 1 says that the page is not what the code says.
"""

from __future__ import annotations

import argparse
import sys

from chart.common.places import repository_root
from chart.reservations.decisions.state_machines import ALL, StateMachine, mermaid

PAGE = "docs/rate-requests.md"

_HEAD = """# The life of a rate request

Made from `services/chart/reservations/decisions/state_machines.py` by `python -m chart.reservations.drawings`; `make
lint` checks that it is up to date. A request has four states that move on their own. Every state that waits for
somebody has a time limit, so nothing is ever stuck.
"""

_WORDS = {
    "lifecycle": "Whether it is held, reserved for later, in force, or over.",
    "enforcement": "What the agents on the path confirmed. A new rate or path has to be confirmed anew; a grant that"
    " was not confirmed goes on being published, so that a late confirmation heals it. A request whose rate waits for"
    " one that drains is PENDING until that is over, and says until when at the latest"
    " (`waits_until`). One whose link goes down is PENDING with that reason until it is admitted where its packets go"
    " now; after 10 s it is FAILED.",
    "service": "Whether it has its rate. A request that lost it runs on at the available rate and gets it back when it"
    " frees: it is tried whenever something was freed, and every 2 s.",
    "callback": "Whether its application has received the latest change. Tried again after 1, 2, 5, 15 s, 1, 5, 15 min,"
    " then every hour for a day; what was given up can be sent again.",
}


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_section(machine) for machine in ALL)])


def _section(machine: StateMachine) -> str:
    return f"## {machine.name}\n\n{_WORDS[machine.name]}\n\n```mermaid\n{mermaid(machine)}```\n"


def main() -> int:
    """Write the page, or look whether it is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    arguments = parser.parse_args()
    path = repository_root() / PAGE
    if not arguments.check:
        path.write_text(page())
        return 0
    if path.exists() and path.read_text() == page():
        return 0
    print(f"{PAGE} is not what the state machines say: python -m chart.reservations.drawings", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
