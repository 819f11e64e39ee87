"""Finished measurements in a file of JSON lines, so that an experiment that was broken off goes on with the next one.

With `--resume` what was measured under the same conditions is taken from there; measurements under other conditions
stay in the file and are not used. With `--slice-s` no measurement begins that would not be over by then.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from chart_lab.errors import LabError, UnfinishedError
from chart_lab.experiments.framework import Settings

Measured = TypeVar("Measured")

KEPT_FILE = "runs.jsonl"
# A lab comes up and goes, and the plots are drawn.
AROUND_A_RUN_S = 8.0


class Kept(Generic[Measured]):
    """The measurements of one experiment in its folder.

    ``write`` makes a measurement into what JSON can hold, ``read`` makes it out of what JSON gives back.
    """

    def __init__(
        self,
        settings: Settings,
        conditions: Mapping[str, Any],
        *,
        write: Callable[[Measured], Any],
        read: Callable[[Any], Measured],
        file: str = KEPT_FILE,
    ) -> None:
        """Begins anew unless it shall go on.

        Raises LabError when the file is not ours.
        """
        self.settings = settings
        # A run that nobody judged for noise is not taken for one that was.
        self.conditions = _as_read({**conditions, "judge_noise": settings.judge_noise})
        self.path = settings.out / file
        self.made = 0
        self._write, self._read = write, read
        self._began_s = time.monotonic()
        self._found: dict[str, Measured] = {}
        if settings.resume:
            self._take_up()
        else:
            self.path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, what: Any) -> Measured | None:
        """What was measured of this, under the same conditions; None: not yet."""
        return self._found.get(_key(what))

    def add(self, what: Any, measured: Measured) -> None:
        """Keep a measurement; it is on disk when this returns."""
        line = json.dumps({"conditions": self.conditions, "of": what, "measured": self._write(measured)})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._found[_key(what)] = measured

    def measured(self, what: Any, measure: Callable[[], Measured], takes_s: float) -> Measured:
        """A measurement that was kept, or a new one that is kept now; ``takes_s`` is how long one is about to take.

        Raises UnfinishedError when the slice has no time for it, and what ``measure`` raises.
        """
        before = self.get(what)
        if before is not None:
            return before
        spent_s, slice_s = time.monotonic() - self._began_s, self.settings.slice_s
        if slice_s is not None and self.made and spent_s + takes_s + AROUND_A_RUN_S > slice_s:
            raise UnfinishedError(
                f"{len(self)} measurements are in {self.path}; another of {takes_s:g} s does not fit into --slice-s"
                f" {slice_s:g}: go on with the same command and --resume"
            )
        made = measure()
        self.made += 1
        self.add(what, made)
        return made

    def _take_up(self) -> None:
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
                if record["conditions"] == self.conditions:
                    self._found[_key(record["of"])] = self._read(record["measured"])
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                what = f"{self.path}:{number} is no measurement of this experiment ({error})"
                raise LabError(f"{what}; without --resume it is replaced") from error


def _key(what: Any) -> str:
    return json.dumps(what, sort_keys=True)


def _as_read(value: Any) -> Any:
    """The value as JSON gives it back: tuples are lists, keys strings."""
    return json.loads(json.dumps(value))
