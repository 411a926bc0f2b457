"""The portfolio problem against closed forms, autograd, brute force and the generator's statistics."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pdi_gym.problem import autograd_lagrangian_grad, check_problem
from pdi_gym.problems import Portfolio
from pdi_gym.problems.portfolio.factor_model import SPLITS, instance_seed, sector_market
from pdi_gym.problems.portfolio.problem import MIN_WEIGHT

VARIANTS = ("budgets", "enriched")


@pytest.fixture(scope="module")
def small() -> Portfolio:
    return Portfolio.instance(0, n_assets=40, n_sectors=5, split="validation")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_generator_statistics(seed):
    market = sector_market(seed)
    returns = market.returns
    n = returns.shape[1]
    assert returns.shape == (1000, 500)
    assert list(np.bincount(market.sectors)) == [50] * 10
    risky = np.isin(market.sectors, market.high_risk)
    assert risky.sum() == 100
    assert 0.45 <= returns[:, risky].mean() <= 0.61
    assert 0.10 <= returns[:, ~risky].mean() <= 0.132
    correlation = np.corrcoef(returns.T)
    same = (market.sectors[:, None] == market.sectors) & ~np.eye(n, dtype=bool)
    other = market.sectors[:, None] != market.sectors
    assert abs(correlation[same].mean() - 0.36) < 0.02
    assert correlation[other].mean() < 0.1
    contribution = np.cov(returns.T).sum(1) / n**2
    assert 61 <= (contribution > 3 * contribution.mean()).sum() <= 66


def test_instance_follows_its_market():
    problem = Portfolio.instance(3, split="test")
    returns = sector_market(3003).returns
    np.testing.assert_allclose(problem.mu.numpy(), returns.mean(0), rtol=1e-12)
    np.testing.assert_allclose(problem.sigma.numpy(), np.cov(returns.T), rtol=1e-9)
    equal = np.full(500, 1 / 500)
    budget = 3 * np.mean(equal * (np.cov(returns.T) @ equal))
    np.testing.assert_allclose(problem.budgets.numpy(), budget, rtol=1e-12)
    assert [len(SPLITS[s]) for s in ("train", "validation", "test")] == [200, 10, 20]
    assert instance_seed(9, "validation") == 1009


def test_fits_the_protocol(small):
    check_problem(small)
    check_problem(Portfolio.instance(0, 60, 5, constraints="enriched"))


@pytest.mark.parametrize("constraints", VARIANTS)
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("weight", [0.0, 1.0])
@pytest.mark.parametrize("drawn", [False, True])
def test_gradient_equals_autograd(constraints, groups, weight, drawn):
    problem = Portfolio.instance(1, 60, 5, split="train", constraints=constraints)
    generator = torch.Generator().manual_seed(0)
    z = 2 * torch.randn((4, groups, 5, problem.latent_dim), generator=generator)
    lam = 50 * torch.rand((groups, 1, problem.n_constraints), generator=generator)
    xi = problem.draw(3, generator) if drawn else None
    value, grad = problem.lagrangian_grad(z, lam, xi, weight)
    expected_value, expected_grad = autograd_lagrangian_grad(problem, z.double(), lam.double(), xi, weight)
    scale = expected_grad.abs().max()
    assert (value - expected_value).abs().max() <= 1e-5 * expected_value.abs().max()
    assert (grad - expected_grad).abs().max() <= 1e-5 * scale


def test_constraints_by_hand():
    problem = Portfolio.from_moments([0.1, 0.2], [[0.04, 0.01], [0.01, 0.09]], [0.02, 0.03])
    x = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    np.testing.assert_allclose(problem.objective(x).numpy(), [-(0.025 + 0.15)])
    by_hand = [0.25 * (0.25 * 0.04 + 0.75 * 0.01) - 0.02, 0.75 * (0.25 * 0.01 + 0.75 * 0.09) - 0.03]
    np.testing.assert_allclose(problem.constraints(x).numpy(), [by_hand])
    xi = torch.tensor([[0.5, -0.5], [0.1, 0.3]])
    np.testing.assert_allclose(problem.objective(x, xi).numpy(), [-(0.25 * 0.3 - 0.75 * 0.1)], atol=1e-7)
    value, residual = problem.slot(x.expand(2, 2), xi)
    np.testing.assert_allclose(value.numpy(), [-(0.125 - 0.375), -(0.025 + 0.225)], rtol=1e-6)
    np.testing.assert_allclose(residual.numpy(), [by_hand, by_hand])


def test_projection_is_idempotent_and_keeps_the_simplex(small):
    generator = torch.Generator().manual_seed(0)
    z = 30 * torch.randn((50, small.latent_dim), generator=generator)
    once = small.project(z)
    torch.testing.assert_close(small.project(once), once, rtol=0, atol=2e-5)
    x = small.decode(once)
    torch.testing.assert_close(x.sum(-1), torch.ones(50))
    assert (x >= 0.99 * MIN_WEIGHT).all()
    assert once.mean(-1).abs().max() < 1e-4
    torch.testing.assert_close(x, torch.softmax(z, -1), rtol=1e-4, atol=1e-8)


def test_encode_inverts_decode_and_actions_keep_relative_weights(small):
    x = torch.softmax(3 * torch.randn((20, small.latent_dim), generator=torch.Generator().manual_seed(1)), -1)
    torch.testing.assert_close(small.decode(small.encode(x)), x)
    action = small.to_action(x)
    assert action.abs().max() <= 1
    torch.testing.assert_close(action.amax(-1), torch.ones(20))
    torch.testing.assert_close(small.to_decision(action), x, rtol=1e-4, atol=1e-8)


def test_multiplier_of_two_assets_matches_a_grid():
    """Dual ascent with the analytic Lagrangian against the best mixture found by brute force.

    x = (w, 1 − w): the ergodic problem is a linear programme over laws of w on a grid; its optimal
    multiplier is the slope of the best return in the budget, by central differences.
    """
    mu, sigma = np.array([0.30, 0.10]), np.array([[0.5, 0.05], [0.05, 0.2]])

    def best_return(budget: float) -> float:
        from scipy.optimize import linprog

        w = np.linspace(0, 1, 4001)
        x = np.stack([w, 1 - w], 1)
        risk = x * (x @ sigma)
        solution = linprog(-(x @ mu), A_ub=risk.T, b_ub=[budget, 1.0], A_eq=[np.ones(4001)], b_eq=[1])
        return -solution.fun

    budget, h = 0.15, 1e-3
    slope = (best_return(budget + h) - best_return(budget - h)) / (2 * h)
    problem = Portfolio.from_moments(mu, sigma, [budget, 1.0])
    w = torch.linspace(1e-6, 1 - 1e-6, 4001, dtype=torch.float64)
    z = problem.encode(torch.stack([w, 1 - w], 1))
    lam = torch.zeros(2, dtype=torch.float64)
    for step in range(4000):
        value, _ = problem.lagrangian_grad(z, lam)
        x = problem.decode(z[value.argmin()])
        lam = (lam + 0.5 / (1 + 0.01 * step) * problem.constraints(x)).clamp(min=0)
    assert abs(float(lam[0]) - slope) < 0.01 * slope
    assert lam[1] == 0


def test_scenarios_have_the_stated_mean_and_slots_converge(small):
    torch.testing.assert_close(small.scenarios.mean(0), small.mu)
    moments = Portfolio.from_moments(small.mu, small.sigma)
    torch.testing.assert_close(moments.scenarios.mean(0), small.mu)
    x = small.decode(torch.randn((1, small.latent_dim), generator=torch.Generator().manual_seed(2)))
    slots = torch.cat(list(small.path(4000, torch.Generator().manual_seed(3))))
    realised = small.slot(x.expand(4000, -1), slots)[0]
    error = realised.std() / 4000**0.5
    assert abs(realised.mean() - small.objective(x)[0]) < 4 * error


def test_metrics_are_weighted():
    problem = Portfolio.from_moments([0.1, 0.3, 0.2], np.eye(3))
    x = torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    x[0, 0] += 1e-6
    weights = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    metrics = problem.metrics(x, weights, torch.zeros(1, 3))
    assert metrics["mean_return"] == pytest.approx(0.5 * 0.2 + 0.25 * 0.3 + 0.25 * 0.2, abs=1e-6)
    assert metrics["n_eff"] == pytest.approx(0.5 * 3 + 0.5 * 1, abs=1e-5)
    assert metrics["top1_entropy"] == pytest.approx(1.5 * np.log(2))
    assert metrics["top1_count"] == 3


def test_graph_is_the_correlation_neighbourhood():
    problem = Portfolio.instance(0, n_assets=100, split="validation")
    graph = problem.graph
    correlation = np.abs(np.corrcoef(problem.scenarios.numpy().T))
    np.fill_diagonal(correlation, 0)
    source, target = graph.edge_index.numpy()
    assert (np.bincount(target, minlength=100) == 20).all()
    adjacency = np.zeros((100, 100))
    adjacency[target, source] = graph.edge_weight.numpy()
    assert np.abs(np.linalg.eigvals(adjacency)).max() == pytest.approx(1, abs=1e-4)
    for j in range(100):
        assert set(np.argsort(-correlation[j])[:20]) == set(source[target == j])
    assert graph.node_features.shape == (100, 3)
    assert problem.graph is graph


def test_enriched_rows_by_hand():
    problem = Portfolio.instance(0, n_assets=60, n_sectors=10, split="validation", constraints="enriched")
    returns = problem.scenarios.numpy()
    x = torch.softmax(torch.randn(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64), -1)
    rows = problem.constraints(x).numpy()
    unit = float(problem.budgets.mean()) * 60**0.5
    exposure = np.bincount(problem.sectors.numpy(), weights=x.numpy())
    np.testing.assert_allclose(rows[60:70], unit * (exposure - 0.15) / 0.15, atol=1e-12)
    np.testing.assert_allclose(rows[70:80], unit * (0.067 - exposure) / 0.067, atol=1e-12)
    worst = np.argsort(returns.mean(1))[:12]
    loss, allowed = -returns[worst] @ x.numpy(), -returns[worst].mean(1)
    np.testing.assert_allclose(rows[80:92], unit * (loss - allowed) / returns.mean(1).std(ddof=1), atol=1e-12)
    n_eff = np.exp(-(x * x.log()).sum().item())
    np.testing.assert_allclose(rows[92], unit * (n_eff / 3 - 1), atol=1e-12)
    assert problem.n_constraints == 93 == len(problem.constraint_names) == len(problem.constraint_limits)
    assert problem.constraint_limits[60] == pytest.approx(0.15)


class Frame:
    """What a pandas frame shows of itself."""

    def __init__(self, values: np.ndarray, columns: list[str]):
        self.values, self.columns = values, columns

    def __len__(self) -> int:
        return len(self.values)

    def to_numpy(self) -> np.ndarray:
        return self.values


def test_frames_name_their_assets_and_split_in_time():
    returns = sector_market(7, 20, 5, 100).returns
    frame = Frame(returns, [f"T{j}" for j in range(20)])
    problem = Portfolio.from_returns(frame)
    assert problem.names[:2] == ("T0", "T1") == problem.constraint_names[:2]
    first, second = Portfolio.chronological(frame, 0.6)
    np.testing.assert_allclose(first.mu.numpy(), returns[:60].mean(0))
    np.testing.assert_allclose(second.mu.numpy(), returns[60:].mean(0))
    torch.testing.assert_close(first.budgets, second.budgets)
    assert second.names == problem.names


def _returns(edit=None) -> np.ndarray:
    returns = np.random.default_rng(0).normal(0, 0.1, (30, 4))
    if edit is not None:
        edit(returns)
    return returns


def _nan(r):
    r[3, 2] = np.nan


def _constant(r):
    r[:, 1] = 0.01


def _percent(r):
    r *= 100


SIGMA = np.diag([0.1, 0.2])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Portfolio.from_returns(_returns(_nan)), r"returns must be finite.*\(3, 2\)"),
        (lambda: Portfolio.from_returns(_returns(_constant)), r"column 1 \(asset 1\) is constant"),
        (lambda: Portfolio.from_returns(_returns(_percent)), "returns must be ≥ -1"),
        (lambda: Portfolio.from_returns(_returns()[:1]), "≥ 2 scenarios"),
        (lambda: Portfolio.from_returns(_returns(), budgets=[1, 1, 0, 1]), "positive, got 0 at index 2"),
        (lambda: Portfolio.from_returns(_returns(), budgets=-1e-4), "positive, got -0.0001"),
        (lambda: Portfolio.from_returns(_returns(), names=["a", "b", "a", "c"]), "unique, got 'a' twice"),
        (lambda: Portfolio.from_returns(_returns(), names=["a"]), r"one per asset \(4\), got 1"),
        (lambda: Portfolio.from_returns(_returns(), sectors=[0, 1]), "sectors must be 4 whole numbers"),
        (lambda: Portfolio.from_returns(_returns(), constraints="all"), "constraints must be one of"),
        (lambda: Portfolio.from_moments([0.1, 0.1], [[1, 0.5], [0.1, 1]]), "symmetric, off by 0.4"),
        (lambda: Portfolio.from_moments([0.1, 0.1], [[1, 2], [2, 1]]), "semidefinite.*-1"),
        (lambda: Portfolio.from_moments([0.1, 0.1], [[1, 0], [0, 0]]), "positive diagonal"),
        (lambda: Portfolio.from_moments([0.1, np.inf], SIGMA), "mu must be finite"),
        (lambda: Portfolio.from_moments([0.1, 0.1, 0.1], SIGMA), r"sigma must have shape \(3, 3\)"),
        (lambda: Portfolio.chronological(_returns(), 0.99), "both sides of 30"),
        (lambda: Portfolio.instance(20), "index must be below 20"),
        (lambda: Portfolio.instance(0, split="tests"), "did you mean test"),
        (lambda: Portfolio.instance(0, n_assets=5), "at least n_sectors = 10"),
    ],
)
def test_bad_input_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_semidefinite_covariance_is_accepted():
    returns = _returns()[:3]
    Portfolio.from_moments(returns.mean(0), np.cov(returns.T))
