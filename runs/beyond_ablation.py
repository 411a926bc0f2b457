"""Other dynamics inside `pdi-adaptive`, on validation networks: what did not help lives only here.

python runs/beyond_ablation.py

* Truncated candidates: drawn from the Gaussian *restricted* to the box, not clipped to it. The estimate
  follows the noised law of the box's own Gibbs law, pathwise: every candidate moves with z by the inverse
  of the truncated distribution function, and the mass of the Gaussian inside the box adds its gradient.
* Both identities: the score is E[∇ log p(x)] (target identity) and E[ε]/σ (denoising identity); the mix
  α²·target + σ²·denoising has the first where noise is low and the second where it is high. Mean-free
  weights keep the second from adding the noise of candidates that weigh alike.
* Fewer steps: the same schedule in 50 or 25 steps with dual_step·T kept, random or deterministic (DDIM).

A killed run continues where it stopped.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from beyond_report import paired_table, table, write
from torch import Tensor

from pdi_gym.agents import Agent, make_agent
from pdi_gym.agents.adaptive import Adaptive, AnnealedScore
from pdi_gym.diffusion import floored_alpha
from pdi_gym.evaluation import compare
from pdi_gym.problem import Problem
from pdi_gym.schedules import Schedule
from pdi_gym.scores import Estimate, MonteCarloScore

METRICS = ("mean_rate", "p5_rate", "p1_rate", "mean_violation", "feasible")
STEPS = 100
"""Of the preset whose dual_step the shorter runs scale."""
REACH = 4.0
"""Standard deviations outside the box from which a truncated Gaussian is still drawn."""


@dataclass
class Args:
    networks: int = 8
    """Validation networks."""
    workers: int = 1
    """Processes, one thread each."""
    seed: int = 0
    """Seed of inference and, by independent streams, of evaluation."""
    rows: tuple[str, ...] = ()
    """Labels of the rows to compute; all when left out."""
    logs: Path = Path("runs/logs/beyond_ablation")
    """Finished rows and policies."""
    out: Path = Path("runs/results/beyond_ablation")
    """Folder of the table."""


@dataclass(frozen=True)
class TruncatedScore(MonteCarloScore):
    """∇ log ∫_box exp(−E(x)) N(x; z/s, (σ/s)²) dx with candidates of that Gaussian truncated to the box."""

    def __call__(
        self, z: Tensor, tau: Any, lam: Tensor, xi: Tensor | None, generator: torch.Generator
    ) -> Estimate:
        bound = self.problem.bound
        scale = floored_alpha(self.schedule, tau, self.alpha_min) if self.candidates == "lemma" else 1.0
        width = float(self.schedule.sigma[tau]) / scale
        centre = (z.double() / scale).clamp(-bound - REACH * width, bound + REACH * width)
        low, high = (-bound - centre) / width, (bound - centre) / width
        below = torch.special.ndtr(low)
        mass = torch.special.ndtr(high) - below
        u = torch.rand((self.n_candidates, *z.shape), generator=generator, dtype=torch.float64)
        noise = torch.special.ndtri((below + u * mass).clamp(1e-12, 1 - 1e-12))
        points = (centre + width * noise).clamp(-bound, bound).float()
        value, grad = self.problem.lagrangian_grad(points, lam, xi)
        weights = torch.softmax((value.amin(0) - value) / self.beta, dim=0)
        size = float((1 / weights.square().sum(0)).mean())
        moves = (1 - ((1 - u) * _density(low) + u * _density(high)) / _density(noise)).clamp(0, 1)
        inside = (weights.unsqueeze(-1) * grad * moves).sum(0) / -self.beta
        edge = (_density(low) - _density(high)) / (width * mass)
        return Estimate(((inside + edge) / scale).float(), size)


@dataclass(frozen=True)
class BothScore(MonteCarloScore):
    """α² · target-score identity + σ² · denoising identity, from the same candidates."""

    def __call__(
        self, z: Tensor, tau: Any, lam: Tensor, xi: Tensor | None, generator: torch.Generator
    ) -> Estimate:
        bound, sigma = self.problem.bound, float(self.schedule.sigma[tau])
        scale = floored_alpha(self.schedule, tau, self.alpha_min) if self.candidates == "lemma" else 1.0
        noise = torch.randn((self.n_candidates, *z.shape), generator=generator)
        points = (z + sigma * noise) / scale
        inside = points.abs() <= bound
        value, grad = self.problem.lagrangian_grad(points.clamp(-bound, bound), lam, xi)
        weights = torch.softmax((value.amin(0) - value) / self.beta, dim=0).unsqueeze(-1)
        size = float((1 / weights.square().sum(0)).mean())
        target = (weights * grad * inside).sum(0) / (-self.beta * scale)
        denoising = ((weights - 1 / self.n_candidates) * noise).sum(0) / sigma
        return Estimate((1 - sigma**2) * target + sigma**2 * denoising, size)


class Variant(Adaptive):
    """`pdi-adaptive` with another estimator of the score."""

    def __init__(self, score: type[MonteCarloScore], **options: Any):
        super().__init__(**options)
        self.score = score

    def _score(self, problem: Problem, options: Any, schedule: Schedule) -> AnnealedScore:
        score = self.score(
            problem, schedule, options.beta, options.n_candidates, options.candidates, options.alpha_min
        )
        return AnnealedScore(score, options.heat, options.cool)

    def config(self, problem: Problem) -> dict[str, Any]:
        return super().config(problem) | {"estimator": self.score.__name__}


def _density(x: Tensor) -> Tensor:
    return torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)


def shorter(T: int, **options: Any) -> Agent:
    return make_agent("pdi-adaptive", T=T, dual_step=0.25 * STEPS / T, **options)


def variants() -> dict[str, Agent]:
    return {
        "pdi-adaptive": make_agent("pdi-adaptive"),
        "truncated candidates": Variant(TruncatedScore),
        "the lemma's candidates": make_agent("pdi-adaptive", candidates="lemma"),
        "the lemma's candidates, truncated": Variant(TruncatedScore, candidates="lemma"),
        "both identities": Variant(BothScore),
        "8 candidates": make_agent("pdi-adaptive", n_candidates=8),
        "both identities, 8 candidates": Variant(BothScore, n_candidates=8),
        "50 steps": shorter(50),
        "25 steps": shorter(25),
        "DDIM, 100 steps": shorter(100, kernel="ddim"),
        "DDIM, 50 steps": shorter(50, kernel="ddim"),
        "DDIM, 25 steps": shorter(25, kernel="ddim"),
    }


def main(args: Args) -> None:
    agents = variants()
    rows = compare(
        {label: agents[label] for label in args.rows or agents},
        "WirelessPower-v0",
        args.networks,
        seed=args.seed,
        workers=args.workers,
        out=args.logs,
        env_kwargs={"split": "validation"},
        on_row=lambda row: print(row["agent"], row["instance"], flush=True),
    )
    text = f"{table(rows, METRICS)}\n{paired_table(rows, 'pdi-adaptive', METRICS)}"
    settings = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(args).items()}
    write(args.out, "dynamics", rows, text, settings)


if __name__ == "__main__":
    torch.set_num_threads(1)  # two threads on a busy core are slower than one
    main(tyro.cli(Args))
