"""Diffusion posterior sampling: the unconstrained sampler guided by the violation of each sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pdi_gym.agents.pdi import DiffusionAgent
from pdi_gym.options import GuidanceOptions
from pdi_gym.problem import Problem
from pdi_gym.schedules import Schedule
from pdi_gym.scores import Estimate, ScoreField


class Guide:
    """A score field that remembers where it was asked, to send a gradient back through x̂0(x_t)."""

    def __init__(self, problem: Problem, score: ScoreField, schedule: Schedule, strength: float):
        self.problem, self.score, self.schedule, self.strength = problem, score, schedule, strength

    def __call__(
        self, z: Tensor, tau: int, lam: Tensor, xi: Tensor | None, generator: torch.Generator
    ) -> Estimate:
        self._z, self._lam, self._noise = z, lam, generator.get_state()
        estimate = self.score(z, tau, lam, xi, generator)
        self._value = estimate.value
        return estimate

    def correct(self, clean: Tensor, tau: int, xi: Tensor | None) -> Tensor:
        """x̂0 ← project(x̂0 − s σ_t ∇_{x_t} Σ_j [f_j(x̂0)]₊²)."""
        excess = self.problem.constraints(self.problem.decode(clean), xi).clamp(min=0)
        _, slope = self.problem.lagrangian_grad(clean, 2 * excess, xi, objective_weight=0.0)
        slope = slope.masked_fill(clean.abs() >= self.problem.bound, 0)  # the projection stops these
        shift = self.strength * float(self.schedule.sigma[tau]) * self._pull_back(slope, tau, xi)
        return self.problem.project(clean - shift)

    def _pull_back(self, slope: Tensor, tau: int, xi: Tensor | None) -> Tensor:
        """(∂x̂0/∂x_t)ᵀ v for x̂0 = (x_t + σ² s(x_t))/α.

        A score is a gradient, so its Jacobian is symmetric and its product with v is the derivative
        of s along v: one more score call, with the same candidates.
        """
        size = float(slope.square().mean().sqrt())
        if size == 0:
            return slope
        step = 1e-3 / size
        generator = torch.Generator()
        generator.set_state(self._noise)
        ahead = self.score(self._z + step * slope, tau, self._lam, xi, generator).value
        alpha, sigma = float(self.schedule.alpha[tau]), float(self.schedule.sigma[tau])
        return (slope + sigma**2 / step * (ahead - self._value)) / alpha


class DPS(DiffusionAgent):
    """λ = 0; every x̂0 is moved down the gradient of its own violation with respect to x_t.

    The shift is made in the clean space, where the projection bounds it; made in x_t, it would leave
    the box that powers and weights live in.
    """

    name = "dps"
    summary = "diffusion posterior sampling: guided by each sample's violation"
    options_type = GuidanceOptions

    def _variant(
        self, problem: Problem, options: GuidanceOptions, schedule: Schedule, score: ScoreField
    ) -> dict[str, Any]:
        guide = Guide(problem, score, schedule, options.guidance)
        return {"score": guide, "correct": guide.correct}
