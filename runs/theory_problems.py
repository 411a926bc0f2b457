"""Problems whose optimum and whose reverse process are known in closed form, for the two theorems."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from pdi_gym.experiments.theory import reverse_laws
from pdi_gym.problem import Problem
from pdi_gym.problems.mixture import MixtureOfGaussians
from pdi_gym.problems.mixture.gaussian import GaussianMixtureLaw
from pdi_gym.schedules import Schedule, make_schedule

VARIANCES = (0.5, 1.0, 2.0)


def linear_problem() -> MixtureOfGaussians:
    rows = [[0.6, -0.64, 0.48], [0.6, 0.0, -0.8]]
    return MixtureOfGaussians([[0.0] * 3], [list(VARIANCES)], [1.0], rows, [3.0, 2.0], bound=math.inf)


class PowerLimit(Problem):
    """A Gaussian N(0, C) under E ½|x|² ≤ ½ limit: a curved constraint that keeps every law Gaussian.

    The Gibbs law of λ is N(0, (C⁻¹ + λ I)⁻¹), so that λ* solves tr (C⁻¹ + λ I)⁻¹ = limit.
    """

    latent_dim, n_constraints, limit, bound = 3, 1, 1.5, 6.0

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return 0.5 * (x.square() / torch.tensor(VARIANCES)).sum(-1)

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return 0.5 * (x.square().sum(-1, keepdim=True) - self.limit)

    def lagrangian_grad(
        self, z: Tensor, lam: Tensor, xi: Tensor | None = None, objective_weight: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        grad = z * (objective_weight / torch.tensor(VARIANCES) + lam)
        return 0.5 * ((grad * z).sum(-1) - self.limit * lam.squeeze(-1)), grad

    def tilted(self, lam: Tensor, beta: float) -> GaussianMixtureLaw:
        variances = beta / (1 / torch.tensor(VARIANCES, dtype=lam.dtype) + lam.flatten())
        mean = torch.zeros(1, 3, dtype=lam.dtype)
        return GaussianMixtureLaw(mean, torch.diag(variances)[None], torch.zeros(1, dtype=lam.dtype))

    def optimal_dual(self) -> float:
        low, high = 0.0, 100.0
        for _ in range(80):
            middle = (low + high) / 2
            if sum(1 / (1 / v + middle) for v in VARIANCES) > self.limit:
                low = middle
            else:
                high = middle
        return low


def two_modes() -> MixtureOfGaussians:
    means, variances = [[-1.5, 0.0], [1.5, 1.0]], [[0.2, 0.4], [0.6, 0.2]]
    return MixtureOfGaussians(means, variances, [0.8, 0.2], [[0.8, 0.6]], [0.5], bound=math.inf)


def population_error(T: int) -> float:
    """(λ̄ − λ*)² of `PowerLimit` with infinitely many samples: PDI as a recursion of three variances."""
    s, lam, total = make_schedule("cosine", T), 0.0, 0.0
    prior, variance = np.array(VARIANCES), np.ones(3)
    for a, b, alpha, sigma in zip(
        *(v[1:].flip(0).tolist() for v in (s.a, s.b, s.alpha, s.sigma)), strict=True
    ):
        total += lam
        clean = 1 / (1 / prior + lam)
        width = alpha**2 * clean + sigma**2
        estimate = ((alpha * clean / width) ** 2 * variance).sum()
        variance = (1 - b / width) ** 2 / a * variance + b
        lam = max(lam + T**-0.5 * 0.5 * (estimate - PowerLimit.limit), 0.0)
    return (total / T - PowerLimit().optimal_dual()) ** 2


def clean_mean(law: GaussianMixtureLaw, z: Tensor, alpha: float, sigma: float) -> Tensor:
    """The posterior mean of the clean sample given z = α y_0 + σ ε."""
    return (z + sigma**2 * law.noised(alpha, sigma).score(z)) / alpha


def frozen_linear(lams: Tensor, s: Schedule) -> tuple[Tensor, Tensor]:
    """E f(ŷ_0(x_t)) of the exact reverse process with λ frozen at λ_t, and E f(y_0): (T, m) each."""
    problem = linear_problem()
    b, A = problem.b.double(), problem.A.double()
    means = reverse_laws(problem, s, lams.expand(s.T, *lams.shape), 1.0, "ancestral").means
    rows = []
    for t, lam in enumerate(lams):
        law = problem.tilted(lam, 1.0)
        clean = clean_mean(law, means[t, t, None], float(s.alpha[s.T - t]), float(s.sigma[s.T - t]))[0]
        rows.append((b - A @ clean, b - A @ law.means[0]))
    residuals, truths = zip(*rows, strict=True)
    return torch.stack(residuals), torch.stack(truths)


def frozen_power(lams: Tensor, s: Schedule) -> tuple[Tensor, Tensor]:
    """The same for `PowerLimit`, by the recursion of the variances (T, 3)."""
    clean = 1 / (1 / torch.tensor(VARIANCES, dtype=torch.float64) + lams)
    variance, rows = torch.ones_like(clean), []
    for t in range(s.T):
        a, b, alpha, sigma = (float(v[s.T - t]) for v in (s.a, s.b, s.alpha, s.sigma))
        width = alpha**2 * clean + sigma**2
        rows.append(((alpha * clean / width) ** 2 * variance).sum(1)[t])
        variance = (1 - b / width) ** 2 / a * variance + b
    limit = PowerLimit.limit
    return 0.5 * (torch.stack(rows)[:, None] - limit), 0.5 * (clean.sum(1, keepdim=True) - limit)
