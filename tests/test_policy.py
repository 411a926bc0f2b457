from __future__ import annotations

import numpy as np
import pytest

from pdi_gym import TimeSharingPolicy

ACTIONS = np.eye(3)


def test_iid_schedule_follows_the_weights() -> None:
    policy = TimeSharingPolicy(ACTIONS, np.array([0.5, 0.3, 0.2]))
    slots = policy.schedule(20_000, np.random.default_rng(0))
    share = np.bincount(slots, minlength=3) / 20_000
    error = np.sqrt(policy.weights * (1 - policy.weights) / 20_000)
    assert (np.abs(share - policy.weights) < 4 * error).all()


def test_stratified_schedule_is_within_one_slot() -> None:
    policy = TimeSharingPolicy(ACTIONS, np.array([0.5, 0.3, 0.2]))
    for seed in range(20):
        slots = policy.schedule(37, np.random.default_rng(seed), "stratified")
        counts = np.bincount(slots, minlength=3)
        assert counts.sum() == 37 and (np.abs(counts - 37 * policy.weights) < 1).all()


def test_weights_default_to_uniform_and_are_normalised() -> None:
    np.testing.assert_allclose(TimeSharingPolicy(ACTIONS).weights, 1 / 3)
    np.testing.assert_allclose(TimeSharingPolicy(ACTIONS, np.array([2, 1, 1])).weights, [0.5, 0.25, 0.25])


def test_an_atom_of_weight_zero_never_plays() -> None:
    policy = TimeSharingPolicy(ACTIONS, np.array([0.0, 1.0, 0.0]))
    assert set(policy.schedule(1000, np.random.default_rng(0))) == {1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(3),), r"actions must have shape \(n ≥ 1, d\), got \(3,\)"),
        ((np.zeros((0, 3)),), "actions must have shape"),
        ((np.array([[0, 1], [2, np.nan]]),), "actions must be finite, got nan in row 1, column 1"),
        ((ACTIONS, np.ones(2)), "weights must be 3 numbers"),
        ((ACTIONS, np.array([1, 1, -1.0])), "weights must be 3 numbers ≥ 0"),
        ((ACTIONS, np.zeros(3)), "positive sum"),
    ],
)
def test_bad_input(arguments: tuple[np.ndarray, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TimeSharingPolicy(*arguments)
