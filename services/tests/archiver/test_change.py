"""Baselines and changes of level, on series whose changes are known."""

from __future__ import annotations

import numpy as np
import pytest

from chart.archiver.change import ENOUGH_MINUTES, Series, judge

MINUTE_US = 60_000_000
START_US = 1_700_000_040_000_000


def series(values: np.ndarray, unit: str = "us") -> Series:
    at_us = tuple(START_US + number * MINUTE_US for number in range(len(values)))
    return Series(("a", "b", "rtt_us"), unit, at_us, tuple(float(value) for value in values))


def noisy(level: float, minutes: int, seed: int, spread: float = 0.03) -> np.ndarray:
    return level * np.random.default_rng(seed).lognormal(0, spread, minutes)


@pytest.mark.parametrize("level", [300.0, 20_000.0, 250_000.0])
def test_a_lasting_change_is_found_where_it_is(level: float) -> None:
    verdict = judge(series(np.concatenate([noisy(level, 60, 1), noisy(1.5 * level, 40, 2)])))
    assert verdict is not None
    assert verdict.change is not None
    assert abs(verdict.change.at_us - (START_US + 60 * MINUTE_US)) <= 2 * MINUTE_US
    assert verdict.change.before == pytest.approx(level, rel=0.05)
    assert verdict.change.after == pytest.approx(1.5 * level, rel=0.05)
    # Usual is what it is since then.
    assert verdict.baseline.median == pytest.approx(1.5 * level, rel=0.05)
    assert 38 <= verdict.baseline.minutes <= 42
    assert verdict.baseline.spread == pytest.approx(0.03 * 1.5 * level, rel=0.6)


def test_of_two_changes_the_last_is_told() -> None:
    values = np.concatenate([noisy(10_000, 50, 1), noisy(20_000, 50, 2), noisy(9_000, 50, 3)])
    verdict = judge(series(values))
    assert verdict is not None
    assert verdict.change is not None
    assert verdict.change.before == pytest.approx(20_000, rel=0.05)
    assert verdict.change.after == pytest.approx(9_000, rel=0.05)


def test_noise_and_single_outliers_are_no_change() -> None:
    false = 0
    for seed in range(40):
        values = noisy(10_000, 240, seed, 0.1)
        values[[30, 100, 170]] *= 8
        verdict = judge(series(values))
        assert verdict is not None
        false += verdict.change is not None
    assert false <= 1


def test_a_small_shift_within_the_noise_is_none_and_loss_counts_from_a_hundredth() -> None:
    quiet = judge(series(np.concatenate([noisy(10_000, 60, 1), noisy(10_500, 60, 2)])))
    assert quiet is not None
    assert quiet.change is None
    slight = judge(series(np.array([0.0] * 60 + [0.004] * 60), "ratio"))
    assert slight is not None
    assert slight.change is None
    lossy = judge(series(np.array([0.0] * 60 + [0.05] * 60), "ratio"))
    assert lossy is not None
    assert lossy.change is not None
    assert (lossy.change.before, lossy.change.after) == (0.0, 0.05)


def test_too_few_minutes_say_nothing_and_a_constant_path_has_a_baseline() -> None:
    assert judge(series(np.full(ENOUGH_MINUTES - 1, 5.0))) is None
    verdict = judge(series(np.full(ENOUGH_MINUTES, 5.0)))
    assert verdict is not None
    assert (verdict.baseline.median, verdict.baseline.spread, verdict.change) == (5.0, 0.0, None)
