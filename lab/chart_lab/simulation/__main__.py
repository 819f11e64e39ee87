"""`python -m chart_lab.simulation --seeds N --first-seed S`: see docs/simulation.md."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from chart_lab.simulation import report
from chart_lab.simulation.decide import LibraryMissingError
from chart_lab.simulation.mutations import MUTATIONS

SHOWN_FAILURES = 3


def main() -> int:
    """Run the seeds; 0 when no rule was broken."""
    parser = argparse.ArgumentParser(prog="chart_lab.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first-seed", type=int, default=1, help="the first one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--out", type=Path, default=Path("var/simulate"), help="where report.json and traces go")
    parser.add_argument("--resume", action="store_true", help="go on where the report in --out ends, same code only")
    parser.add_argument("--slice-s", type=float, default=0.0, help="begin no seed after so many seconds; 0: no limit")
    parser.add_argument("--mutation", default="", choices=["", *MUTATIONS], help="break this rule on purpose")
    arguments = parser.parse_args()
    if arguments.seeds < 1 or arguments.first_seed < 0:
        parser.error("--seeds has to be at least 1, --first-seed at least 0")
    report.same_hashes_everywhere(sys.argv[1:])
    arguments.out.mkdir(parents=True, exist_ok=True)
    report.code()
    began = time.monotonic()
    try:
        before = report.read(arguments.out, arguments.first_seed) if arguments.resume else report.Summary()
        seeds = range(arguments.first_seed + before.seeds, arguments.first_seed + arguments.seeds)
        summary = report.run_seeds(
            seeds,
            arguments.mutation,
            min(arguments.jobs, max(1, len(seeds))),
            report.Progress(arguments.seeds, before.seeds),
            summary=before,
            until=lambda: bool(arguments.slice_s) and time.monotonic() - began > arguments.slice_s,
        )
    except (LibraryMissingError, report.NotTheSameError) as error:
        print(error, file=sys.stderr)
        return 2
    for failure in summary.failures[:SHOWN_FAILURES]:
        print(report.show_failure(failure, arguments.mutation, arguments.out))
    command = f"make simulate SEEDS={summary.seeds} FIRST_SEED={arguments.first_seed}"
    report.write(summary, command, arguments.out, time.monotonic() - began, arguments.first_seed)
    print(
        f"simulated {summary.seeds} seeds with {summary.counts['commits']} commits in"
        f" {time.monotonic() - began:.0f} s: {dict(summary.rules) or 'no rule broken'}"
    )
    return 1 if summary.failures or summary.failed_before else 0


if __name__ == "__main__":
    sys.exit(main())
