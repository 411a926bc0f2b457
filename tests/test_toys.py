"""Every learned agent solves tiny problems whose constraints are active, and learns an exact score."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pdi_gym.agents import make_agent
from pdi_gym.evaluation import evaluate
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower
from pdi_gym.schedules import make_schedule
from pdi_gym.scores import ExactScore, NetworkScore
from tests.training_cases import LEARNED, learn, read_by

TOY = {
    "steps": 100,
    "validate_every": 50,
    "seed_rollouts": 4,
    "chains": 20,
    "groups": 1,
    "keep": 200,
    "validation_n": 20,
    "validation_instances": 1,
    "width": 16,
    "depth": 2,
    "expert_steps": 300,
}
GRAPH_TOY = TOY | {"messages": 8}


@dataclass(frozen=True)
class Toy:
    """A problem whose constraints are active, and how the agents are trained on it."""

    problem: Any
    naive: tuple[str, ...]
    """Agents that do not solve it."""
    training: dict[str, Any]
    own: dict[str, dict[str, Any]]
    """What differs for one agent; T goes to its sampler."""
    unit: float = 1.0
    """Of the violation."""


TOYS = {
    "users": Toy(
        WirelessPower.instance(0, "validation", n_users=8, r_min=2.0),
        ("unconstrained", "random", "full-power"),
        GRAPH_TOY | {"steps": 150, "ema": 0.95},
        {"dt": {"steps": 200, "inner": 5, "dual_step": 0.5}},
    ),
    "plane": Toy(
        MixtureOfGaussians.toy(),
        ("unconstrained", "random"),
        TOY
        | {
            "steps": 400,
            "validate_every": 100,
            "chains": 64,
            "problems": 4,
            "pairs": 64,
            "inner": 50,
            "width": 64,
            "validation_n": 64,
        },
        # Without an average of its steps, seeds and rounding move the objective about twice as far.
        {
            "pdi-net": {"ema": 0.95},
            "dt": {"T": 50, "chains": 32, "ema": 0.9, "inner": 5, "steps": 500, "dual_step": 0.1},
        },
    ),
    "assets": Toy(
        (ASSETS := Portfolio.instance(1, 12, 4, split="validation")),
        ("unconstrained", "random", "equal-weight"),
        GRAPH_TOY | {"steps": 250, "problems": 4, "pairs": 32, "inner": 25, "ema": 0.95, "validation_n": 64},
        {
            "dt": {"T": 50, "steps": 300, "inner": 5, "validate_every": 50, "dual_step": 75.0},
            "st": {
                "expert_steps": 1000,
                "expert_margin": 0.5 * float(ASSETS.budgets.mean()),
                "steps": 500,
                "keep": 1000,
            },
        },
        float(ASSETS.budgets.mean()),
    ),
}

LIMITS = {
    ("users", ""): (0.02, 0.1),
    ("assets", ""): (0.03, 0.1),
    # The residuals of its two modes lie 9 and 5 apart: 200 samples have standard errors of .3 and .2.
    ("plane", ""): (0.25, 1.5),
    # Feasible within these steps, while its return still rises.
    ("assets", "dt"): (0.03, 0.4),
    # The expert keeps half a mean budget to spare, since a network blurs what it imitates: that costs return.
    ("assets", "st"): (0.05, 0.2),
    # Multipliers that hold both modes in balance are met along PDI's path; an average network trails them.
    ("plane", "dt"): (0.8, 3.0),
    # What it imitates is a descent that ends at one point: 13 above Monte Carlo.
    ("plane", "st"): (0.1, 18.0),
    # Its first pairs are of those rollouts.
    ("plane", "pdi-net-warm"): (0.25, 3.0),
}
"""Largest violation (bit/s/Hz, mean budgets, standard deviations) and excess of the objective over the
Monte-Carlo score's: a share of it for users and assets, absolute on the plane."""


def shortfall(kind: str, agent: Any) -> tuple[float, float]:
    """An agent's violation and the excess of its objective, in the units of the limits."""
    toy = TOYS[kind]
    got, reference = (
        evaluate(a.sample(toy.problem, n=200), toy.problem, trials=5) for a in (agent, make_agent("pdi-mc"))
    )
    scale = 1.0 if kind == "plane" else abs(reference["objective"])
    return got["mean_violation"] / toy.unit, (got["objective"] - reference["objective"]) / scale


def limits(kind: str, name: str) -> tuple[float, float]:
    return LIMITS.get((kind, name), LIMITS[kind, ""])


def worst(kind: str, agent: Any, name: str) -> float:
    """The larger of the two shares of the limits for agents of that name: below 1 is solved."""
    return max(have / limit for have, limit in zip(shortfall(kind, agent), limits(kind, name), strict=True))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Any learned agent, trained for seconds on a toy."""
    out = tmp_path_factory.mktemp("toys")

    def get(kind: str, name: str) -> Any:
        folder, start = out / kind / name, {"pdi-net-warm": "st", "dt-plus": "dt"}.get(name)
        if not folder.exists():
            if start is not None:
                get(kind, start)
            settings = read_by(name, TOYS[kind].training) | TOYS[kind].own.get(name, {})
            before = None if start is None else out / kind / start
            learn(name, folder, [TOYS[kind].problem], start=before, **settings)
        return make_agent(name).load(folder)

    return get


# DT+ freezes its multipliers at one iterate. Where they swing, it cannot hold what their time average held:
# its samples fall to one vertex of the assets and to one mode of the plane.
CASES = [(kind, name) for kind in TOYS for name in LEARNED if name != "dt-plus" or kind == "users"]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_learned_agents_solve_toys(trained: Any, kind: str, name: str) -> None:
    """What the same network does not before its training."""
    agent = trained(kind, name)
    violation, excess = shortfall(kind, agent)
    most_violation, most_excess = limits(kind, name)
    assert violation < most_violation, (violation, excess)
    assert excess < most_excess, (violation, excess)
    torch.manual_seed(0)
    agent.network = agent.network.config.build()
    assert worst(kind, agent, name) > 1


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_naive_agents_do_not_solve_the_toys(kind: str, name: str) -> None:
    for naive in TOYS[kind].naive:
        assert worst(kind, make_agent(naive), name) > 1, naive


def test_a_network_learns_the_score_of_a_gaussian(tmp_path: Path) -> None:
    """Against the closed form, at mid noise and multipliers that the prior covers: error below .15."""
    problem = MixtureOfGaussians(
        means=torch.zeros(1, 2),
        covariances=torch.tensor([[[0.5, 0.2], [0.2, 1.0]]]),
        weights=torch.ones(1),
        A=torch.tensor([[1.0, 0.0]]),
        b=torch.tensor([0.5]),
    )
    agent = make_agent("pdi-net", beta=1.0, T=50, n_candidates=128, dual_step=0.05, alpha_min=0.0).learn(
        [problem],
        out=tmp_path,
        quiet=True,
        steps=800,
        validate_every=400,
        seed_rollouts=4,
        chains=64,
        problems=4,
        pairs=64,
        inner=100,
        width=64,
        depth=2,
        predicts="clean",
        prior_low=0.5,
        prior_high=0.5,
    )
    schedule = make_schedule("cosine", 50)
    generator = torch.Generator().manual_seed(0)
    exact, learnt = ExactScore(problem, schedule, 1.0), NetworkScore(agent.network, problem, schedule)
    for tau in (20, 25, 30):
        for value in (0.2, 0.6):
            lam = torch.full((1, 1, 1), value)
            mean = torch.tensor([0.5, 0.2]) * value  # C Aᵀλ
            root = torch.linalg.cholesky(problem.covariances[0])
            x = mean + torch.randn(1, 500, 2, generator=generator) @ root.T
            z = schedule.alpha[tau] * x + schedule.sigma[tau] * torch.randn(x.shape, generator=generator)
            truth = exact(z, tau, lam, None, generator).value
            error = learnt(z, tau, lam, None, generator).value - truth
            assert error.norm() / truth.norm() < 0.15
