"""Inputs are copied on entry: arrays that are changed afterwards change nothing."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pdi_gym import Problem, TimeSharingPolicy
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower

RNG = np.random.default_rng(0)
N = 4
FACTOR = RNG.normal(size=(N, N))
RETURNS = 0.01 * RNG.normal(size=(30, N))
FIELDS = {
    "mu": RETURNS.mean(0),
    "sigma": np.cov(RETURNS.T),
    "budgets": np.full(N, 1e-4),
    "scenarios": RETURNS,
    "sectors": np.zeros(N, dtype=np.int64),
}
ENDS = (RNG.random((N, 2)), RNG.random((N, 2)))


def located(gains: Any, transmitters: Any, receivers: Any) -> Problem:
    return WirelessPower(gains, 0.1, 1e-3, 1.0, (transmitters, receivers))


def fields(**arrays: Any) -> Problem:
    tensors = {name: torch.as_tensor(value) for name, value in arrays.items()}
    return Portfolio(**tensors, names=tuple("abcd"))


MAKERS: dict[str, tuple[Callable[..., Any], dict[str, np.ndarray]]] = {
    "gains": (
        lambda gains: WirelessPower.from_gains(gains, r_min=0.1, noise=1e-3, p_max=1.0),
        {"gains": 0.1 + RNG.random((N, N))},
    ),
    "positions": (
        located,
        {"gains": 0.1 + RNG.random((N, N)), "transmitters": ENDS[0], "receivers": ENDS[1]},
    ),
    "returns": (
        lambda returns, budgets, sectors: Portfolio.from_returns(returns, budgets, sectors=sectors),
        {"returns": RETURNS, "budgets": np.full(N, 1e-4), "sectors": np.arange(N) // 2},
    ),
    "moments": (
        Portfolio.from_moments,
        {"mu": RETURNS.mean(0), "sigma": np.cov(RETURNS.T), "budgets": np.full(N, 1e-4)},
    ),
    "fields": (fields, FIELDS),
    "mixture": (
        MixtureOfGaussians,
        {
            "means": RNG.normal(size=(2, N)),
            "covariances": np.stack([FACTOR @ FACTOR.T + np.eye(N)] * 2),
            "weights": np.array([0.4, 0.6]),
            "A": RNG.normal(size=(3, N)),
            "b": RNG.normal(size=3),
        },
    ),
    "diagonals": (
        MixtureOfGaussians,
        {
            "means": RNG.normal(size=(2, N)),
            "covariances": RNG.uniform(1, 2, (2, N)),
            "weights": np.array([1.0, 1.0]),
            "A": RNG.normal(size=(3, N)),
            "b": RNG.normal(size=3),
        },
    ),
    "policy": (
        TimeSharingPolicy,
        {
            "actions": RNG.random((5, N)),
            "weights": RNG.random(5),
            "duals": RNG.random((2, 3)),
            "mean_duals": RNG.random((2, 3)),
        },
    ),
}


def contents(made: Any) -> list[np.ndarray]:
    """Every array that the object holds, and what it computes of decisions."""
    values: Any = [getattr(made, f.name) for f in dataclasses.fields(made)]
    values = [v for v in values if isinstance(v, np.ndarray | torch.Tensor)]
    if isinstance(made, WirelessPower) and made.positions is not None:
        values += made.positions
    if isinstance(made, Problem):
        x = made.decode(made.project(torch.linspace(-0.4, 0.4, 3 * N).view(3, N)))
        values += [made.objective(x), made.constraints(x)]
        xi = made.draw(2, torch.Generator().manual_seed(0))
        values += [] if xi is None else [xi, *made.values(x, xi)]
    return [np.asarray(v).copy() for v in values]


@pytest.mark.parametrize("kind", ["float64", "float32", "float64 tensor", "float32 tensor"])
@pytest.mark.parametrize("case", MAKERS)
def test_arrays_changed_afterwards_change_nothing(case: str, kind: str) -> None:
    make, arrays = MAKERS[case]
    given: dict[str, Any] = {
        k: v.copy() if v.dtype == np.int64 else v.astype(kind.split()[0]) for k, v in arrays.items()
    }
    if kind.endswith("tensor"):
        given = {k: torch.from_numpy(v) for k, v in given.items()}
    made = make(**given)
    before = contents(made)
    for array in given.values():
        array[...] = 3 * array + 1
    after = contents(made)
    assert len(before) == len(after) >= 2
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_two_policies_of_the_same_arrays_share_nothing() -> None:
    make, arrays = MAKERS["policy"]
    pair = [make(**arrays), make(**arrays)]
    pair.append(TimeSharingPolicy(pair[0].actions, pair[0].weights, pair[0].duals, pair[0].mean_duals))
    for one, other in itertools.combinations(pair, 2):
        for name in arrays:
            assert not np.shares_memory(getattr(one, name), getattr(other, name))
