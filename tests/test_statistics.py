from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from pdi_gym.report.statistics import best, bootstrap, paired, pareto


def test_bootstrap_of_three_values_matches_all_27_resamples() -> None:
    values = np.array([0.0, 1.0, 5.0])
    means = np.array([np.mean(s) for s in itertools.product(values, repeat=3)])
    interval = bootstrap(values, level=0.8, resamples=20_000)
    assert interval is not None and interval.mean == 2.0
    low, high = np.quantile(means, [0.1, 0.9])
    assert interval.low == pytest.approx(low) and interval.high == pytest.approx(high)


def test_bootstrap_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for seed in range(300):
        interval = bootstrap(rng.exponential(2.0, size=40), level=0.9, resamples=500, seed=seed)
        assert interval is not None
        hits += interval.low <= 2.0 <= interval.high
    # The percentile interval of a skewed law covers a little less than its level: .87 here.
    assert stats.binomtest(hits, 300, 0.87).pvalue > 1e-3


def test_bootstrap_needs_two_values_and_finite_ones() -> None:
    assert bootstrap(np.array([1.0])) is None
    with pytest.raises(ValueError, match="finite"):
        bootstrap(np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="level must be in"):
        bootstrap(np.array([1.0, 2.0]), level=1.0)


def test_paired_differences_cancel_what_instances_share() -> None:
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 100, size=20)
    noise = rng.normal(0, 0.1, size=20)
    own = {i: hard[i] + 1 + noise[i] for i in range(20)}
    result = paired(own, dict(enumerate(hard)), direction=-1)
    assert result.mean == pytest.approx(1 + noise.mean())
    assert (result.better, result.worse, result.n) == (0, 20, 20)
    assert result.interval is not None and 0.9 < result.interval.low < result.interval.high < 1.1
    assert result.interval.excludes_zero


def test_paired_uses_common_instances_only() -> None:
    result = paired({0: 1.0, 1: 2.0, 7: 100.0}, {0: 0.0, 1: 2.0}, direction=1)
    assert (result.mean, result.better, result.worse, result.n) == (0.5, 1, 0, 2)
    with pytest.raises(ValueError, match="in common"):
        paired({0: 1.0}, {1: 1.0})


def test_best_marks_ties_and_knows_the_direction() -> None:
    values = {"a": 1.0, "b": 1.00000001, "c": 0.9}
    assert best(values, 1) == {"a", "b"}
    assert best(values, -1) == {"c"}
    assert best(values, 0) == set()
    assert best({"a": -2.0, "b": -1.0}, -1) == {"a"}


def test_pareto_front_against_brute_force() -> None:
    rng = np.random.default_rng(3)
    points = {str(i): (float(a), float(b)) for i, (a, b) in enumerate(rng.integers(0, 6, size=(30, 2)))}
    front = pareto(points)
    for name, (x, y) in points.items():
        beaten = any((a < x and b <= y) or (a <= x and b < y) for a, b in points.values())
        assert (name not in front) == beaten
    assert [points[n] for n in front] == sorted(points[n] for n in front)


def test_pareto_leaves_out_what_is_not_finite() -> None:
    assert pareto({"a": (0.0, 1.0), "b": (float("nan"), 0.0), "c": (0.0, float("inf"))}) == ["a"]
