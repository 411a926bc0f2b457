"""From which mode to which: where samples start and where they end, for PDL and PDI.

python runs/mixture_transition.py      # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import tyro

from pdi_gym import drawing, seeding
from pdi_gym.agents import make_agent
from pdi_gym.experiments.claims import Claim, judge, judge_equal, shown
from pdi_gym.experiments.run import Common, Run
from pdi_gym.problems import MixtureOfGaussians
from pdi_gym.processes import one_thread
from pdi_gym.report.statistics import bootstrap

NAME = "mixture-transition"
QUICK = {"seeds": 2, "n": 256}


@dataclass
class Args(Common):
    seeds: int = 8
    """Inference seeds."""
    n: int = 512
    """Samples per run."""
    margin: float = 0.05
    """Largest excess of the diagonal over chance that counts as none."""


def first_draw(agent: str, n: int, d: int, seed: int) -> torch.Tensor:
    """(n, d) latents from which the agent's sampler starts: its generator's first numbers."""
    shape = (n, 1, d) if agent == "pdl" else (1, n, d)
    return torch.randn(shape, generator=seeding.generator(seed, seeding.POLICY)).reshape(n, d)


def transitions(problem: MixtureOfGaussians, start: torch.Tensor, end: np.ndarray) -> np.ndarray:
    """(K, K) shares of samples from mode i to mode j, by largest responsibility."""
    k = len(problem.means)
    a, b = (
        problem.responsibilities(torch.as_tensor(x, dtype=torch.float32)).argmax(-1) for x in (start, end)
    )
    return torch.bincount(a * k + b, minlength=k * k).reshape(k, k).numpy() / len(a)


def excess(matrix: np.ndarray) -> float:
    """Mass on the diagonal beyond what independence of start and end would put there."""
    return float(np.trace(matrix) - matrix.sum(1) @ matrix.sum(0))


def diagonal_or_one(matrix: np.ndarray) -> float:
    """Mass on the diagonal and in the one column that holds most of the rest."""
    rest = matrix - np.diag(np.diag(matrix))
    return float(np.trace(matrix) + rest.sum(0).max())


def draw(matrices: dict[str, np.ndarray]) -> drawing.Figure:
    fig, axes = drawing.figure(9.6, 4.6, ncols=len(matrices), sharey=True)
    for ax, (agent, matrix) in zip(axes, matrices.items(), strict=True):
        rows = matrix / matrix.sum(1, keepdims=True).clip(min=1e-12)
        image = ax.imshow(rows, cmap="cividis", vmin=0, vmax=1)
        ax.set_title(
            f"{agent}: {np.trace(matrix):.0%} stay, {excess(matrix):+.0%} against chance", fontsize=10
        )
        ax.set(xlabel="mode at the end", xticks=range(len(rows)), yticks=range(len(rows)))
    axes[0].set_ylabel("mode at the start")
    fig.colorbar(image, ax=list(axes), label="share of the samples that started there")
    return fig


def main(args: Args) -> None:
    run = Run(NAME, args)
    problem = MixtureOfGaussians.instance()
    matrices: dict[str, list[np.ndarray]] = {"pdl": [], "pdi-mc": []}
    rows = []
    with one_thread():
        for agent, own in matrices.items():
            for seed in range(args.seeds):
                policy = make_agent(agent).sample(problem, args.n, seed)
                own.append(
                    transitions(problem, first_draw(agent, args.n, problem.latent_dim, seed), policy.actions)
                )
                matrix = own[-1]
                rows.append(
                    {
                        "agent": agent,
                        "seed": seed,
                        "stay": float(np.trace(matrix)),
                        "excess": excess(matrix),
                        "diagonal_or_one": diagonal_or_one(matrix),
                    }
                )

    def values(agent: str, key: str) -> np.ndarray:
        return np.array([r[key] for r in rows if r["agent"] == agent])

    ends = {a: bootstrap(values(a, "excess")) for a in matrices}
    stay = {a: float(values(a, "stay").mean()) for a in matrices}
    told = bootstrap(values("pdl", "diagonal_or_one") - 0.5)

    def claim(agent: str, text: str, paper: str, verdict: str, needed: str) -> Claim:
        ours = f"{stay[agent]:.1%} stay, excess over chance {shown(ends[agent])}, n = {args.seeds} seeds"
        reason = f"the excess is what start and end share beyond their marginals; {needed}"
        return Claim(text, paper, ours, verdict, reason)

    claims = [
        claim(
            "pdl",
            "PDL's samples stay near the mode where they start",
            "typically",
            judge(ends["pdl"], 0.5),
            "to hold, it must be half",
        ),
        Claim(
            "PDL's mass is on the diagonal and in one mode",
            "divided between them",
            f"{told.mean + 0.5:.1%} less one half {shown(told)}, n = {args.seeds} seeds" if told else "–",
            judge(told, 0.4),
            "to hold, nine tenths; to hold weaker, more than half",
        ),
        claim(
            "pdi-mc",
            "PDI's samples forget where they start",
            "no diagonal",
            judge_equal(ends["pdi-mc"], args.margin),
            f"margin ±{args.margin:g}",
        ),
    ]
    run.figure(
        "transition",
        draw({agent: np.mean(own, axis=0) for agent, own in matrices.items()}),
        "Rows: the mode nearest to the start; columns: the mode at the end. PDI's rows are alike: the noise "
        "of the reverse process makes samples forget their start.",
    )
    lines = ["| agent | seeds | stay | excess over chance |", "|---|---|---|---|"]
    lines += [f"| {a} | {args.seeds} | {stay[a]:.3f} | {shown(ends[a])} |" for a in matrices]
    run.write(
        rows,
        claims,
        "\n".join(lines) + "\n",
        sample=f"The paper's mixture, inference seeds 0 to {args.seeds - 1}, {args.n} samples each.",
        reduced="PDI by preset fast: 8 candidates instead of a trained network; the paper has 1024 samples.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
