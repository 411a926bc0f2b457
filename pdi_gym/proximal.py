"""Dual ascent around proximal steps: what `pdi-prox` samples with, and what its training rolls out.

A proximal step maps a decision, or a noisy one, near the minimum of f0 + λᵀf + b·distance to it. The
problem may have one in closed form (`Problem.proximal`), else a network is trained to take it.
All of this happens in a problem's natural units, so that one set of numbers suits many problems.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from pdi_gym.duals import DualRule
from pdi_gym.features import Units
from pdi_gym.problem import Problem
from pdi_gym.samplers import Callback, Reverse, Samples, Step, pdi
from pdi_gym.schedules import Schedule
from pdi_gym.scores import Estimate

_CHUNK = 40
"""Samples of one pass through a network."""
_SPREAD = 0.02
"""Standard deviation of a stream's first decisions, so that chains without noise are not all one."""


class Scaled(Problem):
    """A problem in natural units: latents in ±½, objective, multipliers and residuals of order one."""

    bound = 0.5

    def __init__(self, problem: Problem):
        self.problem = problem
        self.width, self.sizes = 2 * problem.action_scale, problem.units
        self.latent_dim, self.n_constraints = problem.latent_dim, problem.n_constraints
        self.exact, self.graph = problem.exact, problem.graph

    @cached_property
    def units(self) -> Units:
        return Units(1.0, 1.0)

    def decode(self, z: Tensor) -> Tensor:
        return self.problem.decode(z if self.width == 1 else self.width * z)

    def encode(self, x: Tensor) -> Tensor:
        return self.problem.encode(x) / self.width

    def project(self, z: Tensor) -> Tensor:
        return self.problem.project(self.width * z) / self.width

    def draw(self, n: int, generator: torch.Generator) -> Tensor | None:
        return self.problem.draw(n, generator)

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return self.problem.objective(x, xi) / self.sizes.objective

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return self.problem.constraints(x, xi) / self.sizes.residual

    def lagrangian_grad(
        self, z: Tensor, lam: Tensor, xi: Tensor | None = None, objective_weight: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        own = self.problem.lagrangian_grad(self.width * z, self.sizes.dual * lam, xi, objective_weight)
        return own[0] / self.sizes.objective, own[1] * (self.width / self.sizes.objective)

    def features(self, x: Tensor, lam: Tensor) -> Tensor:
        return self.problem.features(x, lam if self.sizes.dual == 1 else self.sizes.dual * lam)


class ProximalStep(Protocol):
    def __call__(self, z: Tensor, alpha: float, sigma: float, lam: Tensor) -> Tensor:
        """Scaled latents (C, I, d) of low Lagrangian under λ (C, 1, m) near z/α, z having noise σ."""
        ...


@dataclass
class AnalyticStep:
    """The problem's own step, with κ = b."""

    scaled: Scaled
    b: float

    def __call__(self, z: Tensor, alpha: float, sigma: float, lam: Tensor) -> Tensor:
        x = self.scaled.decode(z / alpha)
        return self.scaled.encode(self.scaled.problem.proximal(x, self.scaled.sizes.dual * lam, self.b))


@dataclass
class LearnedStep:
    """A network's step."""

    network: Callable[..., Tensor]
    scaled: Scaled
    b: float

    @torch.no_grad()
    def __call__(self, z: Tensor, alpha: float, sigma: float, lam: Tensor) -> Tensor:
        levels = torch.tensor([[alpha]]), torch.tensor([[sigma]])
        b = torch.tensor([[self.b]])
        groups, chains, d = z.shape
        if groups == 1:
            duals = [lam[0]] * math.ceil(chains / _CHUNK)
        else:
            duals = list(torch.split(lam.expand(groups, chains, -1).reshape(groups * chains, -1), _CHUNK))
        parts = torch.split(z.reshape(-1, d), _CHUNK)
        clean = [
            self.network(part, *levels, own, self.scaled, b) for part, own in zip(parts, duals, strict=True)
        ]
        return torch.cat(clean).view(z.shape)


@dataclass
class StepScore:
    """A proximal step seen as a score field: s = (α x̂ − z)/σ²."""

    step: ProximalStep
    schedule: Schedule

    def __call__(
        self, z: Tensor, tau: int, lam: Tensor, xi: Tensor | None, generator: torch.Generator
    ) -> Estimate:
        alpha, sigma = float(self.schedule.alpha[tau]), float(self.schedule.sigma[tau])
        return Estimate((alpha * self.step(z, alpha, sigma, lam) - z) / sigma**2)


Watch = Callable[[Tensor, Tensor], None]
"""(z, λ) before every step of a stream."""


def stream(
    scaled: Scaled,
    step: ProximalStep,
    duals: DualRule,
    *,
    n: int,
    n_draws: int,
    chains: int,
    warm: int,
    alpha: float,
    sigma: float,
    generator: torch.Generator,
    groups: int = 1,
    watch: Watch | None = None,
    callback: Callback | None = None,
) -> Samples:
    """Chains held at one noise level while their multipliers ascend: z ← α x̂ + σ ε, x̂ ← step(z, λ).

    After `warm` steps every estimate is kept, until there are n. The multipliers of a group may
    oscillate: all phases of that cycle are needed, so no estimate is left out.
    """
    m = scaled.n_constraints
    count = warm + math.ceil(n / (groups * chains))
    z = scaled.project(_SPREAD * torch.randn((groups, chains, scaled.latent_dim), generator=generator))
    state = duals.start(groups, m)
    kept, path = torch.empty(count - warm, *z.shape), torch.empty(count - warm, groups, m)
    for t in range(count):
        xi = None if scaled.exact else scaled.draw(n_draws, generator)
        lam = state.lam
        if sigma > 0:
            z = alpha * z + sigma * torch.randn(z.shape, generator=generator)
        if watch is not None:
            watch(z, lam)
        noisy, z = z, step(z, alpha, sigma, lam)
        residual = scaled.constraints(scaled.decode(z), xi).mean(1, keepdim=True)
        if callback is not None:
            callback(Step(t, noisy, z, lam.squeeze(1), residual.squeeze(1), float("nan")))
        if t >= warm:
            kept[t - warm], path[t - warm] = z, lam.squeeze(1)
        state = duals(state, residual, t)
        if not torch.isfinite(z).all() or not torch.isfinite(state.lam).all():
            raise FloatingPointError(
                f"the stream on {type(scaled.problem).__name__} is not finite at step {t}: lower dual_step"
            )
    return Samples(kept.flatten(0, 2)[-n:], state.lam.squeeze(1), path)


def denoise(
    scaled: Scaled,
    step: ProximalStep,
    duals: DualRule,
    schedule: Schedule,
    *,
    n: int,
    n_draws: int,
    groups: int,
    generator: torch.Generator,
    last: int = 0,
    callback: Callback | None = None,
    score: Any = None,
) -> Samples:
    """Algorithm 2 with a proximal step in the place of the score.

    With `last` > 0 the policy is the clean estimates of the last steps, instead of the final samples.
    """
    clean: list[Tensor] = []

    def observe(event: Step) -> None:
        if event.t >= schedule.T - last:
            clean.append(event.clean)
        if callback is not None:
            callback(event)

    samples = pdi(
        scaled,
        StepScore(step, schedule) if score is None else score,
        schedule,
        n=n,
        groups=groups,
        generator=generator,
        duals=duals,
        reverse=Reverse(n_draws=n_draws),
        callback=observe,
    )
    if last == 0:
        return samples
    return Samples(torch.cat([c.flatten(0, 1) for c in clean]), samples.duals, samples.dual_path[-last:])
