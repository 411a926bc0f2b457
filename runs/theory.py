"""Check Theorems 1 and 2 of the paper on problems whose optimum is known in closed form.

python runs/theory.py            # the committed results, a few minutes on one thread
python runs/theory.py --quick    # a glance, under half a minute
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from theory_plots import plot_bias, plot_convergence, plot_stability
from torch import Tensor

from pdi_gym.problem import Problem
from pdi_gym.problems.gaussian import GaussianMixtureLaw
from pdi_gym.problems.mixture import MixtureOfGaussians
from pdi_gym.samplers import pdi
from pdi_gym.schedules import SCHEDULES, Schedule, make_schedule
from pdi_gym.scores import ExactScore, MonteCarloScore, ScoreField
from pdi_gym.theory import (
    dual_sensitivities,
    kernel_defects,
    optimal_dual,
    reverse_laws,
    stability_factors,
    stability_products,
    theorem_2_bound,
    w2_gaussian,
)


@dataclass
class Args:
    lengths: tuple[int, ...] = (50, 100, 200, 400, 800, 1600, 3200)
    """Numbers of reverse steps T of the convergence curves."""
    seeds: int = 5
    """Runs per length; curves show their mean."""
    n: int = 1000
    """Samples per run of the convergence curves."""
    bias_steps: int = 400
    """T of the runs whose gradient bias is taken apart."""
    bias_samples: int = 4000
    """Samples of those runs; the error of a measured mean falls with their root."""
    candidates: tuple[int, ...] = (16, 64, 256)
    """Candidate counts K of the Monte-Carlo score in the approximation term."""
    out: Path = Path("runs/results/theory")
    """Folder for the figures, results.json and README.md."""
    quick: bool = False
    """Shorten every curve: for a look, not for a verdict."""


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


def slope(x: list[int], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def convergence(args: Args) -> dict:
    """‖λ̄ − λ*‖² and W2(p_T, μ*) against T with η = 1/√T; Theorem 2's bound beside the measured W2."""
    linear, curved = linear_problem(), PowerLimit()
    lam_star = optimal_dual(linear, 1.0)
    law = linear.tilted(lam_star, 1.0)
    rows = []
    for T in args.lengths:
        s = make_schedule("cosine", T)
        row: dict = {"T": T, "dual": [], "dual_curved": [], "w2": [], "bound": [], "bound_with_defect": []}
        rho, gamma = stability_factors(law, s), dual_sensitivities(linear, law, s, 1.0)
        defect = kernel_defects(linear, s, 1.0)
        for seed in range(args.seeds):
            options = {"n": args.n, "dual_step": T**-0.5, "kernel": "ancestral"}
            g = torch.Generator().manual_seed(seed)
            r = pdi(linear, ExactScore(linear, s, 1.0), s, generator=g, **options)
            row["dual"].append(float((r.mean_duals[0].double() - lam_star).square().sum()))
            path = r.dual_path[:, 0].double()
            end = reverse_laws(linear, s, path, 1.0, "ancestral")
            row["w2"].append(
                w2_gaussian(end.means[-1], end.covariances[-1], law.means[0], law.covariances[0])
            )
            distance = (path - lam_star).norm(dim=1)
            row["bound"].append(theorem_2_bound(s, rho, gamma, distance))
            row["bound_with_defect"].append(theorem_2_bound(s, rho, gamma, distance, defect))
            r = pdi(curved, ExactScore(curved, s, 1.0), s, generator=g, **options)
            row["dual_curved"].append(float((r.mean_duals - curved.optimal_dual()).square().sum()))
        rows.append({k: v if k == "T" else float(np.mean(v)) for k, v in row.items()})
        print("T", T, {k: round(v, 5) for k, v in rows[-1].items() if k != "T"}, flush=True)
    T = list(args.lengths)
    return {
        "rows": rows,
        "population": {T: population_error(T) for T in (50, 200, 800, 3200, 12_800, 51_200)},
        "slope_dual": slope(T, [r["dual"] for r in rows]),
        "slope_dual_curved_last_half": slope(T[-4:], [r["dual_curved"] for r in rows[-4:]]),
        "slope_w2": slope(T, [r["w2"] for r in rows]),
    }


class Recorder:
    """A score field that drives the run, and notes x_t, λ_t and what `probe` says there."""

    def __init__(self, drive: ScoreField, probe: ScoreField):
        self.drive, self.probe, self.calls = drive, probe, []

    def __call__(self, z: Tensor, tau: int, lam: Tensor, xi: Tensor | None, g: torch.Generator) -> Tensor:
        value = self.drive(z, tau, lam, xi, g)
        seen = value if self.probe is self.drive else self.probe(z, tau, lam, xi, g)
        self.calls.append((tau, z[0].double(), lam.flatten().double(), seen[0].double()))
        return value


def clean_mean(law: GaussianMixtureLaw, z: Tensor, alpha: float, sigma: float) -> Tensor:
    """The posterior mean of the clean sample given z = α y_0 + σ ε."""
    return (z + sigma**2 * law.noised(alpha, sigma).score(z)) / alpha


def bias_terms(
    problem: Problem, recorder: Recorder, frozen: Callable, s: Schedule, args: Args, alpha_min: float
) -> dict:
    """The paper's gradient bias along one run, split into terms that sum to it; norms over constraints.

    approximation: K candidates against infinitely many at the same x_t. floor: α_min and the box. history:
    p_t against the law of the reverse process that had λ_t all along. tweedie: posterior means against clean
    samples under that law. spread: ε_TW, the root mean square of y_0 − E[y_0 | x].
    """
    pdi(
        problem, recorder, s, n=args.bias_samples, generator=torch.Generator().manual_seed(0),
        dual_step=s.T**-0.5, alpha_min=alpha_min, kernel="ancestral",
    )  # fmt: skip
    residuals, truths = frozen(torch.stack([lam for _, _, lam, _ in recorder.calls]), s)
    terms: dict[str, list[float]] = {
        k: [] for k in ("approximation", "floor", "history", "tweedie", "spread")
    }

    def f(x: Tensor) -> Tensor:
        return problem.constraints(problem.project(x.float())).double().mean(0)

    for (tau, z, lam, value), residual, truth in zip(recorder.calls, residuals, truths, strict=True):
        law = problem.tilted(lam, 1.0)
        alpha, sigma = float(s.alpha[tau]), float(s.sigma[tau])
        floored = max(alpha, alpha_min)
        # With infinitely many candidates at the floor, the estimate is the posterior mean at that α.
        got, at_floor = f((z + sigma**2 * value) / floored), f(clean_mean(law, z, floored, sigma))
        here = problem.constraints(clean_mean(law, z, alpha, sigma).float()).double().mean(0)
        differences = (got - at_floor, at_floor - here, here - residual, residual - truth)
        for term, difference in zip(terms, differences, strict=False):
            terms[term].append(float(difference.norm()))
        precision = torch.linalg.inv(law.covariances[0]) + (alpha / sigma) ** 2 * torch.eye(3).double()
        terms["spread"].append(math.sqrt(float(torch.linalg.inv(precision).trace())))
    return terms


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


def bias(args: Args) -> dict:
    s, linear, curved = make_schedule("cosine", args.bias_steps), linear_problem(), PowerLimit()
    exact = ExactScore(linear, s, 1.0)
    runs = {"linear, exact score": bias_terms(linear, Recorder(exact, exact), frozen_linear, s, args, 0.0)}
    for k in args.candidates:
        score = MonteCarloScore(linear, s, 1.0, k, alpha_min=0.3)
        terms = bias_terms(linear, Recorder(score, score), frozen_linear, s, args, 0.3)
        runs[f"linear, Monte-Carlo K={k}"] = terms
    # Driven by its own Monte-Carlo score the quadratic run leaves the scale, so an exact one is probed too.
    exact = ExactScore(curved, s, 1.0)
    for k in args.candidates:
        score = MonteCarloScore(curved, s, 1.0, k, alpha_min=0.3)
        terms = bias_terms(curved, Recorder(exact, score), frozen_power, s, args, 0.3)
        runs[f"quadratic, exact run, K={k} probed"] = terms
    score = MonteCarloScore(curved, s, 1.0, 64, alpha_min=0.3)
    terms = bias_terms(curved, Recorder(score, score), frozen_power, s, args, 0.3)
    runs["quadratic, Monte-Carlo K=64"] = terms
    floors = {
        name: {term: float(np.mean(np.square(v))) for term, v in terms.items()}
        for name, terms in runs.items()
    }
    for name, row in floors.items():
        print(name, {k: float(f"{v:.3g}") for k, v in row.items()}, flush=True)
    return {"mean_square": floors, "along_t": runs}


def two_modes() -> MixtureOfGaussians:
    means, variances = [[-1.5, 0.0], [1.5, 1.0]], [[0.2, 0.4], [0.6, 0.2]]
    return MixtureOfGaussians(means, variances, [0.8, 0.2], [[0.8, 0.6]], [0.5], bound=math.inf)


def stability(args: Args) -> dict:
    """ρ_t and Ψ_{t,T} of the four schedules on the Gaussian (exact) and on two modes (over samples)."""
    T, result = args.bias_steps, {}
    gaussian, modes = linear_problem(), two_modes()
    law_1, law_2 = (p.tilted(optimal_dual(p, 1.0), 1.0) for p in (gaussian, modes))
    points = law_2.sample(300, torch.Generator().manual_seed(0))
    for name in SCHEDULES:
        s = make_schedule(name, T)
        for label, rho in (
            ("Gaussian", stability_factors(law_1, s)),
            ("two modes", stability_factors(law_2, s, points)),
        ):
            psi = stability_products(rho)
            result[f"{label}, {name}"] = {
                "rho": rho.tolist(), "psi": psi.tolist(), "above_1": float((rho > 1).double().mean()),
                "largest_rho": float(rho.max()), "psi_0": float(psi[0]), "largest_psi": float(psi.max()),
            }  # fmt: skip
    return result


def main(args: Args) -> None:
    torch.set_num_threads(1)
    if args.quick:
        args.lengths, args.seeds, args.bias_steps = (50, 100, 200, 400), 2, 100
        args.bias_samples, args.candidates = 1000, (64,)
    args.out.mkdir(parents=True, exist_ok=True)
    rates, terms, factors = convergence(args), bias(args), stability(args)
    plot_convergence(rates, args.out)
    plot_bias(terms, args.out)
    plot_stability(factors, args.out)
    summary = {
        "args": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(args).items()},
        "convergence": rates,
        "bias_mean_square": terms["mean_square"],
        "stability": {
            k: {n: v for n, v in row.items() if n not in ("rho", "psi")} for k, row in factors.items()
        },
    }
    (args.out / "results.json").write_text(json.dumps(summary, indent=1) + "\n")
    print("written to", args.out)


if __name__ == "__main__":
    main(tyro.cli(Args))
