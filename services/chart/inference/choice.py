"""Which pair to measure next: the one that lowers the uncertainty of all pairs most.

First landmarks, each chosen where it brings most nodes a near one, and its whole row: a pair of landmark and node
constrains all the node's pairs. Then, in turns, pairs of nodes that are near each other, where it is undecided who is
nearer (few pairs are near, so chance would bring hardly any, and who is closest is asked most often), pairs by chance
(only pairs drawn alike say how often intervals hold), and the pair with the widest interval. Directed metrics spread
over ends and groups instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from chart.inference import directed, landmarks
from chart.inference.observations import Flags, Floats, Indices, Observations

# Share of a budget that goes into landmarks' rows.
LANDMARK_BUDGET = 0.68
# What the rest goes into, in turns.
TURNS = ("near", "near", "unknown", "near", "near", "near", "uncertain", "near")
# The nodes that a node's signature says are nearest: the first is known without measuring (neighbours of one site have
# one signature), among so many next ones it is undecided who is nearer, and these are candidates for "near".
SURE = 1
NEAREST = 12
DEFAULT_FRACTION = 0.13


@dataclass(frozen=True)
class Choice:
    """A pair by the numbers of its nodes, and why: "landmark", "near", "unknown" or "uncertain"."""

    source: int
    destination: int
    reason: str


def landmark_count(nodes: int, budget: int) -> int:
    """How many landmarks the budget of pairs is for; at least 3 while there are more nodes."""
    count = 0
    while (count + 1) * nodes - (count + 1) * (count + 2) // 2 <= LANDMARK_BUDGET * budget and count < nodes - 1:
        count += 1
    return min(max(count, landmarks.LEAST_LANDMARKS), max(nodes - 1, 0))


def next_pairs(
    observations: Observations,
    width: Floats,
    count: int,
    *,
    budget: int | None,
    seed: int,
    avoid: Flags | None = None,
    widest: bool = True,
) -> list[Choice]:
    """Up to `count` unmeasured pairs; fewer while landmarks are being made, for each depends on the one before.

    `width` is the log width of each pair's interval, NaN where there is none; `avoid` are pairs not to ask for now.
    """
    measured = observations.measured if avoid is None else observations.measured | avoid
    if not observations.symmetric:
        return [Choice(*pair, "unknown") for pair in directed.balanced(observations, measured, count, seed)]
    nodes = observations.count
    total = budget if budget is not None else max(3 * nodes, int(DEFAULT_FRACTION * nodes * (nodes - 1) / 2))
    wanted = landmark_count(nodes, total)
    known = measured | measured.T | np.eye(nodes, dtype=bool)
    chosen, complete = _rows_of_landmarks(observations, known, wanted, seed)
    if len(chosen) >= count or not complete:
        return chosen[:count]
    for pair in chosen:
        known[pair.source, pair.destination] = known[pair.destination, pair.source] = True
    return chosen + _others(known, _nearest(observations, known), width, count - len(chosen), seed, widest)


def _rows_of_landmarks(observations: Observations, known: Flags, wanted: int, seed: int) -> tuple[list[Choice], bool]:
    """What is missing in the rows of the landmarks there are, and whether these are all that are wanted; when nothing
    is missing and they are not, the next landmark's row."""
    nodes = observations.count
    degree = observations.measured.sum(0)
    full = np.flatnonzero(degree >= landmarks.LANDMARK_SHARE * (nodes - 1))
    full = full[np.argsort(-degree[full], kind="stable")][:wanted]
    # Rows of which nothing is left to ask are done, however many of their pairs answered.
    done = np.flatnonzero(known.all(1))
    complete = len(np.union1d(full, done)) >= wanted
    missing = [(int(mark), int(node)) for mark in full for node in np.flatnonzero(~known[mark])]
    if not missing and not complete:
        mark = _started(degree, np.union1d(full, done), nodes)
        if mark is None:
            marks = np.union1d(full, done) if len(full) else full
            mark = landmarks.next_landmark(observations, marks) if len(marks) else _first(known, seed)
        if mark is not None:
            missing = [(mark, int(node)) for node in np.flatnonzero(~known[mark])]
    return [Choice(*pair, "landmark") for pair in dict.fromkeys(missing)], complete


def _first(known: Flags, seed: int) -> int:
    """Any node of which something can be asked."""
    able = np.flatnonzero(~known.all(1))
    return int(able[seed % len(able)]) if len(able) else 0


def _started(degree: Indices, full: Indices, nodes: int) -> int | None:
    """A landmark whose row was begun: the node with most measurements among those that are none, if it stands out."""
    others = np.setdiff1d(np.arange(nodes), full)
    if not len(others):
        return None
    best = int(others[np.argmax(degree[others])])
    typical = float(np.median(degree[others]))
    return best if degree[best] >= typical + 0.2 * nodes else None


def _nearest(observations: Observations, known: Flags) -> Flags:
    """Unknown pairs of nodes of which one is, by signatures, among the nearest of the other, yet not surely so."""
    guess = landmarks.rough_distance(
        landmarks.signatures(observations, landmarks.landmarks_of(observations)), observations.floor
    )
    np.fill_diagonal(guess, np.inf)
    rank = np.argsort(np.argsort(guess, axis=1, kind="stable"), axis=1, kind="stable")
    sure = rank < SURE
    near = (rank < SURE + NEAREST) & np.isfinite(guess)
    return (near | near.T) & ~(sure | sure.T) & ~known


def near_pairs(observations: Observations) -> Flags:
    """Pairs of the kind that is asked for as "near", measured or not; none of a directed metric."""
    count = observations.count
    if not observations.symmetric:
        return np.zeros((count, count), dtype=bool)
    return _nearest(observations, np.eye(count, dtype=bool))


def _others(known: Flags, near: Flags, width: Floats, count: int, seed: int, widest: bool) -> list[Choice]:
    if count <= 0:
        return []
    rows, columns = np.nonzero(np.triu(~known, 1))
    random = np.random.default_rng(seed)
    widths = np.nan_to_num(width[rows, columns], nan=np.inf)
    orders: dict[str, Iterator[np.intp]] = {
        "unknown": iter(random.permutation(len(rows))),
        "near": iter(random.permutation(np.flatnonzero(near[rows, columns]))),
        "uncertain": iter(np.argsort(-widths, kind="stable") if widest else ()),
    }
    taken: dict[int, str] = {}
    while len(taken) < min(count, len(rows)):
        reason = TURNS[len(taken) % len(TURNS)]
        index: int | None = next((int(one) for one in orders[reason] if int(one) not in taken), None)
        if index is None:
            # Nothing is near any more, or there are no intervals: by chance.
            reason = "unknown"
            index = next((int(one) for one in orders[reason] if int(one) not in taken), None)
        if index is None:
            break
        taken[index] = reason if reason != "uncertain" or np.isfinite(widths[index]) else "unknown"
    return [Choice(int(rows[index]), int(columns[index]), reason) for index, reason in taken.items()]
