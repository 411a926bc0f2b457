"""The program of optimal time sharing, against brute force and hand-solved cases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from pdi_gym import TimeSharingPolicy
from pdi_gym.agents import make_agent
from pdi_gym.evaluation import evaluate
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower
from pdi_gym.time_sharing.reweighting import optimal_mix, pool_values
from tests.cases import Sensors, Unbounded


def brute_force(f0: np.ndarray, f: np.ndarray) -> float:
    """Least wᵀf0 over all vertices of {w ≥ 0, Σ w = 1, fᵀw ≤ 0}: every basis is tried."""
    n, m = f.shape
    rows = np.hstack([np.vstack([np.ones(n), f.T]), np.vstack([np.zeros(m), np.eye(m)])])
    right = np.append(1.0, np.zeros(m))
    best = np.inf
    for basis in map(list, itertools.combinations(range(n + m), m + 1)):
        if abs(np.linalg.det(rows[:, basis])) > 1e-12:
            value = np.linalg.solve(rows[:, basis], right)
            if (value >= -1e-12).all():
                weights = np.zeros(n + m)
                weights[basis] = value
                best = min(best, float(weights[:n] @ f0))
    return best


@pytest.mark.parametrize("seed", range(8))
def test_equals_the_best_vertex(seed: int) -> None:
    rng = np.random.default_rng(seed)
    f0, f = rng.normal(size=7), rng.normal(size=(7, 3)) - 0.4
    best = brute_force(f0, f)
    assert np.isfinite(best)
    mix = optimal_mix(f0, f)
    np.testing.assert_allclose(mix.value, best, rtol=1e-7, atol=1e-9)
    assert mix.met and (mix.weights @ f <= 1e-9).all() and (mix.weights > 0).sum() <= 4


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
def test_multipliers_satisfy_the_optimality_conditions(scale: float) -> None:
    rng = np.random.default_rng(5)
    f0, f = 1e2 * rng.normal(size=40), scale * (rng.normal(size=(40, 6)) - 0.2)
    margin = 0.1 * scale
    mix = optimal_mix(f0, f, margin)
    reduced = f0 + (f + margin) @ mix.duals - mix.level
    assert (mix.duals >= 0).all() and mix.duals.max() > 0
    assert reduced.min() > -1e-5  # no decision of the pool improves the mix
    assert np.abs(reduced[mix.weights > 0]).max() < 1e-5  # those with time cost the level
    assert np.abs(mix.duals * (mix.residuals + margin)).max() < 1e-5  # a slack constraint costs nothing
    np.testing.assert_allclose(mix.level, mix.value, rtol=1e-6)  # strong duality


def test_two_decisions_by_hand() -> None:
    """f = (−1, 3), f0 = (2, 0): share w of the second with 3w − (1 − w) = −margin; λ = slope = ½."""
    mix = optimal_mix(np.array([2.0, 0.0]), np.array([[-1.0], [3.0]]), margin=0.2)
    np.testing.assert_allclose(mix.weights, [0.8, 0.2])
    np.testing.assert_allclose([mix.value, mix.residuals[0], mix.duals[0]], [1.6, -0.2, 0.5])


def test_without_a_feasible_mix_violation_comes_first() -> None:
    """f of three decisions (1, 3), (3, 1), (2.5, 2.5): the first two total 4, cheapest alone or mixed."""
    f = np.array([[1.0, 3], [3, 1], [2.5, 2.5]])
    mix = optimal_mix(np.array([5.0, 1, -100]), f)
    assert not mix.met
    np.testing.assert_allclose(mix.excess, 4.0, rtol=1e-5)
    np.testing.assert_allclose(mix.weights, [0, 1, 0], atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_budgets_a_thousand_times_exceeded_are_still_solved(seed: int) -> None:
    """One-asset portfolios over 200 budgets of 1e-4: the least excess is that of the least risky ones."""
    rng = np.random.default_rng(seed)
    risk = rng.uniform(0.05, 2.0, 200)
    mix = optimal_mix(-rng.uniform(0.1, 0.5, 200), np.diag(risk) - 1e-4)
    order = np.argsort(risk)
    # Filling budgets is free; the rest of the time costs the smallest risk, least where it is one asset.
    free = 1e-4 / risk
    rest = 1 - free.sum()
    assert not mix.met
    np.testing.assert_allclose(mix.excess, rest * risk[order[0]], rtol=1e-4)


def test_a_penalty_caps_the_multipliers() -> None:
    f = np.array([[1.0, 3], [3, 1], [2.5, 2.5]])
    mix = optimal_mix(np.array([5.0, 1, -100]), f, penalty=7.0)
    # The third costs −100 + 7·5, less than 1 + 7·4: here the objective wins.
    np.testing.assert_allclose(mix.weights, [0, 0, 1], atol=1e-9)
    np.testing.assert_allclose(mix.duals, 7.0, rtol=1e-6)


def test_values_are_averages_over_draws_of_their_own() -> None:
    """E f = 1 − Σ x for the sensors, variance |x|²/draws."""
    x = np.array([[0.2, 0.3, 0.4], [1.0, -0.5, 0.0]], dtype=np.float32)
    f0, f = pool_values(Sensors(), x, 4000, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(f0, (x**2).sum(1), rtol=1e-6)
    error = np.abs(f[:, 0] - (1 - x.sum(1))) / np.sqrt((x**2).sum(1) / 4000)
    assert (error < 4).all() and (error > 1e-4).all()
    with pytest.raises(ValueError, match="draws = 5 need a generator"):
        pool_values(Sensors(), x, 5)


def test_draws_and_quadrature_agree_on_a_network() -> None:
    problem = WirelessPower.instance(0, "validation", n_users=12)
    x = problem.p_max * np.random.default_rng(0).random((3, 12)).astype(np.float32)
    exact = pool_values(problem, x, 0)[1]
    drawn = pool_values(problem, x, 4000, torch.Generator().manual_seed(1))[1]
    assert np.abs(drawn - exact).max() < 4 * 2.5 / np.sqrt(4000)  # slot rates deviate by at most 2.5
    assert not np.array_equal(drawn, exact)


@pytest.mark.parametrize("name", ["pdi-mc", "pdl", "random"])
def test_never_worse_at_equal_feasibility(name: str) -> None:
    """A loose problem, on which uniform shares are feasible already."""
    base = MixtureOfGaussians.toy()
    problem = MixtureOfGaussians(base.means, base.covariances, base.weights, base.A, base.b - 8, base.bound)
    policy = make_agent(name).sample(problem, n=60)
    before, after = evaluate(policy, problem), evaluate(policy.reweight(problem), problem)
    assert before["feasible"] == after["feasible"] == 1
    assert after["objective"] <= before["objective"] + 1e-6


def test_any_pool_becomes_feasible_when_it_can() -> None:
    problem = Portfolio.instance(0, n_assets=20, split="validation")
    policy = make_agent("random").sample(problem, n=400)
    mixed = policy.reweight(problem)
    assert evaluate(policy, problem)["feasible"] < 1
    assert evaluate(mixed, problem)["feasible"] == 1 and mixed.info["reweight"]["feasible"]
    assert np.array_equal(mixed.actions, policy.actions)


def test_a_margin_survives_evaluation_on_other_slots() -> None:
    policy = TimeSharingPolicy(np.array([[0.0, 0, 0], [1, 1, 1], [0.3, 0.3, 0.3]], dtype=np.float32))
    mixed = policy.reweight(Sensors(), margin=0.2, draws=4000)
    residual = 1 - mixed.weights @ policy.actions.sum(1)
    assert abs(residual + 0.2) < 4 * np.sqrt(3 / 4000)  # the margin binds, up to the draws' noise
    assert evaluate(mixed, Sensors(), horizon=500)["feasible"] == 1


def test_a_bound_on_the_atoms_is_kept_and_reported() -> None:
    problem = MixtureOfGaussians.instance(dim=5, n_modes=3, n_constraints=4, seed=3)
    policy = make_agent("pdi-mc", n_candidates=4).sample(problem, n=60)
    full, two, one = (policy.reweight(problem, max_atoms=k) for k in (None, 2, 1))
    assert full.info["reweight"]["support"] > 2 and full.info["reweight"]["feasible"]
    assert (two.weights > 0).sum() == two.info["reweight"]["support"] == 2
    assert one.weights.max() == 1 and not one.info["reweight"]["feasible"]


def test_infeasible_pools_are_reported() -> None:
    policy = TimeSharingPolicy(np.array([[0.2, 0.0], [0.5, 9.0]]))  # x_0 ≥ 1 is out of reach
    mixed = policy.reweight(Unbounded())
    np.testing.assert_allclose(mixed.weights, [0, 1], atol=1e-5)
    assert not mixed.info["reweight"]["feasible"]
    np.testing.assert_allclose(mixed.info["reweight"]["excess"], 0.5, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": -1}, "margin must be a finite number ≥ 0, got -1"),
        ({"draws": -1}, "draws must be a whole number ≥ 0, got -1"),
        ({"max_atoms": 0}, "max_atoms must be a whole number ≥ 1, got 0"),
    ],
)
def test_bad_input(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TimeSharingPolicy(np.zeros((2, 3))).reweight(Sensors(), **options)  # type: ignore[arg-type]
