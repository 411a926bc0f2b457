"""Agents and environment of the portfolio problem against closed forms and independent solvers."""

from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from pdi_gym.agents import list_agents, make_agent
from pdi_gym.agents.pdm import cap_risk
from pdi_gym.evaluation import evaluate
from pdi_gym.problems import MixtureOfGaussians, Portfolio


@pytest.fixture(scope="module")
def market() -> Portfolio:
    return Portfolio.instance(0, n_assets=60, n_sectors=10, split="validation")


@pytest.fixture(scope="module")
def correlated() -> Portfolio:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6)) * 0.2
    return Portfolio.from_moments(
        rng.uniform(0.02, 0.2, 6), root @ root.T + 0.02 * np.eye(6), rng.uniform(0.004, 0.012, 6)
    )


def test_markowitz_matches_another_solver(correlated):
    pytest.importorskip("cvxpy")
    mu, sigma, total = correlated.mu.numpy(), correlated.sigma.numpy(), float(correlated.budgets.sum())
    reference = minimize(
        lambda x: -mu @ x,
        np.full(6, 1 / 6),
        bounds=[(0, 1)] * 6,
        constraints=[
            {"type": "eq", "fun": lambda x: x.sum() - 1},
            {"type": "ineq", "fun": lambda x: 1e2 * (total - x @ sigma @ x)},
        ],
        options={"ftol": 1e-12},
    )
    x = make_agent("markowitz").sample(correlated, n=3).actions
    assert x.shape == (3, 6)
    np.testing.assert_allclose(x[0], reference.x, atol=2e-3)
    assert x[0] @ mu == pytest.approx(-reference.fun, rel=1e-4)


def test_risk_budget_contributions_are_proportional_to_the_budgets(correlated):
    pytest.importorskip("cvxpy")
    x = make_agent("risk-budget").sample(correlated, n=1).actions[0].astype(float)
    contribution = x * (correlated.sigma.numpy() @ x)
    budgets = correlated.budgets.numpy()
    np.testing.assert_allclose(contribution / contribution.sum(), budgets / budgets.sum(), rtol=1e-3)


@pytest.mark.parametrize("name", ["markowitz", "risk-budget"])
def test_without_the_extra_the_command_is_named(name, correlated, monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ImportError, match=r"pip install 'pdi-gym\[convex\]'"):
        make_agent(name).sample(correlated, n=1)


def test_portfolio_agents_apply_to_portfolios_only(correlated):
    own = {"equal-weight", "markowitz", "risk-budget"}
    assert own <= set(list_agents(correlated))
    assert not own & set(list_agents(MixtureOfGaussians.toy()))
    with pytest.raises(ValueError, match="equal-weight does not apply to MixtureOfGaussians"):
        make_agent("equal-weight").sample(MixtureOfGaussians.toy(), n=1)


def test_equal_weight_is_the_mean_of_mu(market):
    metrics = evaluate(make_agent("equal-weight").sample(market, n=2), market)
    assert metrics["mean_return"] == pytest.approx(float(market.mu.mean()), rel=1e-6)
    assert metrics["n_eff"] == pytest.approx(60, rel=1e-4)


def test_capped_risk_is_within_budget_and_feasible_portfolios_stay(market):
    generator = torch.Generator().manual_seed(0)
    z = market.project(8 * torch.randn((2, 20, 60), generator=generator))
    assert (market.constraints(market.decode(z)) > 0).any(-1).all()
    x = market.decode(cap_risk(market, z, 50))
    assert (market.constraints(x.double()) <= 1e-9).all()
    torch.testing.assert_close(x.sum(-1), torch.ones(2, 20))
    ordered = market.decode(z).argsort(-1)[..., :5], x.argsort(-1)[..., :5]
    assert float((ordered[0] == ordered[1]).float().mean()) > 0.9  # the smallest stay the smallest

    share = market.budgets / market.sigma.diagonal()
    inside = market.encode((share.sqrt() / share.sqrt().sum()).float().expand(1, 1, 60))
    assert (market.constraints(market.decode(inside)) <= 0).all()
    torch.testing.assert_close(cap_risk(market, inside, 50), inside)


def test_pdm_is_feasible_in_every_sample(market):
    policy = make_agent("pdm", T=20).sample(market, n=16)
    assert market.constraints(torch.as_tensor(policy.actions)).max() <= 1e-8


def test_pdi_meets_budgets_that_its_unconstrained_twin_breaks(market):
    free = evaluate(make_agent("unconstrained").sample(market, n=256), market)
    ours = evaluate(make_agent("pdi-mc").sample(market, n=256), market)
    assert ours["mean_violation"] <= 0.01 * free["mean_violation"]
    assert ours["feasible"] >= 0.9
    assert ours["mean_return"] >= 0.7 * float(market.mu.mean())


def test_pdi_given_time_meets_the_enriched_limits_to_a_few_percent():
    market = Portfolio.instance(0, n_assets=100, split="validation", constraints="enriched")
    assert market.limits is not None
    excess = {}
    for name in ("pdi-mc", "unconstrained"):
        policy = make_agent(name, T=400).sample(market, n=128)
        residuals = market.constraints(torch.as_tensor(policy.actions).double()).mean(0)
        excess[name] = float(residuals[100:].max()) / market.limits.unit
    assert excess["pdi-mc"] < 0.08  # .035 with a standard deviation of .007 over seeds
    assert excess["unconstrained"] > 0.9


def test_clamped_multipliers_keep_a_wild_asset_from_collapsing_the_policy():
    """Validation instance 2 has an asset with a variance of 6e5 budgets, and the highest mean return."""
    market = Portfolio.instance(2, split="validation")
    assert market.sigma.diagonal().max() > 5e5 * market.budgets[0]
    units = {"T": 100, "beta": 1 / 2000, "dual_step": 2000.0}

    def average(clamp: float | None) -> dict[str, float]:
        agent = make_agent("pdi-mc", dual_max=clamp, **units)
        runs = [evaluate(agent.sample(market, n=128, seed=seed), market) for seed in range(3)]
        return {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}

    free, clamped = average(None), average(20.0)
    assert clamped["feasible"] >= 0.9
    assert clamped["mean_violation"] <= 0.1 * free["mean_violation"]
    # 1.4 on average; the ratio of one run has a standard deviation of .2
    assert clamped["mean_return"] >= 1.1 * free["mean_return"]


def test_fast_preset_is_in_the_markets_units(market):
    """Returns in other units give the same policy: β, η and the clamp follow them.

    A power of two scales floating-point numbers without rounding, so equality is to the last bits.
    """
    unit = 2.0**-7
    scaled = Portfolio.from_moments(unit * market.mu, unit**2 * market.sigma, unit**2 * market.budgets)
    policy, same = (make_agent("pdi-mc").sample(p, n=8, seed=3) for p in (scaled, market))
    np.testing.assert_allclose(policy.duals * unit, same.duals, rtol=1e-4)
    np.testing.assert_allclose(policy.actions, same.actions, rtol=1e-3, atol=1e-9)


def test_a_ramp_keeps_early_multipliers_low(market):
    first: dict[float, float] = {}
    for ramp in (0.0, 0.5):
        path: list[float] = []
        agent = make_agent("pdi-mc", dual_ramp=ramp, dual_max=1e9, T=20)
        agent.sample(market, n=64, callback=lambda step, path=path: path.append(float(step.lam.max())))
        first[ramp] = path[1]
    # α_T of the cosine schedule is far below .1, so the first step shrinks by more than √.1.
    assert 0 < first[0.5] < 0.32 * first[0.0]


def test_environment_pays_the_drawn_scenario(market):
    env = gym.make("Portfolio-v0", problem=market, horizon=5)
    env.reset(seed=7)
    x = np.random.default_rng(0).dirichlet(np.ones(60)).astype(np.float32)
    scenarios = market.scenarios.numpy()
    seen = set()
    for _ in range(5):
        _, reward, _, truncated, info = env.step(env.unwrapped.to_action(x))
        payoffs = scenarios @ x
        assert np.abs(payoffs - reward).min() < 1e-5
        seen.add(int(np.abs(payoffs - reward).argmin()))
        assert info["returns"] == reward
        risk = x * (market.sigma.numpy() @ x) - market.budgets.numpy()
        np.testing.assert_allclose(info["residuals"], risk, atol=1e-6)
    assert truncated and len(seen) > 1


def test_playing_approaches_the_exact_averages(market):
    policy = make_agent("random").sample(market, n=4)
    env = gym.make("Portfolio-v0", problem=market, horizon=2000)
    env.reset(seed=1)
    rewards = []
    for atom in policy.schedule(2000, np.random.default_rng(0)):
        _, reward, _, _, info = env.step(env.unwrapped.to_action(policy.actions[atom]))
        rewards.append(reward)
    exact = evaluate(policy, market)
    assert abs(np.mean(rewards) - exact["mean_return"]) < 4 * np.std(rewards) / 2000**0.5
    average = (market.constraints(torch.as_tensor(policy.actions)).mean(0)).numpy()
    np.testing.assert_allclose(info["ergodic_residuals"], average, atol=0.1 * np.abs(average).max())


def test_picture_and_text_show_the_horizon(market):
    env = gym.make("Portfolio-v0", problem=market, render_mode="rgb_array", horizon=3)
    env.reset(seed=0)
    before = env.render()
    env.step(np.zeros(60, dtype=np.float32))
    after = env.render()
    assert before.shape == after.shape and before.dtype == np.uint8
    assert (before != after).any()
    text = gym.make("Portfolio-v0", problem=market, render_mode="ansi")
    text.reset(seed=0)
    text.step(np.zeros(60, dtype=np.float32))
    assert "constraints met on average" in text.render() and "mean return" in text.render()
