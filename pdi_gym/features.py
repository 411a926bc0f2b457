"""Natural units of a problem, and the numbers per coordinate that networks see of a decision.

Everything here comes from the gradients of f0 and f, so it works for any problem and does not change
when a user measures the objective in cents or the powers in milliwatts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Problem = Any
"""A `pdi_gym.problem.Problem`: that module imports this one."""

_PROBES, _DRAWS = 16, 64
_SEED = 0


@dataclass(frozen=True)
class Units:
    """The sizes that make the Lagrangian's parts comparable.

    With y = z/(2·action_scale), the latent over the width of its box: ∂f0/∂y_j is of the size
    `objective`, and a multiplier of the size `dual` gives λᵀ∂f/∂y_j that size too.
    """

    objective: float
    dual: float

    @property
    def residual(self) -> float:
        """The size of a residual that matters: that of f when its multiplier is `dual`."""
        return self.objective / self.dual


@torch.no_grad()
def measured_units(problem: Problem) -> Units:
    """Root mean squares of the gradients of f0 and of f under random signs, at random latents."""
    generator = torch.Generator().manual_seed(_SEED)
    width = 2 * problem.action_scale
    z = width * (torch.rand((_PROBES, problem.latent_dim), generator=generator) - 0.5)
    z = problem.project(z)
    signs = torch.randint(2, (_PROBES, problem.n_constraints), generator=generator) * 2.0 - 1
    parts = gradient_parts(problem, z, signs)
    objective, dual = (float(part.square().mean().sqrt()) * width for part in parts)
    if not (math.isfinite(objective) and math.isfinite(dual)):
        raise FloatingPointError(
            f"{type(problem).__name__}: the gradients of f0 and f are not finite at random decisions "
            f"within ±{problem.action_scale:g}: give the problem a bound"
        )
    # A problem may have no objective, or constraints that are flat almost everywhere.
    objective = objective or dual or 1.0
    return Units(objective, objective / (dual or objective))


def gradient_parts(problem: Problem, z: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
    """Latent gradients (..., d) of f0 and of λᵀf at z, averaged over a fixed sample of realisations.

    Both are differentiable where gradients are recorded, so that a network can be trained through them.
    """
    xi = problem.fixed_draws
    train = torch.is_grad_enabled()
    with torch.enable_grad():
        point = z if train and z.requires_grad else z.detach().requires_grad_(True)
        objective, constraints = problem.values(problem.decode(point), xi)
        values = objective.sum(), (lam * constraints).sum()
        found = []
        for value in values:
            grad = None
            if value.requires_grad:
                (grad,) = torch.autograd.grad(
                    value, point, create_graph=train, retain_graph=True, allow_unused=True
                )
            found.append(torch.zeros_like(point) if grad is None else grad)
    return (found[0], found[1]) if train else (found[0].detach(), found[1].detach())


def gradient_features(problem: Problem, x: Tensor, lam: Tensor) -> Tensor:
    """(..., d, 4): place in the box, and asinh of the gradients of f0, λᵀf and their sum, in units."""
    width = 2 * problem.action_scale
    z = problem.encode(x)
    own, pull = (g * (width / problem.units.objective) for g in gradient_parts(problem, z, lam))
    return torch.stack([z / width, own.asinh(), pull.asinh(), (own + pull).asinh()], -1)


def fixed_sample(problem: Problem) -> Tensor | None:
    """Realisations that are the same at every call."""
    return None if problem.exact else problem.draw(_DRAWS, torch.Generator().manual_seed(_SEED))
