"""The two sampling loops: primal-dual inference and primal-dual Langevin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pdi_gym.diffusion import KERNELS, tweedie
from pdi_gym.problem import Problem
from pdi_gym.schedules import Schedule
from pdi_gym.scores import ScoreField
from pdi_gym.validation import check_choice, check_int, check_number

DualStep = float | Callable[[int], float]


class Step(NamedTuple):
    """What a callback sees after reverse step t = 0 … T−1; λ is the one the step used."""

    t: int
    z: Tensor
    """(C, I, d) samples after the step."""
    clean: Tensor
    """(C, I, d) projected Tweedie estimates that the step used."""
    lam: Tensor
    """(C, m) multipliers before the update."""
    residual: Tensor
    """(C, m) average constraint residuals that drive the update."""
    effective_sample_size: float
    """Of the Monte-Carlo score, mean over samples; NaN for other scores."""


Callback = Callable[[Step], None]
Correction = Callable[[Tensor, int, Tensor | None], Tensor]
DualUpdate = Callable[[Tensor, Tensor, int], Tensor]
"""(λ, residual, both (C, 1, m), t) → the next λ ≥ 0."""


@dataclass(frozen=True)
class Samples:
    """Latents z (n, d), the last multipliers (C, m), and the path of all those used (T, C, m)."""

    z: Tensor
    duals: Tensor
    dual_path: Tensor

    @property
    def mean_duals(self) -> Tensor:
        """(C, m) time average, of the multipliers before each update."""
        return self.dual_path.mean(0)


def pdi(
    problem: Problem,
    score: ScoreField,
    schedule: Schedule,
    *,
    n: int,
    generator: torch.Generator,
    groups: int = 1,
    dual_step: DualStep = 0.0,
    dual_init: float | Tensor = 0.0,
    dual_max: float | None = None,
    dual_decay: float = 0.0,
    n_draws: int = 1,
    kernel: str = "posterior",
    alpha_min: float = 0.0,
    tweedie_at: str = "current",
    correct: Correction | None = None,
    dual_update: DualUpdate | None = None,
    callback: Callback | None = None,
) -> Samples:
    """Algorithm 2, primal-dual inference: denoise while the multipliers ascend.

    n samples in `groups` chains, each with its own λ. A zero dual step freezes λ at `dual_init`
    (a number, or (C, m)); a callable gives η_t. `tweedie_at="next"` is the paper's dual update at
    x_{t+1}, for a second score call a step; `"current"` reuses the step's own estimate.
    `correct` replaces the clean estimate (projection and guidance methods), `dual_update` the
    ascent step of λ. Problems with exact expectations draw no realisations.
    """
    check_int("n", n, 1), check_int("groups", groups, 1), check_int("n_draws", n_draws, 1)
    if n % groups:
        raise ValueError(f"groups must divide n = {n}, got {groups}: choose a divisor or leave it out")
    check_choice("kernel", kernel, KERNELS), check_choice("tweedie_at", tweedie_at, ("current", "next"))
    m, T = problem.n_constraints, schedule.T
    z = torch.randn((groups, n // groups, problem.latent_dim), generator=generator)
    lam = torch.as_tensor(dual_init, dtype=z.dtype).expand(groups, m).clone().unsqueeze(1)
    path = torch.empty(T, groups, m)

    for t in range(T):
        tau = T - t
        xi = None if problem.exact else problem.draw(n_draws, generator)
        clean = tweedie(z, score(z, tau, lam, xi, generator), tau, schedule, alpha_min)
        clean = problem.project(clean)
        if correct is not None:
            clean = correct(clean, tau, xi)
        noise = torch.randn(z.shape, generator=generator)
        z = KERNELS[kernel](z, clean, tau, schedule, noise)

        if tweedie_at == "next":
            estimate = z
            if tau > 1:
                estimate = tweedie(z, score(z, tau - 1, lam, xi, generator), tau - 1, schedule, alpha_min)
            estimate = problem.project(estimate)
        else:
            estimate = clean
        residual = problem.constraints(problem.decode(estimate), xi).mean(1, keepdim=True)
        path[t] = lam.squeeze(1)
        if callback is not None:
            ess = getattr(score, "effective_sample_size", float("nan"))
            callback(Step(t, z, clean, path[t], residual.squeeze(1), ess))
        if dual_update is not None:
            lam = dual_update(lam, residual, t)
        else:
            eta = dual_step(t) if callable(dual_step) else dual_step
            lam = ((1 - dual_decay) * lam + eta * residual).clamp(min=0, max=dual_max)
        _check_finite("pdi", problem, t, z, lam)

    z = problem.project(z)
    return Samples(z.flatten(0, 1), lam.squeeze(1), path)


def langevin(
    problem: Problem,
    *,
    n: int,
    steps: int,
    primal_step: float,
    dual_step: DualStep,
    generator: torch.Generator,
    beta: float = 1.0,
    start_scale: float = 1.0,
    dual_init: float = 0.0,
    shared_dual: bool = False,
    n_draws: int = 1,
    callback: Callback | None = None,
) -> Samples:
    """Primal-dual Langevin (PDL): noisy gradient descent in the clean space while λ ascends.

    One λ per sample, as published, or one for all with `shared_dual`. The last step has no noise.
    """
    check_int("n", n, 1), check_int("steps", steps, 1), check_int("n_draws", n_draws, 1)
    check_number("primal_step", primal_step, 0, above=True), check_number("beta", beta, 0, above=True)
    m = problem.n_constraints
    z = problem.project(start_scale * torch.randn((n, 1, problem.latent_dim), generator=generator))
    if shared_dual:
        z = z.transpose(0, 1)
    lam = torch.full((len(z), 1, m), float(dual_init))
    path = torch.empty(steps, len(z), m)

    for t in range(steps):
        xi = None if problem.exact else problem.draw(n_draws, generator)
        _, grad = problem.lagrangian_grad(z, lam, xi)
        noise = torch.randn(z.shape, generator=generator)
        scale = (2 * primal_step) ** 0.5 if t < steps - 1 else 0.0
        z = problem.project(z - primal_step / beta * grad + scale * noise)
        residual = problem.constraints(problem.decode(z), xi).mean(1, keepdim=True)
        path[t] = lam.squeeze(1)
        if callback is not None:
            callback(Step(t, z, z, path[t], residual.squeeze(1), float("nan")))
        eta = dual_step(t) if callable(dual_step) else dual_step
        lam = (lam + eta * residual).clamp(min=0)
        _check_finite("langevin", problem, t, z, lam)

    return Samples(z.flatten(0, 1), lam.squeeze(1), path)


def _check_finite(sampler: str, problem: Problem, t: int, z: Tensor, lam: Tensor) -> None:
    for name, value in (("samples", z), ("multipliers", lam)):
        if not torch.isfinite(value).all():
            raise FloatingPointError(
                f"{sampler} on {type(problem).__name__}: {name} are not finite after step {t}; "
                "lower dual_step, raise alpha_min or give the problem a bound"
            )
