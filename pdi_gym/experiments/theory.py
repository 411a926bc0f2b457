"""The quantities of the convergence analysis, exact where a Gaussian or a mixture has a closed form.

Everything is computed in float64. Time is the paper's reverse time t = 0 … T−1: kernel K_t takes x_t to
x_{t+1} at the forward time τ = T − t, so every array over t has T entries and entry t belongs to K_t.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from pdi_gym.problems.mixture import MixtureOfGaussians
from pdi_gym.problems.mixture.gaussian import GaussianMixtureLaw
from pdi_gym.schedules import Schedule
from pdi_gym.validation import check_choice, check_number


def dual_value(problem: MixtureOfGaussians, lam: Tensor, beta: float) -> float:
    """g(λ) = −β log ∫ exp(−(f0 + λᵀf)/β) dx, for one Gaussian at any β or a mixture at β = 1."""
    check_number("beta", beta, 0, above=True)
    if lam.shape != (problem.n_constraints,):
        raise ValueError(f"lam must have shape ({problem.n_constraints},), got {tuple(lam.shape)}")
    lam = lam.double()
    problem.tilted(lam, beta)  # refuses a mixture at another temperature
    h = (lam @ problem.A.double()) / beta
    covariances = problem.covariances.double()
    gain = problem.means.double() @ h + 0.5 * beta * torch.einsum("i,kij,j->k", h, covariances, h)
    log_z = torch.logsumexp(problem.weights.double().log() + gain, 0) - lam @ problem.b.double() / beta
    # A Gaussian density to the power 1/β is c N(m, βC); the constant c is 1 at β = 1.
    d = problem.latent_dim
    log_c = 0.5 * (1 - 1 / beta) * (d * math.log(2 * math.pi) + torch.logdet(covariances[0]))
    return -beta * float(log_z + (log_c + 0.5 * d * math.log(beta) if beta != 1 else 0.0))


def dual_gradient(problem: MixtureOfGaussians, lam: Tensor, beta: float) -> Tensor:
    """∇g(λ) = E f under the Gibbs law of λ, (m,)."""
    mean = problem.tilted(lam.double(), beta).mean()
    return problem.b.double() - problem.A.double() @ mean


def optimal_dual(problem: MixtureOfGaussians, beta: float) -> Tensor:
    """λ* = argmax g over λ ≥ 0, (m,) in float64; the box of the problem is left out of account."""
    start = np.zeros(problem.n_constraints)

    def negative(lam: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(lam)
        return -dual_value(problem, point, beta), -dual_gradient(problem, point, beta).numpy()

    result = minimize(
        negative,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(start),
        options={"ftol": 0.0, "gtol": 1e-10, "maxiter": 500, "maxfun": 2000, "maxls": 50},
    )
    lam = torch.from_numpy(result.x)
    residual = dual_gradient(problem, lam, beta)
    slack = float(torch.where(lam > 0, residual.abs(), residual.clamp(min=0)).max())
    if slack > 1e-5:
        raise ValueError(
            f"A, b must leave a strictly feasible mean; the best λ still violates by {slack:.3g}: lower b"
        )
    return lam


def dual_gap(problem: MixtureOfGaussians, lam: Tensor, beta: float) -> float:
    """D* − g(λ) ≥ 0."""
    return dual_value(problem, optimal_dual(problem, beta), beta) - dual_value(problem, lam, beta)


def w2_gaussian(mean_1: Tensor, cov_1: Tensor, mean_2: Tensor, cov_2: Tensor) -> float:
    """W2 between two Gaussians: ‖m1 − m2‖² + tr(C1 + C2 − 2 (C1^½ C2 C1^½)^½), rooted."""
    root = _symmetric_root(cov_1.double())
    cross = torch.linalg.eigvalsh(root @ cov_2.double() @ root).clamp(min=0).sqrt().sum()
    bures = cov_1.double().trace() + cov_2.double().trace() - 2 * cross
    return math.sqrt(max(float((mean_1.double() - mean_2.double()).square().sum() + bures), 0.0))


def w2_of_samples(x: Tensor, mean: Tensor, covariance: Tensor) -> float:
    """W2 between the Gaussian with the moments of x (n, d) and N(mean, covariance).

    A lower bound on the distance of the samples' law, tight when that law is Gaussian. Even n
    independent draws of the target itself stay √(tr C / n) and more away.
    """
    x = x.double()
    d = x.shape[1]
    return w2_gaussian(x.mean(0), torch.cov(x.mT).view(d, d), mean, covariance)


def score_jacobian(law: GaussianMixtureLaw, z: Tensor) -> Tensor:
    """∇² log density at z (n, d) → (n, d, d)."""
    with torch.enable_grad():
        z = z.detach().requires_grad_(True)
        columns = law.score(z).sum(0)
        rows = [torch.autograd.grad(c, z, retain_graph=True)[0] for c in columns]
    return torch.stack(rows, 1)


def stability_factors(law: GaussianMixtureLaw, schedule: Schedule, z: Tensor | None = None) -> Tensor:
    """ρ_t = sup_x ‖I + b ∇² log q_τ(x)‖ / √a of Proposition 2, (T,), for the clean law q_0.

    One Gaussian: exact, its Hessian is the same everywhere. A mixture: the largest value over the
    points α z + σ ε of the clean sample z (n, d), so a lower estimate of the supremum.
    """
    rho = []
    for tau, q, points in _noised_points(law, schedule, z):
        a, b = float(schedule.a[tau]), float(schedule.b[tau])
        step = torch.eye(points.shape[-1], dtype=torch.float64) + b * score_jacobian(q, points)
        rho.append(float(torch.linalg.matrix_norm(step, ord=2).max()) / math.sqrt(a))
    return torch.tensor(rho, dtype=torch.float64)


def dual_sensitivities(
    problem: MixtureOfGaussians,
    law: GaussianMixtureLaw,
    schedule: Schedule,
    beta: float,
    z: Tensor | None = None,
) -> Tensor:
    """γ_t = sup_x ‖∇_λ s_t(x | λ)‖ = α/(βσ²) sup_x ‖Cov(y_0 | x) Aᵀ‖, (T,), at the λ of `law`.

    The paper bounds this by R α/(βσ²) √‖Cov(y_0 | x)‖ with R = sup ‖f‖, which is infinite for a linear
    constraint on an unbounded domain; this is the smallest constant for which its Lemma 7 holds at λ.
    The supremum is over the same points as in `stability_factors` (exact for one Gaussian, where
    the posterior covariance depends on neither x nor λ).
    """
    A = problem.A.double()
    gamma = []
    for tau, q, points in _noised_points(law, schedule, z):
        alpha, sigma = float(schedule.alpha[tau]), float(schedule.sigma[tau])
        # α Cov(y_0 | x)/σ² = (I + σ² ∇² log q)/α, the second-order Tweedie formula.
        scaled = torch.eye(points.shape[-1], dtype=torch.float64) + sigma**2 * score_jacobian(q, points)
        gamma.append(float(torch.linalg.matrix_norm(scaled @ A.mT, ord=2).max()) / (alpha * beta))
    return torch.tensor(gamma, dtype=torch.float64)


def stability_products(rho: Tensor) -> Tensor:
    """Ψ_{t,T} = Π_{s=t+1}^{T−1} ρ_s, (T,): what an error made by K_t is multiplied by before the end.

    The paper lets s run to T; there is no kernel K_T.
    """
    return torch.cat([rho[1:].flip(0).cumprod(0).flip(0), torch.ones(1, dtype=rho.dtype)])


def theorem_2_bound(
    schedule: Schedule, rho: Tensor, gamma: Tensor, dual_distance: Tensor, defect: Tensor | None = None
) -> float:
    """Σ_t Ψ_{t,T} (b/√a γ_t ‖λ_t − λ*‖ + δ_t), the bound on W2(p_T, μ*) with an exact score.

    ρ, γ and the distances are (T,). The defect δ_t = W2(q_τ K_t, q_{τ−1}) of the kernel that freezes λ*
    is what Theorem 2 leaves out by taking q_τ K_t = q_{τ−1}; without it the bound is the printed one.
    """
    a, b = (v[1:].flip(0).double() for v in (schedule.a, schedule.b))
    error = b / a.sqrt() * gamma * dual_distance
    if defect is not None:
        error = error + defect
    return float((stability_products(rho) * error).sum())


class ReverseLaws(NamedTuple):
    """Gaussian laws of x_0 … x_T: means (T + 1, ..., d) and covariances (T + 1, d, d)."""

    means: Tensor
    covariances: Tensor


def reverse_laws(
    problem: MixtureOfGaussians, schedule: Schedule, duals: Tensor, beta: float, kernel: str = "posterior"
) -> ReverseLaws:
    """The exact law p_t of the reverse process with an exact score and multipliers λ_t (T, ..., m).

    For one Gaussian every step is affine in x_t, so that p_t stays Gaussian. Extra axes of the
    multipliers are independent processes; they share their covariance, which no λ moves.
    """
    check_choice("kernel", kernel, ("posterior", "ancestral"))
    if len(problem.means) > 1:
        raise ValueError(f"problem must have one mode for a Gaussian path, got {len(problem.means)}")
    d = problem.latent_dim
    eye = torch.eye(d, dtype=torch.float64)
    mean, cov = torch.zeros(*duals.shape[1:-1], d, dtype=torch.float64), eye
    means, covs = [mean], [cov]
    for t, lam in enumerate(duals.double()):
        tau = schedule.T - t
        target, spread = _single(problem.tilted(lam, beta))
        J, gain, noise = _affine_step(schedule, tau, spread, kernel)
        mean = mean @ J.mT + target @ gain.mT
        cov = J @ cov @ J.mT + noise * eye
        means.append(mean)
        covs.append(cov)
    return ReverseLaws(torch.stack(means), torch.stack(covs))


def kernel_defects(problem: MixtureOfGaussians, schedule: Schedule, beta: float) -> Tensor:
    """δ_t = W2(q_τ K_t, q_{τ−1}) of the ancestral kernel under λ*, (T,), for one Gaussian."""
    target, spread = _single(problem.tilted(optimal_dual(problem, beta), beta))
    eye = torch.eye(problem.latent_dim, dtype=torch.float64)
    defects = []
    for tau in range(schedule.T, 0, -1):
        now, after = ((float(schedule.alpha[s]), float(schedule.sigma[s])) for s in (tau, tau - 1))
        J, gain, noise = _affine_step(schedule, tau, spread, "ancestral")
        mean = J @ (now[0] * target) + gain @ target
        cov = J @ (now[0] ** 2 * spread + now[1] ** 2 * eye) @ J.mT + noise * eye
        defects.append(
            w2_gaussian(mean, cov, after[0] * target, after[0] ** 2 * spread + after[1] ** 2 * eye)
        )
    return torch.tensor(defects, dtype=torch.float64)


def _affine_step(schedule: Schedule, tau: int, spread: Tensor, kernel: str) -> tuple[Tensor, Tensor, float]:
    """J, G and v with x_{t+1} = J x_t + G m + √v ε for the clean Gaussian N(m, spread)."""
    a, b, alpha, sigma = (float(v[tau]) for v in (schedule.a, schedule.b, schedule.alpha, schedule.sigma))
    alpha_next, var_next = float(schedule.alpha[tau - 1]), float(schedule.sigma[tau - 1]) ** 2
    eye = torch.eye(len(spread), dtype=torch.float64)
    precision = torch.linalg.inv(alpha**2 * spread + sigma**2 * eye)
    if kernel == "ancestral":
        return (eye - b * precision) / math.sqrt(a), b * alpha / math.sqrt(a) * precision, b
    # The posterior mean of the clean sample is m + α spread precision (x − α m).
    lift = alpha * spread @ precision
    keep = math.sqrt(a) * var_next / sigma**2
    trust = alpha_next * b / sigma**2 if tau > 1 else 1.0
    return keep * eye + trust * lift, trust * (eye - alpha * lift), b * var_next / sigma**2


def _single(law: GaussianMixtureLaw) -> tuple[Tensor, Tensor]:
    return law.means.squeeze(-2), law.covariances[0]


def _noised_points(
    law: GaussianMixtureLaw, schedule: Schedule, z: Tensor | None
) -> list[tuple[int, GaussianMixtureLaw, Tensor]]:
    """(τ, q_τ, points) along reverse time; one point is enough for one Gaussian."""
    if z is None and len(law.covariances) > 1:
        raise ValueError("z must be clean samples (n, d) for a mixture: its Hessian depends on the point")
    z = law.means if z is None else z.double()
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = []
    for tau in range(schedule.T, 0, -1):
        alpha, sigma = float(schedule.alpha[tau]), float(schedule.sigma[tau])
        rows.append((tau, law.noised(alpha, sigma), alpha * z + sigma * noise))
    return rows


def _symmetric_root(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    root: Tensor = vectors * values.clamp(min=0).sqrt() @ vectors.mT
    return root
