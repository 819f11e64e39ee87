"""Measurements that are made again; nothing is measured here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chart_lab.errors import LateError, NoisyMachineError
from chart_lab.experiments import noise


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "await_quiet", lambda: True)


def one_after_the_other(*found: float | Exception) -> Callable[[], float]:
    """A measurement that gives these, in this order."""
    left = list(found)

    def measure() -> float:
        one = left.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    return measure


def undisturbed(measure: Callable[[], float], *, judge_noise: bool = True) -> float:
    return noise.undisturbed(
        measure, lambda one: "too small" if one < 1 else None, "a figure", attempts=3, judge_noise=judge_noise
    )


def test_the_first_that_noise_did_not_spoil_counts() -> None:
    assert undisturbed(one_after_the_other(0.5, 2.0, 3.0)) == 2.0
    assert undisturbed(one_after_the_other(0.5, 2.0), judge_noise=False) == 0.5
    with pytest.raises(NoisyMachineError, match="a figure, 3 attempts: too small"):
        undisturbed(one_after_the_other(0.1, 0.2, 0.3))


@pytest.mark.parametrize("judge_noise", [True, False])
def test_without_its_schedule_nothing_was_measured(judge_noise: bool) -> None:
    assert undisturbed(one_after_the_other(LateError("late"), 2.0), judge_noise=judge_noise) == 2.0
    with pytest.raises(NoisyMachineError, match="3 attempts: late by 2 s"):
        undisturbed(one_after_the_other(*[LateError("late by 2 s")] * 3), judge_noise=judge_noise)


def test_what_failed_is_not_tried_again() -> None:
    with pytest.raises(ValueError, match="broken"):
        undisturbed(one_after_the_other(ValueError("broken"), 2.0))
