"""What happened in a simulation, in order: for the reader of a failing seed, and as proof that a replay is one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

# Of an excerpt.
LONGEST = 120
NOISE = ("link-load", "link-rate", "grant-status", "gr-lease")


class Trace:
    """Lines of (seconds, who, what)."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._lines: list[tuple[float, str, str]] = []

    def note(self, who: str, what: str) -> None:
        """One event, as of now."""
        self._lines.append((self._now_s(), who, what))

    def log(self, who: str, event: str, fields: dict[str, Any]) -> None:
        """A line of a service's log."""
        rest = " ".join(f"{key}={value}" for key, value in sorted(fields.items()))
        self.note(who, f"{event}: {rest}" if rest else event)

    @property
    def digest(self) -> str:
        """Differs when anything happened differently."""
        found = hashlib.sha256()
        for line in self._lines:
            found.update(repr(line).encode())
        return found.hexdigest()

    def text(self) -> str:
        """All of it."""
        return "".join(map(_line, self._lines))

    def about(self, words: Iterable[str]) -> str:
        """Events that mention one of the words, every fault, and what the checker said; the last of them."""
        wanted = [word for word in words if word]
        chosen = [
            line
            for line in self._lines
            if line[1] in ("faults", "checker")
            or (any(word in line[2] for word in wanted) and not any(noise in line[2] for noise in NOISE))
        ]
        left_out = f"({len(chosen) - LONGEST} events before these)\n" if len(chosen) > LONGEST else ""
        return left_out + "".join(map(_line, chosen[-LONGEST:]))

    def __len__(self) -> int:
        return len(self._lines)


def _line(line: tuple[float, str, str]) -> str:
    return f"{line[0]:12.6f} {line[1]:<16} {line[2]}\n"
