"""A user's own problems with known optima, in any units: agents answer them by their defaults.

Limits: feasible means that no average residual is above 1 % of its constraint's size, the right-hand
side that the problem states; the objective may be above the optimum by 25 % (`pdi-mc`), 1 % (`pdi-cg`)
and 5 % (`expert`) of the optimum, or of the cost's range where the optimum is near 0. Averages are
true ones, in closed form. `runs/own_problems.py` does all problems in all units; here are a few, to be quick.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pdi_gym.advice import PolicyWarning
from pdi_gym.agents import make_agent
from pdi_gym.problem import autograd_lagrangian_grad
from pdi_gym.problems import MixtureOfGaussians
from pdi_gym.samplers import Step
from pdi_gym.scales import in_scales, pilot
from tests.own_problems import OWN, Cover, Pull, Signal, Slack, Switch, Units, shortfall

LIMITS = {"pdi-mc": 0.25, "expert": 0.05, "pdi-cg": 0.01}
FEASIBLE = 0.01
QUICK = [
    ("pdi-mc", "signal"),
    ("pdi-mc", "switch"),
    ("pdi-mc", "pull"),
    ("expert", "wells"),
    ("expert", "blend"),
    ("expert", "patrol"),
    ("pdi-cg", "switch"),
    ("pdi-cg", "shares"),
    ("pdi-cg", "cover"),
]


@pytest.mark.parametrize(("agent", "name"), QUICK)
def test_defaults_find_the_optimum(agent: str, name: str) -> None:
    problem = OWN[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PolicyWarning)
        policy = make_agent(agent).sample(problem)
    gap, violation = shortfall(problem, policy)
    assert violation <= FEASIBLE and -0.05 <= gap <= LIMITS[agent]


@pytest.mark.parametrize("agent", ["pdi-mc", "pdl", "dps", "expert", "pdi-cg"])
@pytest.mark.parametrize("name", ["signal", "pull", "slack"])
def test_units_are_only_a_name(agent: str, name: str) -> None:
    """By powers of two, which no rounding sees, policies are equal to the last bit; λ is a price."""
    short = {"T": 30} if agent in ("pdi-mc", "dps") else {"steps": 30}
    if agent == "pdi-cg":
        short |= {"rounds": 2, "final_draws": 200}
    make = OWN[name]
    count = make().n_constraints
    units = Units(2.0**10, tuple(2.0 ** (-10 + 20 * j) for j in range(count)), 2.0**-10)
    policies = []
    for problem in (make(), make(units)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PolicyWarning)
            policies.append(make_agent(agent, **short).sample(problem, n=12))
    plain, scaled = policies
    np.testing.assert_array_equal(scaled.actions, plain.actions * units.decisions)
    np.testing.assert_allclose(scaled.weights, plain.weights, rtol=1e-6, atol=1e-9)
    if plain.duals is not None and scaled.duals is not None:
        price = units.objective / np.array(units.constraints)
        np.testing.assert_allclose(scaled.duals, plain.duals * price, rtol=1e-5)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_a_thousand_times_more_or_less_is_the_same_within_rounding(factor: float) -> None:
    """Rounding in the problem's own units, 1e-7, is carried along by 400 steps at a low temperature: single
    decisions move by a few hundredths at most, their mean by less than 0.003 where they spread by 0.1.
    """
    for units in (
        Units(objective=factor),
        Units(constraints=(factor, 1 / factor)),
        Units(decisions=factor),
        Units(factor, 1 / factor, factor),
    ):
        policies = [make_agent("pdi-mc").sample(p, n=50) for p in (Slack(), Slack(units))]
        plain, scaled = (p.actions for p in policies)
        moved = np.abs(scaled / units.decisions - plain)
        assert np.median(moved) < 0.01 and moved.mean() < 0.03
        np.testing.assert_allclose((scaled / units.decisions).mean(0), plain.mean(0), atol=3e-3)


def test_the_pilot_knows_the_spread_of_a_uniform_box() -> None:
    """Σx of three uniforms on [−2, 2] varies by 2, |x|² by √(3·64/45) about 4; single sums up to a tenth."""
    scales = pilot(Signal())
    assert scales.latent == 2
    np.testing.assert_allclose(scales.constraints, [2.0], rtol=0.1)
    np.testing.assert_allclose(scales.objective, math.sqrt(3 * 16 * 4 / 45), rtol=0.1)
    np.testing.assert_allclose(scales.centre, 4, rtol=0.1)
    assert pilot(Signal()) == scales  # its generator is its own


def test_the_pilot_reaches_as_far_as_decisions_have_to_go() -> None:
    """Without a box: |aᵀx| is b at a length b/(|a| E|N|) with E|N| = √(2/π), whatever the unit."""
    expected = Pull.b / float(Pull.a.norm()) / math.sqrt(2 / math.pi)
    for decisions in (1e-6, 1.0, 1e6):
        np.testing.assert_allclose(
            pilot(Pull(Units(decisions=decisions))).latent / decisions, expected, rtol=0.2
        )

    class Far(Pull):
        """Nothing is violated at the origin, but the objective is least far from it."""

        def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
            return (x - 1e4).square().sum(-1)

        def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
            return x[..., :1] - 2e4

    assert 2e3 < pilot(Far()).latent < 1e5


def test_what_does_not_vary_has_a_scale_too() -> None:
    class Flat(Slack):
        def cost(self, x: Tensor, xi: Tensor | None) -> Tensor:
            return torch.full(x.shape[:-1], 7.0)

        def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
            return torch.zeros((*x.shape[:-1], 2))

    scales = pilot(Flat())
    assert scales.objective == 7 and scales.constraints == (1.0, 1.0)


def test_a_problem_in_its_scales_is_the_same_problem() -> None:
    problem = Cover(Units(50.0, tuple(10.0 ** (j - 5) for j in range(10)), 0.01))
    scales = pilot(problem)
    view = in_scales(problem, scales)
    assert type(view).__name__ == "Cover" and view.bound == 1
    z = 2 * torch.rand((6, 5), generator=torch.Generator().manual_seed(0)) - 1
    lam = torch.rand((1, 10), generator=torch.Generator().manual_seed(1))
    x = view.decode(z)
    torch.testing.assert_close(x, z * problem.bound)
    torch.testing.assert_close(view.encode(x), z)
    torch.testing.assert_close(scales.value(view.objective(x)), problem.objective(x))
    torch.testing.assert_close(scales.residuals(view.constraints(x)), problem.constraints(x))
    for own, generic in zip(
        view.lagrangian_grad(z, lam), autograd_lagrangian_grad(view, z, lam), strict=True
    ):
        torch.testing.assert_close(own, generic, rtol=1e-4, atol=1e-4)


def test_settings_say_their_units() -> None:
    agent = make_agent("pdi-mc")
    scales = agent.scales(Signal())
    assert scales == pilot(Signal()) and agent.config(Signal())["scales"]["latent"] == 2
    shipped = MixtureOfGaussians.toy()
    assert agent.scales(shipped) is None and "scales" not in agent.config(shipped)
    for other in (make_agent("pdi-mc", score="exact"), make_agent("pdi-net"), make_agent("random")):
        assert other.scales(Signal()) is None


def test_callbacks_and_traces_are_in_own_units() -> None:
    """The residual of a clean estimate is what the user's function says of it."""
    problem = Slack(Units(1e3, (1e-3, 10.0), 100.0))
    seen: list[Step] = []
    policy = make_agent("pdi-mc", T=20).sample(problem, n=6, callback=seen.append)
    for step in seen:
        expected = problem.constraints(step.clean).mean(1)
        torch.testing.assert_close(step.residual, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(policy.info["trace"]["duals"][-1], seen[-1].lam[0], rtol=1e-5)
    found = make_agent("pdi-cg").sample(problem, n=20)
    x = torch.as_tensor(found.actions)
    value = float(torch.as_tensor(found.weights) @ problem.objective(x).double())
    np.testing.assert_allclose(found.info["value"], value, rtol=1e-4)
    np.testing.assert_allclose(found.info["bound"], 500, rtol=1e-2)


def test_a_useless_score_is_named() -> None:
    with pytest.warns(PolicyWarning, match=r"unconstrained on Signal: .* rests on 1\.\d candidates .* raise"):
        make_agent("unconstrained", T=50, n_candidates=16, beta=1e-5).sample(Signal(), n=20)


def test_an_infeasible_policy_is_named() -> None:
    class Impossible(Switch):
        @property
        def constraint_names(self) -> tuple[str, ...]:
            return ("more than there is",)

        def excess(self, x: Tensor, xi: Tensor | None) -> Tensor:
            return 1.5 - x

    for agent in ("pdi-cg", "expert", "pdl"):
        with pytest.warns(PolicyWarning, match=f"{agent} on Impossible: 1 of 1 .* more than there is .* try"):
            make_agent(agent).sample(Impossible(), n=20)
    with warnings.catch_warnings():  # who does not aim at constraints does not miss them
        warnings.simplefilter("error", PolicyWarning)
        make_agent("random").sample(Impossible(), n=20)
        make_agent("unconstrained").sample(Impossible(), n=20)


@pytest.mark.parametrize("agent", ["pdi-cg", "expert"])
def test_noise_alone_is_no_reason_to_warn(agent: str) -> None:
    """Optimal policies lie on the limit, where every estimate is above it half of the time."""
    options: dict[str, Any] = {"rounds": 5} if agent == "pdi-cg" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", PolicyWarning)
        for seed in range(2):
            make_agent(agent, **options).sample(Signal(), n=50, seed=seed)
