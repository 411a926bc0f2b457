"""Column generation and reference solutions, against closed forms, exact bounds and known optima."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from pdi_gym import TimeSharingPolicy
from pdi_gym.agents import make_agent
from pdi_gym.descent import descend, dual_method, random_latents
from pdi_gym.duals import Ascent
from pdi_gym.evaluation import evaluate
from pdi_gym.problem import lagrangian
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower
from pdi_gym.time_sharing.column_generation import Pool, select
from pdi_gym.time_sharing.reference import certified_bound, reference_solution
from tests.cases import Sensors, Unbounded, gaussian


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_descent_finds_the_minimum_of_a_convex_lagrangian() -> None:
    """|x|² + λ(1 − x_0) is least at (λ/2, 0)."""
    z = descend(
        Unbounded(), torch.randn(5, 2), torch.tensor([[3.0]]), steps=400, rate=0.05, generator=generator()
    )
    torch.testing.assert_close(z, torch.tensor([1.5, 0.0]).expand(5, 2), atol=1e-3, rtol=0)


def test_dual_method_finds_the_multiplier() -> None:
    """min |x|² with x_0 ≥ 1 + margin: x = (1 + margin, 0), λ = 2 (1 + margin)."""
    start = random_latents(Unbounded(), 4, generator())
    path = dual_method(
        Unbounded(), start, n=10, steps=2000, rate=0.02, duals=Ascent(0.05, margin=0.5), generator=generator()
    )
    np.testing.assert_allclose(path.duals.numpy(), [3.0], rtol=0.02)
    np.testing.assert_allclose(path.z.mean(0).numpy(), [1.5, 0.0], atol=0.02)
    with pytest.raises(ValueError, match="steps must be ≥ 5 to give 10 decisions, got 3"):
        dual_method(Unbounded(), start[:2], n=10, steps=3, rate=0.1, duals=Ascent(0.1), generator=generator())


@pytest.mark.parametrize("first", ["dual", "pdi"])
@pytest.mark.parametrize("fresh_from", ["random", "diffusion"])
def test_one_gaussian_has_a_closed_form(first: str, fresh_from: str) -> None:
    """f0 is convex, so the optimum is one point: the mean moved by C a b/(aᵀCa), f0 + b²/(2 aᵀCa)."""
    problem = gaussian(10.0)
    a, c = problem.A[0].numpy(), np.array([0.5, 1, 2])
    x = c * a * 0.9 / (a * c * a).sum()
    best = 0.5 * (3 * np.log(2 * np.pi) + np.log(c).sum() + (x**2 / c).sum())
    steps = {"steps": 300} if first == "dual" else {}
    policy = make_agent("pdi-cg", first=first, fresh_from=fresh_from, **steps).sample(problem, n=20)
    metrics = evaluate(policy, problem)
    assert best - 1e-5 <= metrics["objective"] <= best + 2e-3
    assert metrics["mean_violation"] < 1e-6
    np.testing.assert_allclose(policy.weights @ policy.actions, x, atol=0.03)


def test_mixing_two_modes_beats_every_single_point() -> None:
    """Two far modes at ±4 on a line, mean ≥ 0: half each, although no point between has that density."""
    problem = MixtureOfGaussians([[-4.0], [4.0]], [[1.0], [1.0]], [0.9, 0.1], [[1.0]], [0.0])
    policy = make_agent("pdi-cg").sample(problem, n=20)
    heights = [0.5 * np.log(2 * np.pi) - np.log(w) for w in (0.9, 0.1)]
    # Moving both by s costs s²/2 and the shares (4 − s)/8, (4 + s)/8 change by the modes' difference.
    shift = min(
        0.5 * s**2 + heights[0] * (4 + s) / 8 + heights[1] * (4 - s) / 8 for s in np.linspace(0, 1, 1001)
    )
    metrics = evaluate(policy, problem)
    assert metrics["modes"] == 2 and metrics["mean_violation"] < 1e-6
    np.testing.assert_allclose(metrics["objective"], shift, atol=2e-3)


def test_the_rounds_are_reported_and_bracket_the_optimum() -> None:
    problem = MixtureOfGaussians.instance(dim=5, n_modes=3, n_constraints=4, seed=3)
    policy = make_agent("pdi-cg").sample(problem, n=50)
    rounds = policy.info["rounds"]
    assert (np.diff(rounds["value"][rounds["excess"] < 1e-9]) < 1e-9).all()  # a larger pool is no worse
    assert (np.diff(rounds["bound"]) >= 0).all()
    assert rounds["bound"][-1] <= policy.info["value"] + 1e-4
    assert policy.info["support"] <= 5 and policy.info["excess"] < 1e-9
    assert len(policy) == 50 and (policy.weights > 0).sum() == policy.info["support"]
    again = make_agent("pdi-cg").sample(problem, n=50)
    assert np.array_equal(policy.actions, again.actions) and np.array_equal(policy.weights, again.weights)


@pytest.mark.parametrize("n", [1, 3])
def test_a_policy_never_has_more_atoms_than_asked(n: int) -> None:
    policy = make_agent("pdi-cg", rounds=3, steps=50).sample(MixtureOfGaussians.toy(), n=n)
    assert len(policy) == n


def test_selection_fills_up_with_the_nearest_to_improve() -> None:
    pool = Pool(np.arange(4.0)[:, None], np.array([2.0, 0, 9, 3]), np.array([[-1.0], [3], [-1], [-1]]))
    kept, mix = select(pool, 3, 0.0)
    assert kept.actions[:, 0].tolist() == [0, 1, 3]  # the last costs 1 too much, the third 7
    np.testing.assert_allclose(mix.weights, [0.75, 0.25, 0])


def test_it_beats_primal_dual_inference_on_a_network() -> None:
    problem = WirelessPower.instance(0, "validation", n_users=20)
    pdi = evaluate(make_agent("pdi-mc").sample(problem), problem)
    cg = evaluate(make_agent("pdi-cg", steps=300, rounds=3).sample(problem), problem)
    assert cg["mean_rate"] > 1.03 * pdi["mean_rate"]
    assert cg["feasible"] == 1 and cg["mean_violation"] <= pdi["mean_violation"] / 5


def test_no_policy_beats_a_certified_mixture_bound() -> None:
    """Equal and unequal covariances; λ of any size; the minimum searched from 200 starts."""
    rng = np.random.default_rng(0)
    for covariances in (np.full((3, 2), 0.4), rng.uniform(0.2, 1, (3, 2))):
        problem = MixtureOfGaussians(
            rng.normal(size=(3, 2)), covariances, [0.5, 0.3, 0.2], rng.normal(size=(2, 2)), [0.3, 0.2]
        )
        for scale in (0.0, 1.0, 5.0):
            lam = torch.as_tensor(scale * rng.random(2), dtype=torch.float32)
            bound = certified_bound(problem, lam)
            z = descend(
                problem,
                random_latents(problem, 200, generator()),
                lam[None],
                steps=300,
                rate=0.1,
                generator=generator(),
            )
            least = float(lagrangian(problem, z, lam).min())
            assert bound is not None and bound <= least + 1e-4
            assert bound >= least - np.log(3)  # three peaks add at most a factor of three


def test_the_portfolio_bound_is_the_global_minimum() -> None:
    """Against scipy from many starts, with an indefinite quadratic form."""
    problem = Portfolio.instance(0, n_assets=6, n_sectors=3, split="validation")
    rng = np.random.default_rng(1)
    lam = np.exp(3 * rng.normal(size=6)) * float(problem.mu.mean() / problem.budgets.sum()) / 6
    mu, sigma, b = (t.numpy() for t in (problem.mu, problem.sigma, problem.budgets))
    assert np.linalg.eigvalsh(sigma * (lam[:, None] + lam)).min() < 0

    def value(x: np.ndarray) -> float:
        return float(-mu @ x + lam @ (x * (sigma @ x) - b))

    simplex: Any = {"type": "eq", "fun": lambda x: x.sum() - 1}
    found = [
        minimize(value, x, bounds=[(0, 1)] * 6, constraints=[simplex], options={"ftol": 1e-12}).fun
        for x in np.vstack([np.eye(6), rng.dirichlet(np.ones(6), 30)])
    ]
    np.testing.assert_allclose(certified_bound(problem, torch.as_tensor(lam)), min(found), atol=1e-6)


@pytest.mark.parametrize(
    "problem",
    [
        MixtureOfGaussians.instance(dim=5, n_modes=3, n_constraints=4, seed=3),
        Portfolio.instance(0, n_assets=8, n_sectors=4, split="validation"),
    ],
    ids=["mixture", "portfolio"],
)
def test_reference_closes_the_gap(problem: MixtureOfGaussians | Portfolio) -> None:
    solution = reference_solution(problem, effort=1)
    assert solution.bound is not None and solution.excess < 1e-9
    gap = (solution.value - solution.bound) / abs(solution.value)
    assert gap > -1e-5
    assert gap < 0.02
    metrics = evaluate(solution.policy, problem)
    np.testing.assert_allclose(metrics["objective"], solution.value, rtol=1e-5)
    # The program meets its constraints to 1e-7 of their size, and the atoms are rounded to float32.
    assert metrics["mean_violation"] < 2e-7 * np.abs(problem.constraint_limits).mean()


def test_reference_is_no_worse_than_the_policies_it_is_given(tmp_path: Any) -> None:
    class Spike(MixtureOfGaussians):
        pass

    problem = Spike([[0.0, 0.0]], [[1.0, 1.0]], [1.0], [[1.0, 0.0]], [1.0])
    given = TimeSharingPolicy(np.array([[1.0, 0.0]], dtype=np.float32))  # the optimum itself
    solution = reference_solution(problem, [given], effort=1, cache=tmp_path)
    assert solution.value <= evaluate(given, problem)["objective"] + 1e-6
    (stored,) = tmp_path.glob("*.npz")
    again = reference_solution(problem, [given], effort=1, cache=tmp_path)
    assert again.value == solution.value and np.array_equal(again.policy.actions, solution.policy.actions)
    reference_solution(problem, effort=1, cache=tmp_path)  # another pool is another question
    assert len(list(tmp_path.glob("*.npz"))) == 2 and stored.exists()


def test_problems_without_a_bound_say_so() -> None:
    assert certified_bound(Sensors(), torch.ones(1)) is None
    solution = reference_solution(Sensors(), effort=1)
    assert solution.bound is None
    assert abs(solution.value - 1 / 3) < 0.02  # min |x|² with Σ x = 1
    unreadable = Sensors()
    unreadable.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="cache must be left out for this Sensors: lock"):
        reference_solution(unreadable, cache="nowhere")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": "net"}, "first must be one of dual, pdi"),
        ({"fresh_from": "guess"}, "fresh_from must be one of random, diffusion"),
        ({"fresh": 0, "warm": 0}, "fresh \\+ warm must be ≥ 1"),
        ({"smoothing": 1.5}, "smoothing must be in \\[0, 1\\], got 1.5"),
        ({"margin": -0.1}, "margin must be a finite number ≥ 0, got -0.1"),
        ({"price_rate": 0}, "price_rate must be a finite number > 0, got 0"),
        ({"rounds": -1}, "rounds must be a whole number ≥ 0, got -1"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_agent("pdi-cg", **options)
