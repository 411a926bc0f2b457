"""Forward marginals, the clean-sample estimate, and the reverse kernels."""

from __future__ import annotations

import math

from torch import Tensor

from pdi_gym.schedules import Schedule

Times = int | Tensor
"""Forward times τ: one for all samples, or a tensor that broadcasts against them."""


def forward(z_0: Tensor, tau: Times, schedule: Schedule, noise: Tensor) -> Tensor:
    """A draw of the forward marginal: α_τ z_0 + σ_τ ε."""
    return schedule.alpha[tau] * z_0 + schedule.sigma[tau] * noise


def sigma_at(schedule: Schedule, tau: Times) -> float | Tensor:
    return float(schedule.sigma[tau]) if isinstance(tau, int) else schedule.sigma[tau]


def floored_alpha(schedule: Schedule, tau: Times, alpha_min: float) -> float | Tensor:
    """max(α_τ, α_min), the divisor of Tweedie's formula and of the Monte-Carlo candidates."""
    if isinstance(tau, int):
        return max(float(schedule.alpha[tau]), alpha_min)
    return schedule.alpha[tau].clamp(min=alpha_min)


def tweedie(z: Tensor, score: Tensor, tau: Times, schedule: Schedule, alpha_min: float = 0.0) -> Tensor:
    """Posterior mean of the clean sample, (z + σ² s) / max(α, α_min).

    The paper's Algorithm 2 prints a minus sign in line 7; its own proofs use the plus.
    """
    return (z + sigma_at(schedule, tau) ** 2 * score) / floored_alpha(schedule, tau, alpha_min)


def posterior_step(z: Tensor, clean: Tensor, tau: int, schedule: Schedule, noise: Tensor) -> Tensor:
    """DDPM's q(z_{τ-1} | z_τ, ẑ_0) with ẑ_0 = `clean`; the last step returns `clean` itself.

    It treats the clean estimate as certain, which shrinks the sampled variance by O(1/T).
    """
    a, b = float(schedule.a[tau]), float(schedule.b[tau])
    var, var_next = float(schedule.sigma[tau]) ** 2, float(schedule.sigma[tau - 1]) ** 2
    if tau == 1:
        return clean.clone()
    mean = (float(schedule.alpha[tau - 1]) * b * clean + math.sqrt(a) * var_next * z) / var
    return mean + math.sqrt(b * var_next / var) * noise


def ancestral_step(z: Tensor, clean: Tensor, tau: int, schedule: Schedule, noise: Tensor) -> Tensor:
    """The paper's (PDI-P): (z + b s)/√a + √b ε, with s = (α ẑ_0 − z)/σ² rebuilt from `clean`.

    Rebuilding the score lets the projection and the α floor of the estimate act on the sample.
    """
    a, b, sigma = (float(v[tau]) for v in (schedule.a, schedule.b, schedule.sigma))
    score = (float(schedule.alpha[tau]) * clean - z) / sigma**2
    return (z + b * score) / math.sqrt(a) + math.sqrt(b) * noise


def ddim_step(z: Tensor, clean: Tensor, tau: int, schedule: Schedule, noise: Tensor) -> Tensor:
    """The deterministic step α_{τ-1} ẑ_0 + σ_{τ-1} (z − α_τ ẑ_0)/σ_τ: all randomness is in the start."""
    alpha, sigma = float(schedule.alpha[tau]), float(schedule.sigma[tau])
    direction = (z - alpha * clean) / sigma
    return float(schedule.alpha[tau - 1]) * clean + float(schedule.sigma[tau - 1]) * direction


KERNELS = {"posterior": posterior_step, "ancestral": ancestral_step, "ddim": ddim_step}
