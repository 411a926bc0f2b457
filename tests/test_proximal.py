"""Proximal steps against convex programs and closed forms, and the agent that ascends around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pdi_gym import Problem
from pdi_gym.agents import list_agents, make_agent
from pdi_gym.descent import AdamStep, OwnStep, descend, descent_step, dual_method
from pdi_gym.duals import Ascent
from pdi_gym.evaluation import evaluate
from pdi_gym.options import ProximalOptions
from pdi_gym.problem import lagrangian
from pdi_gym.problems import Portfolio, WirelessPower
from pdi_gym.proximal import AnalyticStep, LearnedStep, Scaled, denoise, stream
from pdi_gym.schedules import make_schedule
from pdi_gym.training.proximal import proximal_loss
from tests.cases import PROBLEMS, Sensors
from tests.training_cases import USERS, interrupt, weights

cvxpy = pytest.importorskip("cvxpy")


def market(n: int = 12, seed: int = 0, diagonal: bool = False, **more: Any) -> Portfolio:
    rng = np.random.default_rng(seed)
    loadings = rng.uniform(0, 0.3, (n, 3))
    sigma = np.diag(rng.uniform(0.02, 0.1, n)) + (0 if diagonal else 1) * loadings @ loadings.T
    return Portfolio.from_moments(rng.uniform(0.02, 0.3, n), sigma, **more)


# The mirror step.


@pytest.mark.parametrize("seed", range(3))
def test_the_mirror_step_rests_at_the_convex_minimum(seed: int) -> None:
    """With one multiplier for all budgets the Lagrangian is −μᵀx + λ xᵀΣx: a convex program."""
    problem = market(seed=seed)
    level = 3.0
    lam = torch.full((1, 12), level)
    x = torch.full((1, 12), 1 / 12)
    for _ in range(3000):
        x = problem.proximal(x, lam, 2.0)
    best = cvxpy.Variable(12)
    risk = cvxpy.quad_form(best, cvxpy.psd_wrap(problem.sigma.numpy()))
    program = cvxpy.Problem(
        cvxpy.Minimize(-problem.mu.numpy() @ best + level * risk), [best >= 0, cvxpy.sum(best) == 1]
    )
    program.solve(solver="CLARABEL")
    # A weight at nothing stays at the least logarithm from which a step starts.
    np.testing.assert_allclose(x[0], best.value, atol=2e-4)


@pytest.mark.parametrize("constraints", ["budgets", "enriched"])
def test_the_mirror_step_descends(constraints: str) -> None:
    """Short steps lower the Lagrangian from anywhere inside; any step stays on the simplex."""
    problem = Portfolio.instance(0, n_assets=20, n_sectors=4, split="validation", constraints=constraints)
    generator = torch.Generator().manual_seed(0)
    x = torch.softmax(torch.randn((200, 20), generator=generator, dtype=torch.float64), -1)
    lam = problem.units.dual * torch.empty(200, problem.n_constraints, dtype=torch.float64).exponential_(
        generator=generator
    )
    before = lagrangian(problem, x, lam)
    for kappa in (0.1, 2.0, 50.0):
        moved = problem.proximal(x, lam, kappa)
        assert (moved > 0).all()
        torch.testing.assert_close(moved.sum(-1), torch.ones(200, dtype=torch.float64))
    assert (lagrangian(problem, problem.proximal(x, lam, 50.0), lam) < before).all()
    far, near = ((problem.proximal(x, lam, k) - x).abs().sum(-1) for k in (0.1, 50.0))
    assert (near < far).all()


@pytest.mark.parametrize("seed", range(3))
def test_dual_ascent_around_mirror_steps_meets_the_known_optimum(seed: int) -> None:
    """With Σ diagonal a budget is a cap x_j ≤ √(b_j/Σ_jj), for E x too: a linear program."""
    budgets = np.random.default_rng(seed).uniform(0.5, 1.5, 12) * 3e-3
    problem = market(seed=seed, diagonal=True, budgets=budgets)
    best = cvxpy.Variable(12, nonneg=True)
    caps = np.sqrt(budgets / problem.sigma.diagonal().numpy())
    program = cvxpy.Problem(cvxpy.Maximize(problem.mu.numpy() @ best), [cvxpy.sum(best) == 1, best <= caps])
    program.solve(solver="CLARABEL")
    assert caps.sum() > 1.2  # the caps leave a choice
    for name in ("pdi-prox", "expert", "pdi-cg"):
        figures = evaluate(make_agent(name).sample(problem, 128, seed=1), problem)
        assert figures["mean_return"] == pytest.approx(program.value, rel=0.02), name
        assert figures["feasible"] > 0.9, name
        assert figures["mean_violation"] < 2e-3 * budgets.mean(), name


def test_steps_suit_the_set() -> None:
    z = torch.zeros(2, 12)
    assert isinstance(descent_step(market(), z), OwnStep)
    assert isinstance(descent_step(PROBLEMS["wireless"](), torch.zeros(2, 8)), AdamStep)

    class Taxed(Portfolio):
        def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
            return super().objective(x, xi) + x.square().sum(-1)

    # Its mirror step would be that of another objective.
    plain = market()
    taxed = Taxed(plain.mu, plain.sigma, plain.budgets, plain.scenarios, plain.names, plain.sectors)
    assert isinstance(descent_step(taxed, z), AdamStep)
    assert taxed.features(taxed.decode(z), torch.zeros(2, 12)).shape == (2, 12, 4)


# A user's own proximal step, in closed form.


class Nearest(Sensors):
    """The sensors without noise: |x|² subject to Σ x ≥ 1, so x = 1/3, λ = 2/3 and the objective is 1/3."""

    exact = True

    def draw(self, n: int, generator: torch.Generator) -> None:  # type: ignore[override]
        return None

    def proximal(self, x: Tensor, lam: Tensor, kappa: float) -> Tensor:
        """argmin |y|² + λ(1 − Σ y) + κ |y − x|²."""
        return (lam / 2 + kappa * x) / (1 + kappa)


@pytest.mark.parametrize("name", ["pdi-prox", "expert"])
def test_a_users_own_proximal_step(name: str) -> None:
    problem = Nearest()
    assert "pdi-prox" in list_agents(problem) and "pdi-prox" not in list_agents(Sensors())
    given = {
        "pdi-prox": {"noise": 0.0, "margin": 0.0, "warm": 200},
        "expert": {"primal_step": 1.0, "window": 0.5},  # the multipliers' average leaves out their rise
    }
    policy = make_agent(name, **given[name]).sample(problem, 60, seed=0)
    np.testing.assert_allclose(policy.actions, 1 / 3, atol=0.01)
    assert policy.mean_duals is not None
    np.testing.assert_allclose(policy.mean_duals, 2 / 3, rtol=0.05)


def test_descent_takes_the_users_step() -> None:
    z = descend(
        Nearest(),
        torch.zeros(4, 3),
        torch.tensor([[1.2]]),
        steps=50,
        rate=1.0,
        generator=torch.Generator().manual_seed(0),
    )
    torch.testing.assert_close(z, torch.full((4, 3), 0.6), rtol=1e-3, atol=1e-3)


# Samplers, with a step in closed form in the place of the network.


def exact_step(problem: Nearest, b: float) -> Any:
    """argmin L(y, λ) + ½ b ‖(α y − z)/σ‖² in natural units, where L is quadratic."""
    scaled = Scaled(problem)
    unit = scaled.width / scaled.sizes.objective
    curve, pull = 2 * scaled.width * unit, scaled.sizes.dual * unit

    def step(z: Tensor, alpha: float, sigma: float, lam: Tensor) -> Tensor:
        near = b / sigma**2
        return (pull * lam + near * alpha * z) / (curve + near * alpha**2)

    return scaled, step


def test_every_sampler_meets_the_known_optimum() -> None:
    scaled, step = exact_step(Nearest(), 0.01)
    ascent, schedule = Ascent(0.3), make_schedule("cosine", 200)
    given: Any = {"n_draws": 1, "generator": torch.Generator().manual_seed(0)}
    found = {
        "stream": stream(scaled, step, ascent, n=200, chains=4, warm=60, alpha=0.3, sigma=0.95, **given),
        "window": denoise(scaled, step, ascent, schedule, n=8, groups=1, last=25, **given),
        "algorithm-2": denoise(scaled, step, ascent, schedule, n=200, groups=2, **given),
    }
    for name, samples in found.items():
        x = scaled.decode(samples.z)
        assert samples.z.shape == (200, 3), name
        # Late in a denoising the step is short: what noise left of the residual is no longer corrected.
        room = 0.05 if name == "stream" else 0.25
        assert float(x.sum(-1).mean()) == pytest.approx(1.0, abs=room), name
    np.testing.assert_allclose(found["stream"].duals * scaled.sizes.dual, 2 / 3, rtol=0.1)


def test_stream_keeps_every_step_and_reports() -> None:
    """n decisions are the last ones; the callback and `watch` see each step; groups have their own λ."""
    scaled, step = exact_step(Nearest(), 0.3)
    seen: list[Tensor] = []
    steps: list[Tensor] = []
    samples = stream(
        scaled,
        step,
        Ascent(0.5, 1.0),
        n=10,
        n_draws=1,
        chains=2,
        groups=3,
        warm=4,
        alpha=0.5,
        sigma=0.8,
        generator=torch.Generator().manual_seed(0),
        watch=lambda z, lam: seen.append(lam),
        callback=lambda event: steps.append(event.clean),
    )
    assert len(seen) == len(steps) == 4 + 2 and samples.dual_path.shape == (2, 3, 1)
    assert torch.equal(samples.z, torch.cat([s.flatten(0, 1) for s in steps[-2:]])[-10:])
    assert (seen[0] == 1.0).all() and len(seen[-1].unique()) == 3


def test_ascent_is_bounded_and_keeps_its_margin() -> None:
    ascent = Ascent(0.5, 1.0, margin=0.1, residual_max=2.0)
    residual = torch.tensor([9.0, 0.3, -0.1, -5.0])
    got = ascent(ascent.start(1, 4), residual.view(1, 1, 4), 0).lam
    torch.testing.assert_close(got.flatten(), torch.tensor([2.05, 1.2, 1.0, 0.0]))


# The loss.


@pytest.mark.parametrize("name", ["gaussian", "portfolio", "own-unbounded"])
def test_the_losss_gradient_is_that_of_the_proximal_objective(name: str) -> None:
    problem = Scaled(PROBLEMS[name]())
    generator = torch.Generator().manual_seed(0)
    d, m = problem.latent_dim, problem.n_constraints
    estimate = (0.2 * torch.randn(4, d, generator=generator)).requires_grad_(True)
    z, lam = torch.randn(4, d, generator=generator), torch.rand(4, m, generator=generator)
    alpha, b = torch.rand(4, 1, generator=generator), 0.1 + torch.rand(4, 1, generator=generator)
    sigma = (1 - alpha.square()).sqrt()
    loss = proximal_loss(problem, estimate, z, alpha, sigma, lam, b, generator)
    (grad,) = torch.autograd.grad(loss.sum(), estimate)
    near = (0.5 * b * ((alpha * estimate - z) / sigma).square()).sum(-1)
    whole = lagrangian(problem, problem.decode(estimate), lam) + near
    (expected,) = torch.autograd.grad((whole / (d * (1 + lam.mean(-1)))).sum(), estimate)
    torch.testing.assert_close(grad, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


# Training and the agent.

TINY = {
    "steps": 60,
    "validate_every": 30,
    "seed_rollouts": 1,
    "chains": 6,
    "groups": 1,
    "keep": 40,
    "inner": 10,
    "rollouts": 1,
    "problems": 2,
    "pairs": 8,
    "validation_n": 10,
    "validation_instances": 1,
    "width": 8,
    "hidden": 12,
    "depth": 2,
    "rate": 1e-2,
}


def objective(agent: Any, problem: WirelessPower) -> float:
    """What the agent's steps reach of the Lagrangian at full noise, over many multipliers, by exact rates."""
    scaled = Scaled(problem)
    generator = torch.Generator().manual_seed(9)
    z = torch.randn((1, 64, 8), generator=generator)
    lam = torch.empty(1, 64, 8).exponential_(generator=generator) * 5
    level = torch.full((64, 1), 0.1)
    found = agent.network(z[0], level, (1 - level.square()).sqrt(), lam[0], scaled, level)
    return float(lagrangian(problem, scaled.decode(found), lam[0]).mean())


def test_training_lowers_the_lagrangian(tmp_path: Path) -> None:
    """On a network that it never saw, against the same network after a single step."""
    first = make_agent("pdi-prox").learn(USERS, out=tmp_path / "a", quiet=True, **(TINY | {"steps": 1}))
    last = make_agent("pdi-prox").learn(USERS, out=tmp_path / "b", quiet=True, **TINY)
    unseen = WirelessPower.instance(0, "validation", n_users=8)
    before, after = objective(first, unseen), objective(last, unseen)
    assert after < before - 1.0
    again = make_agent("pdi-prox").load(tmp_path / "b")
    policy = again.sample(unseen, 20, seed=3)
    np.testing.assert_array_equal(policy.actions, last.sample(unseen, 20, seed=3).actions)
    assert last.sample(WirelessPower.instance(0, "validation", n_users=12), 5).actions.shape == (5, 12)
    with pytest.raises(ValueError, match="trained on problems of the kind 'wireless', Sensors is 'generic'"):
        again.sample(Sensors(), 4)


@pytest.mark.parametrize("at", [3, 5])
def test_an_interrupted_training_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    short = TINY | {"steps": 6, "validate_every": 3, "inner": 2}
    make_agent("pdi-prox").learn(USERS, out=tmp_path / "whole", quiet=True, **short)
    with monkeypatch.context() as patch:
        interrupt(patch, "_gradient_step", at)
        with pytest.raises(KeyboardInterrupt):
            make_agent("pdi-prox").learn(USERS, out=tmp_path / "cut", quiet=True, **short)
    make_agent("pdi-prox").learn(USERS, out=tmp_path / "cut", quiet=True, resume=True, **short)
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")


def test_a_users_problem_is_learnt(tmp_path: Path) -> None:
    """Drawn realisations and no graph: the sensors' optimum is 1/3, met within a tenth."""
    agent = make_agent("pdi-prox", n_draws=64).learn(
        [Sensors()], out=tmp_path, quiet=True, **(TINY | {"steps": 500, "validate_every": 500})
    )
    figures = evaluate(agent.sample(Sensors(), 100, seed=0), Sensors(), horizon=200, trials=20)
    assert figures["objective"] == pytest.approx(1 / 3, rel=0.25)
    assert figures["mean_violation"] < 0.1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sampler": "stram"}, "sampler must be one of stream, window, algorithm-2; got 'stram'"),
        ({"T": 30}, None),
        ({"noise": 1.0}, r"noise must be in \[0, 1\), got 1.0"),
        ({"b": 0}, "b must be a finite number > 0, got 0"),
        ({"device": "cuda"}, "device must be 'cpu' for proximal steps"),
        ({"residual_max": -1}, "residual_max must be a finite number > 0"),
    ],
)
def test_options_are_checked(given: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert make_agent("pdi-prox", sampler="window", **given).options(USERS[0]).T == 30
        return
    with pytest.raises(ValueError, match=message):
        ProximalOptions(**given)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"groups": 2}, "groups"),
        ({"sampler": "window", "warm": 3}, "warm"),
        ({"sampler": "algorithm-2", "chains": 3}, "chains"),
        ({"pool_margin": 0.1}, "pool_margin"),
    ],
)
def test_options_without_effect_are_refused(given: dict[str, Any], name: str) -> None:
    with pytest.raises(TypeError, match=f"pdi-prox ignores '{name}'"):
        make_agent("pdi-prox", **given)


def test_an_analytic_step_has_one_sampler() -> None:
    with pytest.raises(
        ValueError, match="sampler must be 'stream' for Portfolio, whose proximal step is analytic"
    ):
        make_agent("pdi-prox", sampler="window").sample(market(), 4)


def test_a_pool_is_reweighted() -> None:
    """Shares over a pool return no less than equal ones, and meet what equal ones do not."""
    problem = market()
    equal = evaluate(make_agent("pdi-prox", margin=0.0, warm=20).sample(problem, 40), problem)
    mixed = evaluate(make_agent("pdi-prox", margin=0.0, warm=20, pool=200).sample(problem, 40), problem)
    assert mixed["mean_violation"] <= equal["mean_violation"] + 1e-12
    assert mixed["feasible"] == 1.0


def test_column_generation_starts_from_proximal_steps() -> None:
    problem = market()
    dual, prox = (
        evaluate(make_agent("pdi-cg", first=first).sample(problem, 40), problem) for first in ("dual", "prox")
    )
    assert prox["feasible"] == 1.0
    assert prox["mean_return"] == pytest.approx(dual["mean_return"], rel=0.01)


def test_chunks_and_groups_are_one_pass() -> None:
    """A learned step splits samples as it likes: each is answered under its own group's multipliers."""
    problem = Scaled(WirelessPower.instance(0, "train", n_users=8))

    def network(z: Tensor, alpha: Tensor, sigma: Tensor, lam: Tensor, seen: Problem, b: Tensor) -> Tensor:
        return z * lam + b

    z = torch.randn(3, 30, 8, generator=torch.Generator().manual_seed(0))
    lam = torch.arange(24.0).view(3, 1, 8)
    torch.testing.assert_close(LearnedStep(network, problem, 0.5)(z, 0.6, 0.8, lam), z * lam + 0.5)
    torch.testing.assert_close(
        LearnedStep(network, problem, 0.5)(z[:1], 0.6, 0.8, lam[:1]), z[:1] * lam[:1] + 0.5
    )


def test_scaled_problems_have_units_of_one() -> None:
    for make in PROBLEMS.values():
        scaled = Scaled(make())
        z = 0.3 * torch.randn((5, scaled.latent_dim), generator=torch.Generator().manual_seed(0))
        z, lam = scaled.project(z), torch.rand(5, scaled.n_constraints)
        xi = scaled.draw(3, torch.Generator().manual_seed(1))
        value, _ = scaled.lagrangian_grad(z, lam, xi)
        expected = lagrangian(scaled, scaled.decode(z), lam, xi)
        torch.testing.assert_close(value, expected, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(scaled.encode(scaled.decode(z)), z, rtol=1e-3, atol=1e-4)


def test_analytic_step_is_the_problems() -> None:
    problem = market()
    scaled = Scaled(problem)
    x = torch.softmax(torch.randn((1, 3, 12), generator=torch.Generator().manual_seed(0)), -1)
    lam = torch.rand(1, 1, 12)
    got = scaled.decode(AnalyticStep(scaled, 2.0)(scaled.encode(x), 1.0, 0.0, lam))
    torch.testing.assert_close(got, problem.proximal(x, scaled.sizes.dual * lam, 2.0), rtol=1e-4, atol=1e-6)


def test_dual_method_bounds_what_it_sees() -> None:
    """One step from λ = 0: the largest residual counts as `residual_max`."""
    problem = Nearest()
    path = dual_method(
        problem,
        torch.zeros(1, 3),
        n=1,
        steps=1,
        rate=1e-9,
        duals=Ascent(1.0, residual_max=0.25),
        generator=torch.Generator().manual_seed(0),
    )
    torch.testing.assert_close(path.last, torch.tensor([0.25]))
