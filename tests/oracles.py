"""The small problems whose answers are known in closed form, and helpers shared by the tests."""

from __future__ import annotations

import math

import numpy as np
import torch

from pdi_gym.problems.mixture import MixtureOfGaussians
from pdi_gym.schedules import Schedule


def two_constraints() -> MixtureOfGaussians:
    """Three independent coordinates, two active constraints: the problem of Theorem 1."""
    rows = [[0.6, -0.64, 0.48], [0.6, 0.0, -0.8]]
    return MixtureOfGaussians([[0.0] * 3], [[0.5, 1.0, 2.0]], [1.0], rows, [3.0, 2.0], bound=math.inf)


def one_constraint(b: float = 0.9) -> MixtureOfGaussians:
    """The same Gaussian with A x ≥ b for one row."""
    rows = [[0.6, -0.64, 0.48]]
    return MixtureOfGaussians([[0.0] * 3], [[0.5, 1.0, 2.0]], [1.0], rows, [b], bound=math.inf)


def two_modes() -> MixtureOfGaussians:
    """λ* = .468 moves the second mode's weight from .2 to .510, the first one's from .8 to .490."""
    means, variances = [[-1.5, 0.0], [1.5, 1.0]], [[0.2, 0.4], [0.6, 0.2]]
    return MixtureOfGaussians(means, variances, [0.8, 0.2], [[0.8, 0.6]], [0.5], bound=math.inf)


def active_dual(problem: MixtureOfGaussians) -> torch.Tensor:
    """λ* of one Gaussian when every constraint is active: A (m + C Aᵀλ) = b, whatever β."""
    A, mean, cov = (v.double() for v in (problem.A, problem.means[0], problem.covariances[0]))
    return torch.linalg.solve(A @ cov @ A.mT, problem.b.double() - A @ mean)


def slope(x: list[float], y: list[float]) -> float:
    """Of log y against log x, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def fixed_noise(variance: float) -> Schedule:
    """One step that takes clean samples to noise of that variance."""
    a = torch.tensor([1.0, 1 - variance])
    return Schedule("fixed", a, 1 - a, a.sqrt(), (1 - a).sqrt())


def tilted_gaussian_score(problem: MixtureOfGaussians, lam: torch.Tensor, z: torch.Tensor, variance: float):
    """Noised score of one Gaussian tilted by λ at β = 1: (α²C + σ²I)⁻¹ (α(m + CAᵀλ) − z), in float64."""
    A, mean, cov = (v.double() for v in (problem.A, problem.means[0], problem.covariances[0]))
    alpha = math.sqrt(1 - variance)
    noised = alpha**2 * cov + variance * torch.eye(len(mean), dtype=torch.float64)
    return (alpha * (mean + cov @ A.mT @ lam.double()) - z.double()) @ torch.linalg.inv(noised)
