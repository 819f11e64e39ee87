"""The experiments of `chart lab run`, each of which regenerates a figure or table of a paper."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Experiment:
    """What `chart lab list` says of an experiment."""

    name: str
    description: str


REGISTRY: dict[str, Experiment] = {}
