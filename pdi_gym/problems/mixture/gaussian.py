"""Finite Gaussian mixtures with closed-form noising and scores: the exact oracle of this package."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GaussianMixtureLaw:
    """Σ_k w_k N(m_k, C_k) with means (..., K, d), covariances (K, d, d), log weights (..., K).

    The leading axes of means and weights broadcast against those of the points, so that one law
    per group of samples is one object.
    """

    means: Tensor
    covariances: Tensor
    log_weights: Tensor

    def noised(self, alpha: float, sigma: float) -> GaussianMixtureLaw:
        """The law of α y + σ ε."""
        eye = torch.eye(self.means.shape[-1], dtype=self.means.dtype)
        return GaussianMixtureLaw(
            alpha * self.means, alpha**2 * self.covariances + sigma**2 * eye, self.log_weights
        )

    def _terms(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """log(w_k N_k(z)) (..., K) and the precision-weighted offsets C_k⁻¹(m_k − z) (..., K, d)."""
        factor = torch.linalg.cholesky(self.covariances)
        eye = torch.eye(z.shape[-1], dtype=factor.dtype).expand_as(factor)
        inverse = torch.linalg.solve_triangular(factor, eye, upper=False)
        white = torch.einsum("...kj,kij->...ki", self.means - z.unsqueeze(-2), inverse)
        pull = torch.einsum("...ki,kij->...kj", white, inverse)
        log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        square = white.square().sum(-1)
        d = z.shape[-1]
        return self.log_weights - 0.5 * (square + log_det + d * math.log(2 * math.pi)), pull

    def log_density(self, z: Tensor) -> Tensor:
        """(..., d) → (...,)."""
        return torch.logsumexp(self._terms(z)[0], -1)

    def score(self, z: Tensor) -> Tensor:
        """∇ log density, (..., d) → (..., d)."""
        log_terms, pull = self._terms(z)
        return (torch.softmax(log_terms, -1).unsqueeze(-1) * pull).sum(-2)

    @property
    def weights(self) -> Tensor:
        return torch.softmax(self.log_weights, -1)

    def mean(self) -> Tensor:
        return (self.weights.unsqueeze(-1) * self.means).sum(-2)

    def covariance(self) -> Tensor:
        """(d, d), within plus between the modes."""
        centred = self.means - self.mean().unsqueeze(-2)
        between = centred.unsqueeze(-1) * centred.unsqueeze(-2)
        return (self.weights[..., None, None] * (self.covariances + between)).sum(-3)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """(n, d) independent draws; only for a single law (no leading axes)."""
        mode = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        noise = torch.randn((n, self.means.shape[-1]), generator=generator, dtype=self.means.dtype)
        factor: Tensor = torch.linalg.cholesky(self.covariances)[mode]
        return self.means[mode] + (factor @ noise.unsqueeze(-1)).squeeze(-1)
