"""One λ shared by all samples against one λ per sample, on the paper's example in the plane.

python runs/mixture_toy.py             # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import tyro

from pdi_gym import drawing
from pdi_gym.agents import make_agent
from pdi_gym.evaluation import Row
from pdi_gym.experiments.claims import beats
from pdi_gym.experiments.run import Common, Run, table
from pdi_gym.problems import MixtureOfGaussians

NAME = "mixture-toy"
QUICK = {"seeds": 2, "n": 128, "T": 200, "dual_step": 0.2}
SHARED, OWN = "one λ for all", "one λ per sample"


@dataclass
class Args(Common):
    seeds: int = 8
    """Inference seeds."""
    n: int = 256
    """Samples per policy."""
    T: int = 500
    """Denoising steps."""
    dual_step: float = 0.5
    """Step of the dual ascent."""


def draw(problem: MixtureOfGaussians, samples: dict[str, Row], run: Run) -> drawing.Figure:
    """Samples over the density; the region where every constraint holds is shaded."""
    fig, axes = drawing.figure(10, 4.9, ncols=2, sharex=True, sharey=True)
    half = 3.4
    axis = torch.linspace(-half, half, 300)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)
    density = (-problem.objective(grid)).exp()
    met = problem.constraints(grid).amax(-1)
    levels = density.max() * torch.tensor([0.05, 0.2, 0.4, 0.6, 0.8])
    for ax, (label, row) in zip(axes, samples.items(), strict=True):
        points = run.policy(row, row["folder"])[0].actions
        ax.contourf(axis, axis, met, levels=[-1e9, 0], colors=["#009E73"], alpha=0.15)
        ax.contour(axis, axis, met, levels=[0], colors=["#009E73"], linestyles="--")
        ax.contour(axis, axis, density, levels=levels, colors=drawing.NEUTRAL, linewidths=0.7)
        ax.scatter(*points.T, s=7, alpha=0.4, color=drawing.MET, linewidths=0, label="samples")
        ax.plot(*points.mean(0), "*", ms=15, color=drawing.MISSED, mec="black", label="their average")
        figures = row["metrics"]
        ax.set_title(
            f"{label}\nobjective {figures['objective']:.2f}, {figures['inside']:.0%} of the samples feasible",
            fontsize=10,
        )
        ax.set(xlabel="$x_1$", ylabel="$x_2$", xlim=(-half, half), ylim=(-half, half), aspect="equal")
    axes[0].legend(loc="lower right", fontsize=9)
    return fig


def main(args: Args) -> None:
    run = Run(NAME, args)
    problem = MixtureOfGaussians.toy()
    common = {"T": args.T, "dual_step": args.dual_step, "n_candidates": 64}
    agents = {
        SHARED: make_agent("pdi-mc", "paper", **common),
        OWN: make_agent("pdi-mc", "paper", groups=args.n, **common),
    }
    rows: list[Row] = []
    for seed in range(args.seeds):
        folder = f"seed {seed}"
        for row in run.compare(agents, "MixtureOfGaussians2D-v0", 1, n=args.n, seed=seed, folder=folder):
            points = torch.as_tensor(run.policy(row, folder)[0].actions)
            inside = (problem.constraints(points) <= problem.tolerance).all(-1).double().mean()
            row["metrics"]["inside"] = float(inside)
            rows.append(row | {"instance": seed, "folder": folder})
    claims = [
        beats(rows, SHARED, OWN, "objective", "a shared λ has the better objective", unit="seeds"),
        beats(
            rows,
            OWN,
            SHARED,
            "inside",
            "with λ per sample more single samples are feasible",
            unit="seeds",
            direction=1,
        ),
    ]
    first = {label: next(r for r in rows if r["agent"] == label) for label in agents}
    run.figure(
        "toy",
        draw(problem, first, run),
        "Three modes (contours) and two constraints (shaded where both hold). They are asked of the average, "
        "the star: a shared λ lets samples outside be offset by others, a λ of its own pulls each one in.",
    )
    metrics = ("objective", "feasible", "mean_violation", "inside", "modes")
    run.write(
        rows,
        claims,
        table(rows, metrics),
        sample=f"The paper's example in the plane, inference seeds 0 to {args.seeds - 1}, {args.n} samples.",
        reduced="T, temperature and steps are the paper's; the score is the Monte-Carlo one.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
