"""The library of inference: features, methods, calibration, choice of method and of pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chart.inference import choice, landmarks
from chart.inference.composition import Network, Segment, compose
from chart.inference.conformal import calibrate, shift_weights
from chart.inference.estimator import Inference, Method, held_out, methods
from chart.inference.factorisation import Factorisation
from chart.inference.features import symmetric_features
from chart.inference.landmarks import LandmarkBounds
from chart.inference.observations import Completion, Flags, Floats, Observations, Routers, observe
from chart.inference.signature import Signature


def world(count: int, seed: int) -> Floats:
    """Round-trip times of places on a plain with access lines and some detours."""
    random = np.random.default_rng(seed)
    places = random.uniform(0, 100, (max(3, count // 4), 2))[random.integers(0, max(3, count // 4), count)]
    places = places + random.normal(0, 1, places.shape)
    access = random.exponential(2, count)
    distances: Floats = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    matrix = distances + access[:, None] + access[None] + 0.5
    odd = np.triu(random.lognormal(0, 0.05, matrix.shape), 1)
    matrix *= odd + odd.T
    return matrix


def names(count: int) -> list[str]:
    return [f"n{number:03}" for number in range(count)]


def partly(count: int, share: float, seed: int, *, symmetric: bool = True) -> tuple[Observations, Observations]:
    """(everything, what is known after measuring a share as inference asks)."""
    truth = observe(names(count), world(count, seed), symmetric=symmetric, floor=0.1)
    rows, columns = truth.pairs()
    known = truth.without(rows, columns)
    budget = int(share * len(rows))
    spent = 0
    while spent < budget:
        asked = choice.next_pairs(known, np.full_like(truth.values, np.nan), budget - spent, budget=budget, seed=seed)
        assert asked
        for one in asked:
            known.values[one.source, one.destination] = truth.values[one.source, one.destination]
            if symmetric:
                known.values[one.destination, one.source] = truth.values[one.destination, one.source]
        spent += len(asked)
    return truth, known


def median_error(truth: Observations, values: Floats, known: Observations) -> float:
    unseen = np.isfinite(truth.values) & ~known.measured
    return float(np.median(np.abs(values[unseen] / truth.values[unseen] - 1)))


def test_symmetric_observations_average_both_directions() -> None:
    values = np.array([[0, 10, np.nan], [20, 0, 7], [np.nan, np.nan, 0]])
    seen = observe(["a", "b", "c"], values, symmetric=True, floor=0.1)
    assert seen.values[0, 1] == seen.values[1, 0] == 15
    assert seen.values[2, 1] == 7
    assert np.isnan(seen.values[0, 2])
    assert np.isnan(np.diag(seen.values)).all()


def test_negative_values_and_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        observe(["a", "b"], np.array([[0, -1.0], [1, 0]]), symmetric=False, floor=1)
    with pytest.raises(ValueError, match="2 nodes"):
        observe(["a", "b"], np.zeros((3, 3)), symmetric=False, floor=1)


def test_no_feature_of_a_pair_uses_its_own_value() -> None:
    _, known = partly(24, 0.5, 3)
    rows, columns = known.pairs()
    about, base = symmetric_features(known)
    marks = landmarks.landmarks_of(known)
    measured = np.flatnonzero(known.measured[rows, columns])
    for index in measured[::7]:
        other = observe(known.nodes, known.values, symmetric=True, floor=0.1)
        other.values[rows[index], columns[index]] *= 3
        other.values[columns[index], rows[index]] *= 3
        changed, changed_base = symmetric_features(other)
        assert (landmarks.landmarks_of(other) == marks).all()
        # Signatures, milestones and base: exactly the same; unlikeness and likes too, unless the pair is a landmark's
        # entry of the signature.
        touches = rows[index] in marks or columns[index] in marks
        milestones = about.shape[1] - 7
        own = milestones - 17 - 1
        np.testing.assert_allclose(changed[index, :own], about[index, :own])
        np.testing.assert_allclose(changed[index, milestones:], about[index, milestones:])
        assert changed_base[index] == pytest.approx(base[index])
        if not touches:
            np.testing.assert_allclose(changed[index], about[index], atol=1e-9)


def test_landmark_bounds_hold_on_a_metric() -> None:
    truth, known = partly(30, 0.3, 1)
    completion = LandmarkBounds().complete(known, 0)
    assert median_error(truth, np.exp(completion.logs), known) < 0.25


def test_factorisation_finds_a_low_rank() -> None:
    random = np.random.default_rng(2)
    truth = random.uniform(1, 3, (40, 2)) @ random.uniform(1, 3, (2, 40))
    whole = observe(names(40), truth, symmetric=False, floor=0.01)
    rows, columns = whole.pairs()
    hide = random.random(len(rows)) < 0.6
    known = whole.without(rows[hide], columns[hide])
    completion = Factorisation().complete(known, 0)
    assert median_error(whole, np.exp(completion.logs), known) < 0.05


@pytest.mark.parametrize("method", [Factorisation(), Signature()], ids=lambda method: method.name)
def test_how_groups_that_nothing_connects_lie_to_each_other_is_not_guessed(method: Method) -> None:
    product = np.outer(np.arange(1.0, 25), np.arange(1.0, 25))
    product[:12, 12:] = product[12:, :12] = np.nan
    apart = observe(names(24), product, symmetric=False, floor=1e-3)
    logs = method.complete(apart, 0).logs
    assert np.isfinite(logs[:12, :12][~np.eye(12, dtype=bool)]).all()
    assert np.isnan(logs[:12, 12:]).all()
    assert np.isnan(logs[12:, :12]).all()
    # One measured pair is enough; so is another metric, or a router that both saw.
    product[3, 20] = 80
    assert observe(names(24), product, symmetric=False, floor=1e-3).connected().all()
    aid = np.full_like(product, np.nan)
    aid[20, 3] = 1
    assert replace(apart, aid=aid).connected().all()
    seen = np.full((24, 2), np.nan)
    seen[3, 1] = seen[20, 1] = 5
    assert replace(apart, routers=Routers(seen, np.array([-1, -1]))).connected().all()


def line_network() -> Network:
    ends = [("a", "b", 100e6, 1000), ("b", "c", 10e6, 20_000), ("c", "d", 100e6, 1000)]
    both = [*ends, *((far, near, rate, delay) for near, far, rate, delay in ends)]
    return Network.of(Segment(near, far, rate, delay) for near, far, rate, delay in both)


def test_composition_adds_delays_and_takes_the_bottleneck() -> None:
    nodes = ["a", "b", "c", "d"]
    values = np.full((4, 4), np.nan)
    values[1, 2] = 45_000.0
    rtt = compose("rtt_us", nodes, values, line_network())
    assert rtt is not None
    assert rtt[0, 3] == 2000 + 45_000 + 2000
    assert rtt[3, 0] == 2000 + 40_000 + 2000
    assert rtt[1, 2] == 40_000, "not its own measurement"
    values[1, 2] = 4e6
    rate = compose("available_bandwidth_bps", nodes, values, line_network())
    assert rate is not None
    assert rate[0, 3] == 4e6
    assert rate[3, 0] == 10e6
    assert compose("loss_ratio", nodes, values, line_network())[0, 3] != rate[0, 3]  # type: ignore[index]
    assert compose("hops", nodes, values, line_network()) is None


def test_few_nodes_are_composed_and_measured_ones_passed_through() -> None:
    nodes = ["a", "b", "c", "d"]
    values = np.full((4, 4), np.nan)
    for near, far, rtt_us in ((0, 1, 2100.0), (1, 2, 40_100.0), (2, 3, 2050.0)):
        values[near, far] = values[far, near] = rtt_us
    composed = compose("rtt_us", nodes, values, line_network())
    inference = Inference()
    inference.fit(observe(nodes, values, symmetric=True, floor=100, composed=composed))
    said = inference.predict()
    assert said.method == "composition"
    assert said.values[0, 3] == pytest.approx(2100 + 40_100 + 2050)
    assert said.values[0, 1] == 2100
    assert said.measured[0, 1]
    assert not said.measured[0, 3]


@settings(deadline=None, max_examples=40)
@given(st.integers(min_value=0, max_value=400), st.integers(min_value=0, max_value=2**31))
def test_calibrated_intervals_are_ordered(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    truth, said, spread = random.normal(size=count), random.normal(size=count), random.uniform(0.1, 2, count)
    calibration = calibrate(truth, said, spread)
    assert calibration.held_out == count
    if count >= 40:
        # Shifted errors may move both ends to one side of the estimate; the order stays.
        low, high = calibration.interval(said, spread)
        assert (low <= high).all()
        assert np.mean((low <= truth) & (truth <= high)) >= 0.88


def test_conformal_coverage_of_new_pairs() -> None:
    random = np.random.default_rng(4)
    covered = []
    for _ in range(50):
        spread = random.uniform(0.1, 2, 1500)
        truth = random.standard_t(3, 1500) * spread
        calibration = calibrate(truth[:500], np.zeros(500), spread[:500])
        low, high = calibration.interval(np.zeros(1000), spread[500:])
        covered.append(np.mean((low <= truth[500:]) & (truth[500:] <= high)))
    assert abs(float(np.mean(covered)) - 0.9) < 0.015


def test_intervals_hold_for_small_and_for_large_values_alike() -> None:
    random = np.random.default_rng(8)
    # Errors are four times what the spread says for small values and a quarter of it for large ones.
    said = random.uniform(0, 4, 3000)
    truth = said + random.normal(0, 0.2, 3000) * np.exp(np.log(16) * (0.5 - said / 4))
    spread = np.full(3000, 0.2)
    calibration = calibrate(truth[:1000], said[:1000], spread[:1000])
    low, high = calibration.interval(said[1000:], spread[1000:])
    inside = (low <= truth[1000:]) & (truth[1000:] <= high)
    for part in (said[1000:] < 1, (said[1000:] > 1) & (said[1000:] < 3), said[1000:] > 3):
        assert abs(float(inside[part].mean()) - 0.9) < 0.08
    # Beyond what was held out the trend stays as it is at its end.
    far = np.array([4.0, 40.0])
    low, high = calibration.interval(far, np.full(2, 0.2))
    assert (high - low)[0] == pytest.approx((high - low)[1])


@pytest.mark.parametrize("seed", [0, 1])
def test_estimates_of_symmetric_metrics(seed: int) -> None:
    truth, known = partly(60, 0.25, seed)
    inference = Inference(seed=seed, known_methods=[m for m in methods() if m.name != "signature"])
    inference.fit(known)
    said = inference.predict()
    off = ~np.eye(60, dtype=bool)
    assert np.isfinite(said.values[off]).all()
    np.testing.assert_allclose(said.values, said.values.T)
    assert (said.low[off] <= said.values[off]).all()
    assert (said.values[off] <= said.high[off]).all()
    np.testing.assert_array_equal(said.values[known.measured], known.values[known.measured])
    inside = (said.low <= truth.values) & (truth.values <= said.high) & ~known.measured & off
    assert inside.sum() / (~known.measured & off).sum() > 0.8


@pytest.mark.parametrize(
    ("method", "tolerance", "starts"),
    # Factorisation starts from random vectors and ends where they lead: the median of several starts.
    [(Signature(), 0.2, 1), (LandmarkBounds(), 1e-6, 1), (Factorisation(), 0.5, 9)],
    ids=["signature", "landmark", "factorisation"],
)
def test_order_of_nodes_does_not_matter(method: Method, tolerance: float, starts: int) -> None:
    truth, known = partly(50, 0.25, 5)
    order = np.random.default_rng(9).permutation(50)
    errors = []
    for some in (np.arange(50), order):
        turned = observe(names(50), known.values[np.ix_(some, some)], symmetric=True, floor=0.1)
        whole = observe(names(50), truth.values[np.ix_(some, some)], symmetric=True, floor=0.1)
        found = [median_error(whole, np.exp(method.complete(turned, seed).logs), turned) for seed in range(starts)]
        errors.append(float(np.median(found)))
    assert errors[1] == pytest.approx(errors[0], rel=tolerance)


def part_of_a_product() -> Observations:
    """Three tenths of the pairs of 40 nodes, whose values have rank one."""
    random = np.random.default_rng(6)
    product = np.outer(random.lognormal(0, 1, 40), random.lognormal(0, 1, 40))
    whole = observe(names(40), product, symmetric=False, floor=1e-3)
    rows, columns = whole.pairs()
    hide = random.random(len(rows)) < 0.7
    return whole.without(rows[hide], columns[hide])


class Constant:
    """Says the same of all pairs."""

    name = "constant"

    def applies(self, observations: Observations) -> bool:
        return True

    def complete(self, observations: Observations, seed: int) -> Completion:
        return Completion(np.zeros_like(observations.values), np.ones_like(observations.values))


def test_the_method_is_chosen_by_held_out_pairs() -> None:
    inference = Inference(known_methods=[Constant(), Factorisation()])
    inference.fit(part_of_a_product())
    assert inference.method == "factorisation"
    assert [trial.method for trial in inference.trials] == ["factorisation", "constant"]
    assert inference.trials[0].median_error < inference.trials[1].median_error


class Half:
    """Right about what it tells, and tells nothing of the last nodes."""

    name = "half"

    def applies(self, observations: Observations) -> bool:
        return True

    def complete(self, observations: Observations, seed: int) -> Completion:
        said = Factorisation().complete(observations, seed)
        logs = said.logs.copy()
        logs[:, 30:], logs[30:, :] = np.nan, np.nan
        return Completion(logs, said.spread)


def test_what_the_chosen_method_cannot_tell_the_next_best_says() -> None:
    inference = Inference(known_methods=[Half(), Constant()])
    inference.fit(part_of_a_product())
    said = inference.predict()
    assert said.method == inference.method == "half"
    assert said.methods == ("half", "constant")
    pairs = ~np.eye(40, dtype=bool)
    assert np.isfinite(said.values[pairs]).all()
    assert (said.low[pairs] <= said.values[pairs]).all()
    assert (said.values[pairs] <= said.high[pairs]).all()
    told = np.zeros_like(pairs)
    told[:30, :30] = True
    inferred = pairs & ~said.measured
    assert (said.by[inferred & told] == 0).all()
    assert (said.by[inferred & ~told] == 1).all()
    assert said.values[inferred & ~told] == pytest.approx(1), "what Constant says"


def test_held_out_pairs_are_ordinary_ones() -> None:
    _, known = partly(60, 0.3, 7)
    degree = known.measured.sum(0)
    full = np.flatnonzero(degree >= 0.8 * 59)
    for rows, columns in held_out(known, 0):
        assert len(rows)
        assert not np.isin(rows, full).any()
        assert not np.isin(columns, full).any()


def test_next_pairs_make_landmarks_first_and_never_ask_twice() -> None:
    truth = observe(names(40), world(40, 8), symmetric=True, floor=0.1)
    rows, columns = truth.pairs()
    known = truth.without(rows, columns)
    nothing = np.full((40, 40), np.nan)
    first = choice.next_pairs(known, nothing, 200, budget=200, seed=0)
    assert {one.reason for one in first} == {"landmark"}
    assert len({one.source for one in first}) == 1
    assert len(first) == 39
    avoid = np.zeros((40, 40), dtype=bool)
    for one in first:
        avoid[one.source, one.destination] = True
    again = choice.next_pairs(known, nothing, 200, budget=200, seed=0, avoid=avoid)
    assert again
    asked = {frozenset((one.source, one.destination)) for one in first}
    assert not asked & {frozenset((one.source, one.destination)) for one in again}


def test_the_widest_interval_is_asked_for() -> None:
    _, known = partly(30, 0.5, 2)
    width = np.full((30, 30), 0.1)
    rows, columns = np.nonzero(np.triu(~known.measured, 1))
    width[rows[3], columns[3]] = width[columns[3], rows[3]] = 2.0
    asked = choice.next_pairs(known, width, 8, budget=217, seed=1)
    assert any((one.source, one.destination) == (rows[3], columns[3]) for one in asked)
    assert "uncertain" in {one.reason for one in asked}


def test_directed_pairs_spread_over_senders_and_receivers() -> None:
    whole = observe(names(20), world(20, 1), symmetric=False, floor=0.1)
    rows, columns = whole.pairs()
    asked = choice.next_pairs(whole.without(rows, columns), np.full((20, 20), np.nan), 60, budget=None, seed=0)
    assert len({(one.source, one.destination) for one in asked}) == 60
    for end in ("source", "destination"):
        counts = np.bincount([getattr(one, end) for one in asked], minlength=20)
        assert counts.max() - counts.min() <= 2


def test_near_pairs_are_asked_for_and_chance_pairs_stay_among_them() -> None:
    truth, known = partly(60, 0.2, 2)
    asked = choice.next_pairs(known, np.full((60, 60), np.nan), 60, budget=354, seed=1, widest=False)
    near = [truth.values[one.source, one.destination] for one in asked if one.reason == "near"]
    by_chance = [truth.values[one.source, one.destination] for one in asked if one.reason == "unknown"]
    assert len(near) >= 20
    assert len(by_chance) >= 10
    assert np.median(near) < 0.7 * np.median(by_chance)


def test_the_surely_nearest_are_not_asked_for() -> None:
    # Twins: two nodes at each of 20 places. Only their signatures are known.
    random = np.random.default_rng(5)
    places = np.repeat(random.uniform(0, 100, (20, 2)), 2, axis=0)
    matrix = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)) + random.uniform(0.1, 0.3, (40, 40))
    truth = observe(names(40), (matrix + matrix.T) / 2, symmetric=True, floor=0.1)
    rows, columns = truth.pairs()
    known = truth.without(rows, columns)
    for mark in (0, 9, 21, 33):
        known.values[mark] = truth.values[mark]
        known.values[:, mark] = truth.values[:, mark]
    asked = choice.next_pairs(known, np.full((40, 40), np.nan), 60, budget=148, seed=1, widest=False)
    near = [(one.source, one.destination) for one in asked if one.reason == "near"]
    assert len(near) >= 20
    assert not [pair for pair in near if pair[0] // 2 == pair[1] // 2]


def test_held_out_pairs_count_as_often_as_pairs_like_them_are_asked_for() -> None:
    random = np.random.default_rng(3)
    # Near pairs are half of what was held out and a tenth of what is asked for; their errors are five times as large.
    near = random.random(2000) < 0.5
    held_out_logs = np.where(near, 0.0, 3.0) + random.normal(0, 0.1, 2000)
    errors = random.normal(0, 1, 2000) * np.where(near, 0.5, 0.1)
    asked_near = random.random(20_000) < 0.1
    asked_logs = np.where(asked_near, 0.0, 3.0) + random.normal(0, 0.1, 20_000)
    weights = shift_weights(held_out_logs, asked_logs)
    assert weights.mean() == pytest.approx(1)
    assert weights[near].sum() / weights.sum() == pytest.approx(0.1, abs=0.03)
    calibration = calibrate(held_out_logs + errors, held_out_logs, np.ones(2000), weights)
    truth_errors = random.normal(0, 1, 20_000) * np.where(asked_near, 0.5, 0.1)
    low, high = calibration.interval(asked_logs, np.ones(20_000))
    inside = (low <= asked_logs + truth_errors) & (asked_logs + truth_errors <= high)
    assert 0.88 < inside.mean() < 0.92
    # Counted alike, the near ones would make all intervals wider than they need be.
    plain = calibrate(held_out_logs + errors, held_out_logs, np.ones(2000))
    assert plain.above > 1.05 * calibration.above


def test_pairs_that_were_chosen_do_not_speak_for_those_that_were_not() -> None:
    """Pairs measured because they are near are better known than others of the same value."""
    random = np.random.default_rng(6)

    def pairs(count: int, chosen_share: float) -> tuple[Floats, Flags, Floats]:
        chosen = random.random(count) < chosen_share
        return random.uniform(0, 3, count), chosen, random.normal(0, 1, count) * np.where(chosen, 0.1, 0.2)

    held_out, held_out_chosen, errors = pairs(5600, 0.75)
    asked, asked_chosen, truth_errors = pairs(20_000, 0.03)

    def coverage(weights: Floats) -> float:
        calibration = calibrate(held_out + errors, held_out, np.ones(5600), weights)
        low, high = calibration.interval(asked, np.ones(20_000))
        return float(np.mean((low <= asked + truth_errors) & (asked + truth_errors <= high)))

    weights = shift_weights(held_out, asked, held_out_chosen, asked_chosen)
    assert weights[held_out_chosen].sum() / weights.sum() < 0.1
    assert 0.87 < coverage(weights) < 0.93
    assert coverage(shift_weights(held_out, asked)) < 0.85
    # Too few of a kind: all speak for all.
    few = np.zeros(5600, dtype=bool)
    few[:20] = True
    np.testing.assert_array_equal(shift_weights(held_out, asked, few, asked_chosen), shift_weights(held_out, asked))
