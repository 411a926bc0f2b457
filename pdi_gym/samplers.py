"""The two sampling loops: primal-dual inference and primal-dual Langevin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pdi_gym.diffusion import KERNELS, tweedie
from pdi_gym.duals import FROZEN_AT_ZERO, DualRule
from pdi_gym.problem import Problem
from pdi_gym.schedules import Schedule
from pdi_gym.scores import ScoreField
from pdi_gym.validation import check_choice, check_int, check_number


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


@dataclass(frozen=True)
class Reverse:
    """How a chain goes from noise to decisions, beside its score and its multipliers."""

    kernel: str = "posterior"
    """Reverse kernel: posterior, ancestral or ddim."""
    alpha_min: float = 0.0
    """Floor of α in the clean estimate."""
    n_draws: int = 1
    """Fresh realisations ξ of every step, where the problem's expectations are not exact."""
    tweedie: str = "current"
    """The clean estimate that drives the duals: of the current sample, or of the next for a second score
    call a step, as the paper has it."""

    def __post_init__(self) -> None:
        check_choice("kernel", self.kernel, KERNELS), check_int("n_draws", self.n_draws, 1)
        check_choice("tweedie", self.tweedie, ("current", "next"))


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


_DEFAULT = Reverse()


def pdi(
    problem: Problem,
    score: ScoreField,
    schedule: Schedule,
    *,
    n: int,
    generator: torch.Generator,
    groups: int = 1,
    duals: DualRule = FROZEN_AT_ZERO,
    reverse: Reverse = _DEFAULT,
    correct: Correction | None = None,
    callback: Callback | None = None,
) -> Samples:
    """Algorithm 2, primal-dual inference: denoise while the multipliers ascend.

    n samples in `groups` chains, each with its own λ. `duals` says where λ starts and how it moves;
    left out, it stays at zero. `correct` replaces the clean estimate (projection and guidance
    methods). Problems with exact expectations draw no realisations.
    """
    check_int("n", n, 1), check_int("groups", groups, 1)
    if n % groups:
        raise ValueError(f"groups must divide n = {n}, got {groups}: choose a divisor or leave it out")
    m, T = problem.n_constraints, schedule.T
    z = torch.randn((groups, n // groups, problem.latent_dim), generator=generator)
    state = duals.start(groups, m)
    path = torch.empty(T, groups, m)

    def estimate(z: Tensor, tau: int, xi: Tensor | None) -> tuple[Tensor, float]:
        value, size = score(z, tau, state.lam, xi, generator)
        return problem.project(tweedie(z, value, tau, schedule, reverse.alpha_min)), size

    for t in range(T):
        tau = T - t
        xi = None if problem.exact else problem.draw(reverse.n_draws, generator)
        clean, size = estimate(z, tau, xi)
        if correct is not None:
            clean = correct(clean, tau, xi)
        noise = torch.randn(z.shape, generator=generator)
        z = KERNELS[reverse.kernel](z, clean, tau, schedule, noise)

        driving = clean
        if reverse.tweedie == "next":
            driving = estimate(z, tau - 1, xi)[0] if tau > 1 else problem.project(z)
        residual = problem.constraints(problem.decode(driving), xi).mean(1, keepdim=True)
        path[t] = state.lam.squeeze(1)
        if callback is not None:
            callback(Step(t, z, clean, path[t], residual.squeeze(1), size))
        state = duals(state, residual, t)
        _check_finite("pdi", problem, t, z, state.lam)

    z = problem.project(z)
    return Samples(z.flatten(0, 1), state.lam.squeeze(1), path)


def langevin(
    problem: Problem,
    *,
    n: int,
    steps: int,
    primal_step: float,
    generator: torch.Generator,
    duals: DualRule = FROZEN_AT_ZERO,
    beta: float = 1.0,
    start_scale: float = 1.0,
    n_draws: int = 1,
    callback: Callback | None = None,
) -> Samples:
    """Primal-dual Langevin (PDL): noisy gradient descent in the clean space while λ ascends.

    One λ per sample. The last step has no noise.
    """
    check_int("n", n, 1), check_int("steps", steps, 1), check_int("n_draws", n_draws, 1)
    check_number("primal_step", primal_step, 0, above=True), check_number("beta", beta, 0, above=True)
    z = problem.project(start_scale * torch.randn((n, 1, problem.latent_dim), generator=generator))
    state = duals.start(n, problem.n_constraints)
    path = torch.empty(steps, n, problem.n_constraints)

    for t in range(steps):
        xi = None if problem.exact else problem.draw(n_draws, generator)
        _, grad = problem.lagrangian_grad(z, state.lam, xi)
        noise = torch.randn(z.shape, generator=generator)
        scale = (2 * primal_step) ** 0.5 if t < steps - 1 else 0.0
        z = problem.project(z - primal_step / beta * grad + scale * noise)
        residual = problem.constraints(problem.decode(z), xi).mean(1, keepdim=True)
        path[t] = state.lam.squeeze(1)
        if callback is not None:
            callback(Step(t, z, z, path[t], residual.squeeze(1), float("nan")))
        state = duals(state, residual, t)
        _check_finite("langevin", problem, t, z, state.lam)

    return Samples(z.flatten(0, 1), state.lam.squeeze(1), path)


def _check_finite(sampler: str, problem: Problem, t: int, z: Tensor, lam: Tensor) -> None:
    for name, value in (("samples", z), ("multipliers", lam)):
        if not torch.isfinite(value).all():
            raise FloatingPointError(
                f"{sampler} on {type(problem).__name__}: {name} are not finite after step {t}; "
                "lower dual_step, raise alpha_min or give the problem a bound"
            )
