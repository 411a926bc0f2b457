"""Score fields ∇ log q_τ(z | λ) of the noised Gibbs laws q_0 ∝ exp(−(f0 + λᵀf)/β).

A score field is called as `score(z, tau, lam, xi, generator)` with z (C, I, d) for C groups of I
samples, λ (C, 1, m), realisations ξ shared by the step, and the generator of its own randomness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from pdi_gym.diffusion import Times, floored_alpha, sigma_at
from pdi_gym.problem import Problem
from pdi_gym.schedules import Schedule
from pdi_gym.validation import check_choice, check_int, check_number

CANDIDATES = ("lemma", "unscaled")
_CHUNK = 40
"""Samples of one pass through a network."""


class Estimate(NamedTuple):
    """A score, and how many candidates its estimate rests on: NaN where it is not an estimate by sampling."""

    value: Tensor
    """Like the samples, (C, I, d)."""
    effective_sample_size: float = math.nan
    """1 … K, mean over samples."""


class ScoreField(Protocol):
    def __call__(
        self, z: Tensor, tau: int, lam: Tensor, xi: Tensor | None, generator: torch.Generator
    ) -> Estimate:
        """The score at noisy latents z (C, I, d) of forward time τ, under multipliers λ (C, 1, m)."""
        ...


@dataclass(frozen=True)
class MonteCarloScore:
    """Gradient of log Σ_k exp(−E(c_k)) over K candidates: the paper's MC estimator (Lemma 1).

    With `candidates="lemma"`, c_k = (z + σ ε_k)/α and the estimate converges to the score of the
    noised law. With `"unscaled"`, c_k = z + σ ε_k: it converges to the score of the *clean* law
    convolved with N(0, σ²), which differs by the missing contraction α. The gradient is the
    softmax(−E)-weighted sum of −∇E(c_k)·dc/dz, zero where a candidate was clipped to the box.

    The weights degenerate when σ/α is large against the width of exp(−E): past σ/α ≈ 4 in three
    dimensions or σ² ≈ .5 in thirty, one candidate holds all the weight and more of them buy
    almost nothing. The estimate's `effective_sample_size` tells.
    """

    problem: Problem
    schedule: Schedule
    beta: float
    n_candidates: int
    candidates: str = "lemma"
    alpha_min: float = 0.0

    def __post_init__(self) -> None:
        check_int("n_candidates", self.n_candidates, 1)
        check_number("beta", self.beta, 0, above=True)
        check_number("alpha_min", self.alpha_min, 0)
        check_choice("candidates", self.candidates, CANDIDATES)

    def __call__(
        self, z: Tensor, tau: Times, lam: Tensor, xi: Tensor | None, generator: torch.Generator
    ) -> Estimate:
        sigma = sigma_at(self.schedule, tau)
        lemma = self.candidates == "lemma"
        scale = floored_alpha(self.schedule, tau, self.alpha_min) if lemma else 1.0
        bound = self.problem.bound
        points = torch.randn((self.n_candidates, *z.shape), generator=generator, dtype=z.dtype)
        points.mul_(sigma).add_(z).div_(scale)
        clipped = None
        if bound < float("inf") and points.abs().max() > bound:
            clipped = points.abs() > bound
            points.clamp_(-bound, bound)
        value, grad = self.problem.lagrangian_grad(points, lam, xi)
        # As in the problems: below e⁻⁸⁰ a weight is nothing, and subnormal numbers are slow.
        weights = torch.softmax((value.amin(0) - value).div_(self.beta).clamp_(min=-80), dim=0)
        if clipped is not None:
            grad = grad.masked_fill(clipped, 0)
        score = (weights.unsqueeze(-1) * grad).sum(0) / (-self.beta * scale)
        if lemma and bound == float("inf"):
            # Without a box the candidates bound the clean estimate, by size and not by sign: their hull
            # alone would hold back a sample that is far out.
            reach = points.abs().amax(0)
            clean = ((z + sigma**2 * score) / scale).clamp(-reach, reach)
            score = (scale * clean - z) / sigma**2
        return Estimate(score, float((1 / weights.square().sum(0)).mean()))


@runtime_checkable
class HasTiltedLaw(Protocol):
    """A problem whose Gibbs law is known in closed form."""

    def tilted(self, lam: Tensor, beta: float) -> NoisableLaw: ...


class NoisableLaw(Protocol):
    def noised(self, alpha: float, sigma: float) -> NoisableLaw: ...
    def score(self, z: Tensor) -> Tensor: ...


@dataclass
class ExactScore:
    """The closed-form score of a problem that knows its tilted law (see `MixtureOfGaussians`)."""

    problem: HasTiltedLaw
    schedule: Schedule
    beta: float

    def __call__(
        self, z: Tensor, tau: int, lam: Tensor, xi: Tensor | None, generator: torch.Generator
    ) -> Estimate:
        law = self.problem.tilted(lam, self.beta)
        noised = law.noised(float(self.schedule.alpha[tau]), float(self.schedule.sigma[tau]))
        return Estimate(noised.score(z))


class CleanEstimator(Protocol):
    """A network that estimates clean samples: see `networks.Denoiser`."""

    def __call__(
        self, z: Tensor, alpha: Tensor, sigma: Tensor, lam: Tensor | None, problem: Problem
    ) -> Tensor: ...


@dataclass
class NetworkScore:
    """A denoising network seen as a score field: s = (max(α, α_min) D(z, λ, problem) − z)/σ²."""

    network: CleanEstimator
    problem: Problem
    schedule: Schedule
    alpha_min: float = 0.0
    device: str = "cpu"

    @torch.no_grad()
    def __call__(
        self, z: Tensor, tau: int, lam: Tensor, xi: Tensor | None, generator: torch.Generator
    ) -> Estimate:
        # One group at a time: its activations stay in the cache.
        clean = torch.stack([self._clean(z[c], tau, lam[c]) for c in range(len(z))])
        scale, sigma = floored_alpha(self.schedule, tau, self.alpha_min), sigma_at(self.schedule, tau)
        return Estimate((scale * clean - z) / sigma**2)

    def _clean(self, z: Tensor, tau: int, lam: Tensor) -> Tensor:
        parts = []
        for part in torch.split(z, _CHUNK):
            alpha, sigma = (
                v[tau].view(1, 1).to(self.device) for v in (self.schedule.alpha, self.schedule.sigma)
            )
            duals = lam.expand(len(part), -1).to(self.device)
            parts.append(self.network(part.to(self.device), alpha, sigma, duals, self.problem).to(z.device))
        return torch.cat(parts)
