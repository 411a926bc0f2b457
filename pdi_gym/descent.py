"""Deterministic counterparts of the samplers: descent on the Lagrangian, and the dual method around it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pdi_gym.duals import Ascent, DualRule
from pdi_gym.options import ExpertOptions
from pdi_gym.problem import Problem
from pdi_gym.samplers import Callback, Step

_FIRST, _SECOND = 0.9, 0.99
"""Adam's forgetting factors: short memories, since the multipliers move the target."""


class Adam:
    """Adam's direction for latents (n, d), without their gradient's scale."""

    def __init__(self, z: Tensor):
        self.first, self.second, self.t = torch.zeros_like(z), torch.zeros_like(z), 0

    def direction(self, grad: Tensor) -> Tensor:
        self.t += 1
        self.first.lerp_(grad, 1 - _FIRST)
        self.second.lerp_(grad.square(), 1 - _SECOND)
        size = (self.second / (1 - _SECOND**self.t)).sqrt_().add_(1e-12)
        return self.first / (1 - _FIRST**self.t) / size


def random_latents(problem: Problem, n: int, generator: torch.Generator) -> Tensor:
    """Starts for descent (n, d): uniform in the problem's box, or near the origin where there is none."""
    if math.isinf(problem.bound):
        return problem.project(0.1 * torch.randn((n, problem.latent_dim), generator=generator))
    return problem.bound * (2 * torch.rand((n, problem.latent_dim), generator=generator) - 1)


class DescentStep(Protocol):
    """How latents move downhill on f0 + λᵀf, by the geometry of their set."""

    def __call__(self, z: Tensor, lam: Tensor, xi: Tensor | None, rate: float) -> Tensor:
        """The next latents (n, d); a larger rate is a longer step."""
        ...


class AdamStep:
    """Adam in the latent space, then the projection: for boxes, and wherever nothing better is known."""

    def __init__(self, problem: Problem, z: Tensor):
        self.problem, self.adam = problem, Adam(z)

    def __call__(self, z: Tensor, lam: Tensor, xi: Tensor | None, rate: float) -> Tensor:
        _, grad = self.problem.lagrangian_grad(z, lam, xi)
        return self.problem.project(z - rate * self.adam.direction(grad))


class OwnStep:
    """The problem's own proximal step, with κ = 1/rate."""

    def __init__(self, problem: Problem):
        self.problem = problem

    def __call__(self, z: Tensor, lam: Tensor, xi: Tensor | None, rate: float) -> Tensor:
        x = self.problem.proximal(self.problem.decode(z), lam, 1 / rate)
        return self.problem.encode(x)


def descent_step(problem: Problem, z: Tensor) -> DescentStep:
    """The step that suits the problem's set: its own where it offers one, else Adam."""
    return AdamStep(problem, z) if getattr(problem, "proximal", None) is None else OwnStep(problem)


def descend(
    problem: Problem,
    z: Tensor,
    lam: Tensor,
    *,
    steps: int,
    rate: float,
    generator: torch.Generator,
    n_draws: int = 1,
) -> Tensor:
    """Latents (n, d) near local minima of f0 + λᵀf, by steps whose rate falls to zero."""
    step = descent_step(problem, z)
    for t in range(steps):
        xi = None if problem.exact else problem.draw(n_draws, generator)
        z = step(z, lam, xi, rate * (1 - t / steps))
        if not torch.isfinite(z).all():
            raise FloatingPointError(f"descent on {type(problem).__name__} is not finite at step {t}")
    return z


@dataclass(frozen=True)
class DualPath:
    """Latents (n, d) from the window of a dual method, and the multipliers (m,): last and window average."""

    z: Tensor
    last: Tensor
    duals: Tensor


def dual_method(
    problem: Problem,
    z: Tensor,
    *,
    n: int,
    steps: int,
    rate: float,
    duals: DualRule,
    generator: torch.Generator,
    window: float = 0.5,
    n_draws: int = 1,
    callback: Callback | None = None,
) -> DualPath:
    """z (chains, d) descends f0 + λᵀf by `descent_step` while λ ascends by the dual rule.

    Descent never settles where constraints conflict: the multipliers keep switching decisions, and
    n of the last iterates, evenly spaced over the window, hold every phase of that cycle.
    """
    state = duals.start(1, problem.n_constraints)
    start = steps - max(1, round(window * steps), math.ceil(n / len(z)))
    if start < 0:
        raise ValueError(f"steps must be ≥ {math.ceil(n / len(z))} to give {n} decisions, got {steps}")
    kept = torch.empty(steps - start, *z.shape)
    total = torch.zeros(1, problem.n_constraints)
    step = descent_step(problem, z)
    for t in range(steps):
        xi = None if problem.exact else problem.draw(n_draws, generator)
        lam = state.lam.squeeze(1)
        z = step(z, lam, xi, rate)
        residual = problem.constraints(problem.decode(z), xi).mean(0, keepdim=True)
        if callback is not None:
            callback(Step(t, z.unsqueeze(0), z.unsqueeze(0), lam, residual, float("nan")))
        state = duals(state, residual.unsqueeze(1), t)
        if not torch.isfinite(z).all() or not torch.isfinite(state.lam).all():
            raise FloatingPointError(
                f"the dual method on {type(problem).__name__} diverged at step {t}: "
                "lower primal_step or dual_step"
            )
        if t >= start:
            kept[t - start] = z
            total += state.lam.squeeze(1) / len(kept)
    pool = kept.flatten(0, 1)
    chosen = pool[torch.linspace(0, len(pool) - 1, n).long()]
    return DualPath(chosen, state.lam.flatten(), total.squeeze(0))


def run_expert(
    problem: Problem,
    z: Tensor,
    options: ExpertOptions,
    *,
    n: int,
    generator: torch.Generator,
    margin: float = 0.0,
    callback: Callback | None = None,
) -> DualPath:
    """`dual_method` from z (chains, d) as the options describe it, with `margin` more to spare."""
    steps, eta, fall = options.steps, options.dual_step, options.dual_fall
    return dual_method(
        problem,
        z,
        n=n,
        steps=steps,
        rate=options.primal_step,
        duals=Ascent(
            (lambda t: eta * (1 - t / steps) ** fall) if fall else eta,
            options.dual_init,
            margin=options.margin + margin,
            residual_max=options.residual_max,
        ),
        window=options.window,
        n_draws=options.n_draws,
        generator=generator,
        callback=callback,
    )
