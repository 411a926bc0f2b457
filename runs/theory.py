"""Check Theorems 1 and 2 of the paper on problems whose optimum is known in closed form.

python runs/theory.py            # the committed results, about three minutes on one thread
python runs/theory.py --quick    # a glance, under half a minute
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib
import numpy as np
import torch
import tyro
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

matplotlib.use("Agg")
import matplotlib.pyplot as plt


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


def clean_mean(law: GaussianMixtureLaw, z: Tensor, tau: int, s: Schedule) -> Tensor:
    alpha, sigma = float(s.alpha[tau]), float(s.sigma[tau])
    return (z + sigma**2 * law.noised(alpha, sigma).score(z)) / alpha


def bias_terms(
    problem: Problem, recorder: Recorder, frozen: Callable, s: Schedule, args: Args, alpha_min: float
) -> dict:
    """The paper's gradient bias along one run, split into terms that sum to it; norms over constraints.

    approximation: Monte-Carlo against exact score at the same x_t. floor: α_min and the box. history: p_t
    against the law of the reverse process that had λ_t all along. tweedie: posterior means against clean
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
        exact = clean_mean(law, z, tau, s)
        got, at_floor = f((z + sigma**2 * value) / floored), f(alpha / floored * exact)
        here = problem.constraints(exact.float()).double().mean(0)
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
        clean = clean_mean(law, means[t, t, None], s.T - t, s)[0]
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


def plot_convergence(result: dict, out: Path) -> None:
    rows = result["rows"]
    T = np.array([r["T"] for r in rows])
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    left.loglog(
        T, [r["dual"] for r in rows], "o-", label=f"linear constraints, slope {result['slope_dual']:.2f}"
    )
    left.loglog(T, [r["dual_curved"] for r in rows], "s-", label="quadratic constraint")
    left.loglog(
        *zip(*result["population"].items(), strict=True), "C1:", label="the same, infinitely many samples"
    )
    left.loglog(T, rows[0]["dual"] * (T / T[0]) ** -0.5, "k--", lw=1, label=r"$1/\sqrt{T}$")
    left.set(
        xlabel="reverse steps T",
        ylabel=r"$\|\bar\lambda-\lambda^*\|^2$",
        title="Theorem 1: averaged multipliers",
    )
    right.loglog(T, [r["w2"] for r in rows], "o-", label=f"measured, slope {result['slope_w2']:.2f}")
    right.loglog(T, [r["bound_with_defect"] for r in rows], "^-", label="bound with the kernel's defect")
    right.loglog(T, [r["bound"] for r in rows], "v:", label="bound as printed")
    right.loglog(T, rows[0]["w2"] * (T / T[0]) ** -0.5, "k--", lw=1, label=r"$1/\sqrt{T}$")
    right.set(xlabel="reverse steps T", ylabel=r"$W_2(p_T,\mu^*)$", title="Theorem 2: law of the samples")
    for axis in (left, right):
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3, which="both")
    fig.savefig(out / "convergence.png", dpi=120)
    plt.close(fig)


def plot_bias(result: dict, out: Path) -> None:
    names = ["linear, exact score", "linear, Monte-Carlo K=64", "quadratic, exact run, K=64 probed"]
    fig, axes = plt.subplots(1, len(names), figsize=(4 * len(names), 4), sharey=True, layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        terms = result["along_t"][name]
        for term, style in (
            ("spread", "k:"),
            ("tweedie", "C3"),
            ("approximation", "C0"),
            ("history", "C2"),
            ("floor", "C1"),
        ):
            values = np.array(terms[term])
            if values.max() > 1e-6:
                label = r"$\epsilon_{TW}$ (paper's bound)" if term == "spread" else term
                axis.semilogy(np.maximum(values, 1e-6), style, lw=1.2, label=label)
        axis.set(xlabel="reverse step t", title=name, ylim=(1e-5, 30))
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("size of the term in the dual gradient")
    fig.savefig(out / "bias.png", dpi=120)
    plt.close(fig)


def plot_stability(result: dict, out: Path) -> None:
    fig, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, layout="constrained")
    for column, label in enumerate(("Gaussian", "two modes")):
        for name in SCHEDULES:
            row = result[f"{label}, {name}"]
            axes[0, column].plot(row["rho"], label=name, lw=1.2)
            axes[1, column].semilogy(row["psi"], label=name, lw=1.2)
        axes[0, column].axhline(1, color="k", lw=0.7)
        axes[0, column].set(ylabel=r"$\rho_t$", title=label, ylim=(0.9, 1.1))
        axes[1, column].set(ylabel=r"$\Psi_{t,T}$", xlabel="reverse step t")
        axes[0, column].legend(fontsize=8)
        for axis in axes[:, column]:
            axis.grid(alpha=0.3)
    fig.savefig(out / "stability.png", dpi=120)
    plt.close(fig)


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
