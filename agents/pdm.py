"""Projected diffusion: the unconstrained sampler whose every clean estimate is made feasible."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pdi_gym.agents.pdi import DiffusionAgent
from pdi_gym.options import ProjectionOptions
from pdi_gym.problem import Problem, keeps
from pdi_gym.problems.mixture import MixtureOfGaussians
from pdi_gym.problems.portfolio import Portfolio
from pdi_gym.schedules import Schedule
from pdi_gym.scores import ScoreField


class PDM(DiffusionAgent):
    """λ = 0; every x̂0 is replaced by a nearby point of {f ≤ 0}, sample by sample."""

    name = "pdm"
    summary = "projected diffusion: every sample made feasible at every step"
    options_type = ProjectionOptions

    def _variant(
        self, problem: Problem, options: ProjectionOptions, schedule: Schedule, score: ScoreField
    ) -> dict[str, Any]:
        def correct(clean: Tensor, tau: int, xi: Tensor | None) -> Tensor:
            if keeps(problem, MixtureOfGaussians, "constraints", "decode"):
                return problem.project(cimmino(problem, clean, options.projection_steps))
            if keeps(problem, Portfolio, "constraints", "decode") and problem.limits is None:
                return cap_risk(problem, clean, options.projection_steps)
            return gradient_projection(problem, clean, xi, options)

        return {"correct": correct}


def cimmino(problem: MixtureOfGaussians, x: Tensor, steps: int) -> Tensor:
    """Cimmino's parallel projection onto {A x ≥ b}: the mean of the projections onto violated half-spaces."""
    row_square = problem.A.square().sum(-1)
    for _ in range(steps):
        excess = problem.constraints(x).clamp(min=0)
        violated = (excess > 0).sum(-1, keepdim=True)
        if not violated.any():
            break
        x = x + (excess / row_square) @ problem.A / violated.clamp(min=1)
    return x


def cap_risk(problem: Portfolio, z: Tensor, steps: int) -> Tensor:
    """Weights whose risk contribution is over budget are cut to it, and the rest share what is freed.

    A cut solves Σ_jj x_j² + r_j x_j = b_j for x_j > 0 with r_j = Σ_{i≠j} Σ_ji x_i held fixed: Newton's
    fixed point for one asset. Assets once cut take no part in the sharing, so the cuts settle.
    """
    shape, x = z.shape, problem.decode(z).flatten(0, -2)
    sigma, variance = problem.sigma.float(), problem.sigma.diagonal().float()
    budgets = 0.999 * problem.budgets.float()  # the margin lets the iteration end
    cut = torch.zeros_like(x, dtype=torch.bool)
    active = torch.arange(len(x))
    for _ in range(steps):
        w, held = x[active], cut[active]
        marginal = w @ sigma
        over = w * marginal > problem.budgets.float()
        left = over.any(-1) & ~(held | over).all(-1)
        if not left.any():
            break
        active, w, held, marginal, over = active[left], w[left], held[left], marginal[left], over[left]
        rest = marginal - variance * w
        root = 2 * budgets / (rest + (rest.square() + 4 * variance * budgets).sqrt())
        w = torch.where(over, root, w)
        held = held | over
        free = w.masked_fill(held, 0)
        spare = (1 - (w - free).sum(-1, keepdim=True)).clamp(min=0)
        x[active] = w - free + free * (spare / free.sum(-1, keepdim=True))
        cut[active] = held
    return problem.encode(x / x.sum(-1, keepdim=True)).view(shape)


def gradient_projection(problem: Problem, z: Tensor, xi: Tensor | None, options: ProjectionOptions) -> Tensor:
    """Gradient steps on ‖w − z‖² + ζ/2 ‖[f(w)]₊‖² from w = z, stopped early when all are feasible."""
    w = z.clone()
    for _ in range(options.projection_steps):
        excess = problem.constraints(problem.decode(w), xi).clamp(min=0)
        if not (excess > problem.tolerance).any():
            break
        _, pull = problem.lagrangian_grad(w, options.penalty * excess, xi, objective_weight=0.0)
        w = problem.project(w - options.projection_rate * (2 * (w - z) + pull))
    return w
