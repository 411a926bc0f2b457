"""Annealing and dual momentum: each part switched off gives plain primal-dual inference back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pdi_gym.agents import make_agent
from pdi_gym.agents.adaptive import AnnealedScore
from pdi_gym.duals import Ascent
from pdi_gym.evaluation import evaluate
from pdi_gym.problems import Portfolio, WirelessPower
from pdi_gym.schedules import make_schedule
from pdi_gym.scores import MonteCarloScore
from tests.cases import Sensors, Unbounded, gaussian

OFF = {"heat": 1.0, "cool": 1.0, "momentum": 0.0, "margin": 0.0}


@pytest.mark.parametrize(
    "problem", [Sensors(), Unbounded(), Portfolio.instance(0, n_assets=10)], ids=lambda p: type(p).__name__
)
def test_switched_off_it_is_pdi(problem: Sensors | Unbounded | Portfolio) -> None:
    options = {"T": 20, "n_candidates": 2, "n_draws": 2, "dual_decay": 0.01, "dual_ramp": 0.5}
    options["margin"] = 0.0
    options["dual_step"] = make_agent("pdi-mc").options(problem).dual_step
    plain = make_agent("pdi-mc", **options).sample(problem, n=12)
    adaptive = make_agent("pdi-adaptive", **(options | OFF)).sample(problem, n=12)
    np.testing.assert_allclose(adaptive.actions, plain.actions, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(adaptive.duals, plain.duals, rtol=1e-4, atol=1e-6)


def test_momentum_multiplies_a_steady_push_by_its_geometric_sum() -> None:
    """A constant residual r gives v = r (1 + μ + μ² + …) → r/(1 − μ)."""
    rule, steps = Ascent(0.1, momentum=0.5, margin=0.2), []
    duals = rule.start(1, 1)
    for t in range(20):
        after = rule(duals, torch.full((1, 1, 1), 0.3), t)
        steps.append(float(after.lam - duals.lam))
        duals = after
    np.testing.assert_allclose(steps[:3], [0.05, 0.075, 0.0875], rtol=1e-5)
    np.testing.assert_allclose(steps[-1], 0.1, rtol=1e-4)
    assert float(rule(duals, torch.full((1, 1, 1), -99.0), 20).lam) == 0  # λ stays ≥ 0


def test_the_temperature_falls_from_hot_to_cold() -> None:
    problem, schedule = gaussian(10.0), make_schedule("cosine", 40)
    score = MonteCarloScore(problem, schedule, 0.5, 2)
    annealed = AnnealedScore(score, 4.0, 0.25)
    seen = [annealed.at(tau).beta for tau in (40, 20, 1)]
    np.testing.assert_allclose(seen, [2.0, 0.5, 0.125 * 16 ** (1 / 40)])  # ends and geometric middle


def test_it_serves_the_worst_users_of_a_network_better() -> None:
    problem = WirelessPower.instance(1, "validation", n_users=40)
    plain = evaluate(make_agent("pdi-mc").sample(problem), problem)
    adaptive = evaluate(make_agent("pdi-adaptive").sample(problem), problem)
    assert adaptive["mean_rate"] > plain["mean_rate"]
    assert adaptive["mean_violation"] < plain["mean_violation"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 1.0}, "momentum must be in \\[0, 1\\), got 1.0"),
        ({"heat": 0}, "heat must be a finite number > 0, got 0"),
        ({"score": "net"}, "score must be 'mc' for pdi-adaptive, got 'net'"),
    ],
)
def test_bad_options(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_agent("pdi-adaptive", **options)
