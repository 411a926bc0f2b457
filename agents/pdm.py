"""Projected diffusion: the unconstrained sampler whose every clean estimate is made feasible."""

from __future__ import annotations

import torch
from torch import Tensor

from pdi_gym.agents.base import Observer, Trace, to_policy
from pdi_gym.agents.pdi import DiffusionAgent
from pdi_gym.options import ProjectionOptions
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.problems.mixture import MixtureOfGaussians


class PDM(DiffusionAgent):
    """λ = 0; every x̂0 is replaced by a nearby point of {f ≤ 0}, sample by sample."""

    name = "pdm"
    summary = "projected diffusion: every sample made feasible at every step"
    options_type = ProjectionOptions

    def _sample(
        self,
        problem: Problem,
        options: ProjectionOptions,
        n: int,
        generator: torch.Generator,
        callback: Observer | None,
    ) -> TimeSharingPolicy:
        def correct(clean: Tensor, tau: int, xi: Tensor | None) -> Tensor:
            if isinstance(problem, MixtureOfGaussians):
                return problem.project(cimmino(problem, clean, options.projection_steps))
            return gradient_projection(problem, clean, xi, options)

        trace = Trace(options.T, callback)
        samples = self._run(
            problem, options, n, generator, trace, dual_step=0.0, dual_init=0.0, correct=correct
        )
        return to_policy(problem, samples, {"trace": trace.arrays()})


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
