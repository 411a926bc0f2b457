"""Sampling a mixture of Gaussians under linear constraints that hold on average."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pdi_gym.problem import Problem, accelerates
from pdi_gym.problems.mixture.gaussian import GaussianMixtureLaw
from pdi_gym.validation import check_int, check_number, check_tensor, to_tensor


@dataclass(frozen=True, init=False)
class MixtureOfGaussians(Problem):
    """Minimise E[−log Σ_k w_k N(x; m_k, C_k)] subject to A E[x] ≥ b.

    Coordinates as given: decision and latent are the same point. Parameters: means (K, d),
    covariances (K, d, d) or (K, d) diagonals, weights (K,), A (M, d), b (M,), and `bound`, the
    half-width of the box to which samples are clipped: max|m| + 8 max std when left out,
    `math.inf` for none.
    """

    means: Tensor
    covariances: Tensor
    weights: Tensor
    A: Tensor
    b: Tensor
    bound: float
    _factor: Tensor = field(repr=False)
    """(K or 1, d, d) with C⁻¹ = F Fᵀ; one when all modes share their covariance."""
    _centres: Tensor = field(repr=False)
    """(K, d) whitened means Fᵀ m."""
    _log_scale: Tensor = field(repr=False)
    """(K,) log w_k minus the log normaliser of N_k."""
    tolerance: float = 0.02
    exact = True

    def __init__(
        self, means: Any, covariances: Any, weights: Any, A: Any, b: Any, bound: float | None = None
    ):
        means = check_tensor("means", means, (None, None))
        k, d = means.shape
        covariances = to_tensor("covariances", covariances, f"({k}, {d}) or ({k}, {d}, {d})")
        if covariances.ndim == 2:
            covariances = torch.diag_embed(check_tensor("covariances", covariances, (k, d)))
        covariances = check_tensor("covariances", covariances, (k, d, d))
        precision_factor = _precision_factor(covariances)
        weights = check_tensor("weights", weights, (k,))
        if (weights <= 0).any():
            raise ValueError(f"weights must be positive, got {weights.min().item():g}: drop the empty mode")
        weights = weights / weights.sum()
        A = check_tensor("A", A, (None, d))
        b = check_tensor("b", b, (len(A),))
        if len(A) == 0:
            raise ValueError("A must have at least one row; an inactive one is A = [[1, 0, …]], b = [-1e6]")
        deviation = covariances.diagonal(dim1=-2, dim2=-1).max().sqrt()
        if bound is None:
            bound = float(means.abs().max() + 8 * deviation)
        check_number("bound", bound, 0, above=True, allow_inf=True)
        log_det = precision_factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        shared = bool((covariances == covariances[0]).all())
        values = {
            "means": means,
            "covariances": covariances,
            "weights": weights,
            "A": A,
            "b": b,
            "bound": bound,
            "_factor": precision_factor[:1] if shared else precision_factor,
            "_centres": (precision_factor.mT @ means.unsqueeze(-1)).squeeze(-1),
            "_log_scale": weights.log() + log_det - 0.5 * d * math.log(2 * math.pi),
            "tolerance": type(self).tolerance,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def instance(
        cls, dim: int = 30, n_modes: int = 12, n_constraints: int = 10, seed: int = 0
    ) -> MixtureOfGaussians:
        """The paper's synthetic family: random centres, standardised coordinates, random half-spaces."""
        (
            check_int("dim", dim, 1),
            check_int("n_modes", n_modes, 1),
            check_int("n_constraints", n_constraints, 1),
        )
        check_int("seed", seed, 0)
        centres = np.random.RandomState(seed).randn(n_modes, dim) * 4
        rng = np.random.RandomState(seed + 100)
        A = rng.randn(n_constraints, dim)
        A /= np.linalg.norm(A, axis=1, keepdims=True)
        b = np.linspace(0.8, 2.0, n_constraints)
        rng.shuffle(b)
        variance = np.full(dim, 2.0)
        _, scale = _standardise(centres, variance)
        means = (centres - centres.mean(0)) / scale
        return cls(means, np.tile(variance / scale**2, (n_modes, 1)), np.full(n_modes, 1 / n_modes), A, b)

    @classmethod
    def toy(cls) -> MixtureOfGaussians:
        """The paper's example in the plane: three modes, two constraints, in standardised coordinates."""
        centres = np.array([[3.0, 10.0], [-2.0, -8.0], [5.0, 0.0]])
        variance = np.ones(2)
        A = np.array([[-1 / math.sqrt(2), 1 / math.sqrt(2)], [-1.0, 0.0]])
        b = np.ones(2)
        shift, scale = _standardise(centres, variance)
        means, covariances = (centres - shift) / scale, np.tile(variance / scale**2, (3, 1))
        # The paper's plane is wider than the default box: 13 standard deviations past the centres.
        bound = float(np.abs(means).max() + 13 * np.sqrt(covariances.max()))
        return cls(means, covariances, np.full(3, 1 / 3), A * scale, b - A @ shift, bound)

    @property
    def latent_dim(self) -> int:  # type: ignore[override]
        return self.means.shape[1]

    @property
    def n_constraints(self) -> int:  # type: ignore[override]
        return len(self.A)

    @property
    def constraint_names(self) -> tuple[str, ...]:
        return tuple(f"half-space {j}" for j in range(self.n_constraints))

    @property
    def constraint_limits(self) -> np.ndarray:
        return self.b.numpy().copy()

    def _log_terms(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log(w_k N_k(x)) (..., K) and the whitened points Fᵀx: (..., d) shared, (..., K, d) else."""
        if len(self._factor) == 1:
            white = x @ self._factor[0]
            offset = self._log_scale - 0.5 * self._centres.square().sum(-1)
            log_terms = (white @ self._centres.mT).add_(offset)
            return log_terms.sub_(0.5 * white.square().sum(-1, keepdim=True)), white
        white = torch.einsum("...i,kij->...kj", x, self._factor)
        return self._log_scale - 0.5 * (white - self._centres).square().sum(-1), white

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return -torch.logsumexp(self._log_terms(x)[0], -1)

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return self.b - x @ self.A.mT

    def lagrangian_grad(
        self, z: Tensor, lam: Tensor, xi: Tensor | None = None, objective_weight: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        log_terms, white = self._log_terms(z)
        peak = log_terms.amax(-1, keepdim=True)
        # Shares below e⁻⁸⁰ are nothing to the gradient, but subnormal numbers would slow it severalfold.
        share = log_terms.sub_(peak).clamp_(min=-80).exp_()
        total = share.sum(-1, keepdim=True)
        log_density = (peak + total.log()).squeeze(-1)
        share.div_(total)
        if len(self._factor) == 1:
            grad = white.sub_(share @ self._centres) @ self._factor[0].mT
        else:
            grad = torch.einsum("...k,...kj,kij->...i", share, white - self._centres, self._factor)
        tilt = lam @ self.A
        value = (lam * self.b).sum(-1) - torch.linalg.vecdot(tilt, z) - objective_weight * log_density
        return value, grad.mul_(objective_weight) - tilt

    def features(self, x: Tensor, lam: Tensor) -> Tensor:
        """(..., d, 4) as by default, in closed form: place, score of the mixture, tilt Aᵀλ, and their sum."""
        log_terms, white = self._log_terms(x)
        share = torch.softmax(log_terms, -1)
        if len(self._factor) == 1:
            own = (white - share @ self._centres) @ self._factor[0].mT
        else:
            own = torch.einsum("...k,...kj,kij->...i", share, white - self._centres, self._factor)
        width = 2 * self.action_scale
        scale = width / self.units.objective
        own, pull = scale * own, (-scale * (lam @ self.A)).expand_as(own)
        return torch.stack([x / width, own.asinh(), pull.asinh(), (own + pull).asinh()], -1)

    def responsibilities(self, x: Tensor) -> Tensor:
        """Posterior probability of each mode, (..., d) → (..., K)."""
        return torch.softmax(self._log_terms(x)[0], -1)

    def metrics(self, x: Tensor, weights: Tensor, residuals: Tensor) -> dict[str, float]:
        mode = self.responsibilities(x.float()).argmax(-1)
        mass = torch.zeros(len(self.means), dtype=torch.float64).index_add_(0, mode, weights.double())
        mass = mass[mass > 0]
        return {"modes": float(len(mass)), "mode_entropy": float(-(mass * mass.log()).sum())}

    @accelerates("objective", "constraints", "decode")
    def tilted(self, lam: Tensor, beta: float) -> GaussianMixtureLaw:
        """The Gibbs law ∝ exp(−(f0 + λᵀf)/β), again a mixture: for one mode, or at β = 1.

        λ (..., m) may have leading axes; they become those of the law. The tilt h = Aᵀλ/β moves
        mode k by C_k h and multiplies its weight by exp(hᵀm_k + ½ hᵀC_k h), with C_k scaled by β.
        """
        if beta != 1 and len(self.means) > 1:
            raise ValueError(
                f"beta must be 1 for a closed form with {len(self.means)} modes, got {beta:g}: use score='mc'"
            )
        tilt = (lam @ self.A.to(lam.dtype)) / beta
        means = self.means.to(lam.dtype)
        covariances = beta * self.covariances.to(lam.dtype)
        shift = torch.einsum("kij,...j->...ki", covariances, tilt)
        gain = ((means + 0.5 * shift) * tilt.unsqueeze(-2)).sum(-1)
        log_weights = torch.log_softmax(self.weights.to(lam.dtype).log() + gain, -1)
        return GaussianMixtureLaw(means + shift, covariances, log_weights)


def _standardise(centres: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shift and per-coordinate scale that give the equal-weight mixture mean 0 and variance 1."""
    return centres.mean(0), np.sqrt(variance + centres.var(0))


def _precision_factor(covariances: Tensor) -> Tensor:
    """Upper-triangular F with C⁻¹ = F Fᵀ, per mode; refuses what is not symmetric positive definite."""
    if not torch.allclose(covariances, covariances.mT, rtol=1e-5, atol=1e-8):
        raise ValueError("covariances must be symmetric: pass (C + C.T) / 2")
    lowest = torch.linalg.eigvalsh(covariances.double()).min(-1).values
    if (lowest <= 0).any():
        k = int(lowest.argmin())
        raise ValueError(
            f"covariances must be positive definite, mode {k} has eigenvalue {lowest[k].item():.3g}: "
            "add a ridge"
        )
    factor = torch.linalg.cholesky(covariances.double())
    eye = torch.eye(factor.shape[-1], dtype=torch.float64).expand_as(factor)
    inverse: Tensor = torch.linalg.solve_triangular(factor, eye, upper=False)
    return inverse.mT.float().contiguous()
