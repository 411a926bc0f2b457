"""The best known solution of an instance, and bounds that tell how far from the best it can be."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pdi_gym import presets, seeding
from pdi_gym.digests import UndigestibleError, content_digest
from pdi_gym.files import whole_file
from pdi_gym.options import ColumnOptions
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem, keeps
from pdi_gym.problems.mixture import MixtureOfGaussians
from pdi_gym.problems.portfolio import Portfolio
from pdi_gym.processes import one_thread
from pdi_gym.scales import in_scales
from pdi_gym.time_sharing.column_generation import Pool, descent_pricer, first_path, generate_columns, settle
from pdi_gym.validation import check_int

MOST_ASSETS = 12
"""Portfolios up to this size get an exact bound: every face of the simplex is visited."""


@dataclass(frozen=True)
class Reference:
    """The best mix found for an instance."""

    policy: TimeSharingPolicy
    value: float
    """Its objective E f0, minimised."""
    excess: float
    """Its total violation: 0 unless no mix of the pool meets the constraints."""
    estimate: float | None
    """Least Lagrangian found at the best λ: a lower bound if the local searches met the global minimum.
    None if no mix of the pool meets the constraints."""
    bound: float | None
    """Certified lower bound on the objective of every feasible policy; None where none is known, or if no
    mix of the pool meets the constraints."""


@one_thread()
def reference_solution(
    problem: Problem,
    policies: Sequence[TimeSharingPolicy] = (),
    *,
    seed: int = 0,
    effort: int = 4,
    cache: str | Path | None = None,
) -> Reference:
    """The best value known: a long dual method, column generation, and the program over all atoms.

    The atoms of `policies` join the pool, so none of them is better but for the noise of draws.
    `effort` multiplies the steps and rounds of `pdi-cg` with `preset="paper"`; there is no margin.
    With a `cache` folder, an equal call returns the stored answer.
    """
    check_int("effort", effort, 1)
    for policy in policies:
        policy.check(problem)
    path = None if cache is None else Path(cache) / f"{_key(problem, policies, seed, effort)}.npz"
    if path is not None and path.exists():
        return _read(path)
    preset = presets.resolve(ColumnOptions, problem, "paper", {})
    options = replace(
        preset,
        margin=0.0,
        fresh=max(preset.fresh, 32),
        price_steps=max(preset.price_steps, 200),
        steps=effort * preset.steps,
        rounds=effort * preset.rounds,
        draws=effort * preset.draws,
        stop=preset.stop / effort,
    )
    with torch.no_grad():
        solution = _solve(problem, policies, options, seeding.generator(seed, seeding.POLICY, 2))
    if path is not None:
        _write(path, solution)
    return solution


def _solve(
    problem: Problem,
    policies: Sequence[TimeSharingPolicy],
    options: ColumnOptions,
    generator: torch.Generator,
) -> Reference:
    scales = presets.scales(problem, options)
    view = in_scales(problem, scales)
    start = first_path(view, options, 1, generator)
    atoms = [view.decode(start.z).numpy(), *(p.actions[p.weights > 0] for p in policies)]
    pool = Pool.of(view, np.concatenate(atoms).astype(np.float32), options.draws, generator)
    price = descent_pricer(view, options, generator)
    generated = generate_columns(view, pool, start.duals.double().numpy(), price, options, generator)
    best, mix = settle(view, generated.pool, problem.n_constraints + 1, 0.0, options.final_draws, generator)
    policy = TimeSharingPolicy(best.actions, mix.weights, mix.duals.astype(np.float32)[None])
    if scales is not None:
        policy, bound = scales.policy(policy), generated.bound(mix, 0.0)
        excess = float(scales.residuals(mix.residuals.clip(min=0)).sum())
        estimate = None if bound is None else scales.value(bound)
        return Reference(policy, scales.value(mix.value), excess, estimate, None)
    if not mix.met:
        return Reference(policy, mix.value, mix.excess, None, None)
    bounds = [certified_bound(problem, torch.as_tensor(lam)) for lam in (mix.duals, generated.duals)]
    known = [bound for bound in bounds if bound is not None]
    return Reference(policy, mix.value, mix.excess, generated.bound(mix, 0.0), max(known, default=None))


def certified_bound(problem: Problem, lam: Tensor) -> float | None:
    """A lower bound on min_x f0 + λᵀf, hence on every feasible policy's objective; None if unknown.

    Any λ (m,) ≥ 0 gives a bound; the program's multipliers give a good one.
    """
    lam = lam.double()
    shape = ("objective", "constraints", "decode")
    if keeps(problem, MixtureOfGaussians, *shape):
        return _mixture_bound(problem, lam)
    if keeps(problem, Portfolio, *shape) and problem.limits is None and problem.latent_dim <= MOST_ASSETS:
        return _portfolio_bound(problem, lam.numpy())
    return None


def _mixture_bound(problem: MixtureOfGaussians, lam: Tensor) -> float:
    """λᵀb − log max_x Σ_k exp(a_k(x)), with a_k(x) = log w_k N_k(x) + (Aᵀλ)ᵀx bounded mode by mode.

    a_k peaks at m_k + C_k Aᵀλ with height c_k. If all modes share C, then where peak k is the
    nearest, peak j is at least half their distance D_kj away, so Σ ≤ c_k + Σ_j c_j e^{−D_kj²/8};
    otherwise the sum of all peaks is the bound.
    """
    covariances, means = problem.covariances.double(), problem.means.double()
    tilt = problem.A.double().mT @ lam
    shift = covariances @ tilt
    d = problem.latent_dim
    log_norm = 0.5 * (d * np.log(2 * np.pi) + torch.logdet(covariances))
    peak = problem.weights.double().log() - log_norm + (means + 0.5 * shift) @ tilt
    if (covariances == covariances[0]).all():
        white = torch.linalg.solve_triangular(torch.linalg.cholesky(covariances[0]), means.mT, upper=False)
        overlap = -torch.cdist(white.mT, white.mT).square() / 8
        most = torch.logsumexp(peak + overlap, -1).max()
    else:
        most = torch.logsumexp(peak, -1)
    return float(lam @ problem.b.double() - most)


def _portfolio_bound(problem: Portfolio, lam: np.ndarray) -> float:
    """min over the simplex of xᵀQx − μᵀx − λᵀb, 2Q = ΛΣ + ΣΛ, exact although Q may be indefinite.

    The minimiser on the smallest face that holds one is the only stationary point inside that
    face, so it is found by solving the stationarity conditions of every face.
    """
    sigma, mu = problem.sigma.numpy(), problem.mu.numpy()
    hessian = sigma * (lam[:, None] + lam)
    n = len(mu)
    best = np.inf
    for size in range(1, n + 1):
        faces = np.array(list(itertools.combinations(range(n), size)))
        system = np.zeros((len(faces), size + 1, size + 1))
        system[:, :size, :size] = hessian[faces[:, :, None], faces[:, None, :]]
        system[:, :size, size] = system[:, size, :size] = 1
        right = np.concatenate([mu[faces], np.ones((len(faces), 1))], 1)
        regular = np.abs(np.linalg.det(system)) > 1e-300
        x = np.linalg.solve(system[regular], right[regular][..., None])[:, :size, 0]
        inside = (x >= -1e-9).all(1)
        x, face = x[inside], faces[regular][inside]
        quadratic = 0.5 * np.einsum("fi,fij,fj->f", x, hessian[face[:, :, None], face[:, None, :]], x)
        best = min(best, float((quadratic - (mu[face] * x).sum(1)).min(initial=np.inf)))
    return best - float(lam @ problem.budgets.numpy())


def _key(problem: Problem, policies: Sequence[TimeSharingPolicy], *settings: int) -> str:
    """A digest of everything that decides the answer."""
    pools = [(policy.actions, policy.weights) for policy in policies]
    try:
        return content_digest(problem, settings, pools)[:24]
    except UndigestibleError as error:
        raise ValueError(f"cache must be left out for this {type(problem).__name__}: {error}") from None


def _write(path: Path, solution: Reference) -> None:
    bounds = [np.nan if b is None else b for b in (solution.estimate, solution.bound)]
    with whole_file(path) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            actions=solution.policy.actions,
            weights=solution.policy.weights,
            duals=np.asarray(solution.policy.duals),
            numbers=np.array([solution.value, solution.excess, *bounds]),
        )


def _read(path: Path) -> Reference:
    with np.load(path, allow_pickle=False) as data:
        value, excess, *bounds = (float(v) for v in data["numbers"])
        policy = TimeSharingPolicy(data["actions"], data["weights"], data["duals"])
    estimate, bound = (None if np.isnan(b) else b for b in bounds)
    return Reference(policy, value, excess, estimate, bound)
