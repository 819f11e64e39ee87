"""Sensors that contradict the others' results."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from chart.inference import contradictions

FLOOR = 100.0


def places(count: int, seed: int = 1) -> tuple[tuple[str, ...], np.ndarray]:
    """Round-trip times between nodes on a plane, in microseconds."""
    random = np.random.default_rng(seed)
    at = random.uniform(0, 50_000, (count, 2))
    distance = np.sqrt(((at[:, None] - at[None]) ** 2).sum(2)) + 1000
    return tuple(f"n{number:02d}" for number in range(count)), distance


def against_others(values: dict[tuple[str, str], float]) -> list[contradictions.Contradiction]:
    return contradictions.against_others({pair: (value, 1) for pair, value in values.items()}, FLOOR)


def test_the_sensor_that_differs_from_all_others_is_named_and_no_other() -> None:
    nodes, distance = places(6)
    values = {(nodes[a], nodes[b]): float(distance[a, b]) for a, b in permutations(range(6), 2)}
    assert against_others(values) == []
    lie = {pair: value * 1.5 if pair[0] == nodes[2] else value for pair, value in values.items()}
    (found,) = against_others(lie)
    assert (found.node, found.judged, found.share) == (nodes[2], 5, 1.0)
    later = {pair: (value, 1 if pair[0] == nodes[2] else 700_000_000) for pair, value in lie.items()}
    assert contradictions.against_others(later, FLOOR) == [], "the paths may have changed meanwhile"


def test_noise_a_few_floors_and_few_pairs_contradict_nobody() -> None:
    nodes, distance = places(6)
    values = {(nodes[a], nodes[b]): float(distance[a, b]) * (1.2 if a < b else 1) for a, b in permutations(range(6), 2)}
    assert against_others(values) == []
    near = {(nodes[a], nodes[b]): 10.0 if a < b else 400.0 for a, b in permutations(range(6), 2)}
    assert against_others(near) == []
    two = {(a, b): value * (9 if a == nodes[0] else 1) for (a, b), value in values.items() if {a, b} <= set(nodes[:3])}
    assert against_others(two) == [], "two pairs of a node prove nothing"
    one_way = {(nodes[a], nodes[b]): 1.0 for a, b in permutations(range(6), 2) if a < b}
    assert against_others(one_way) == []
