"""The paper's bars on the mixture of Gaussians: objective, feasibility, modes and seconds.

python runs/mixture_bars.py            # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from pdi_gym.evaluation import Row
from pdi_gym.experiments.claims import beats, equals
from pdi_gym.experiments.run import Common, Run, available, panels, table
from pdi_gym.problems import MixtureOfGaussians

NAME = "mixture-bars"
QUICK = {"seeds": 2, "mixtures": 2, "n": 256}
METRICS = ("objective", "feasible", "mean_violation", "modes", "mode_entropy")


@dataclass
class Args(Common):
    seeds: int = 8
    """Inference seeds on the paper's mixture."""
    mixtures: int = 8
    """Mixtures of the same family, the paper's first: its claims are not about one draw of centres."""
    n: int = 1024
    """Samples per policy."""
    margin: float = 0.05
    """Largest difference in the feasible fraction that counts as none: half a constraint of ten."""


def main(args: Args) -> None:
    run = Run(NAME, args)
    general = ["pdi-mc", "pdl", "pdm", "unconstrained"]
    learned = available(MixtureOfGaussians.instance(), "pdi-net", "dt", "st")
    own: list[Row] = []
    for seed in range(args.seeds):
        found = run.compare(
            [*learned, *general, "pdi-mc@paper"],
            "MixtureOfGaussians-v0",
            1,
            n=args.n,
            seed=seed,
            env_kwargs={"seed": 0},
            folder=f"seed {seed}",
        )
        own += [row | {"instance": seed, "part": "inference seeds"} for row in found]
    others: list[Row] = []
    for mixture in range(args.mixtures):
        found = run.compare(
            general,
            "MixtureOfGaussians-v0",
            1,
            n=args.n,
            env_kwargs={"seed": mixture},
            folder=f"mixture {mixture}",
        )
        others += [row | {"instance": mixture, "part": "mixtures"} for row in found]

    def better(rows: list[Row], agent: str, other: str, metric: str, says: str, unit: str):
        return beats(
            rows,
            agent,
            other,
            metric,
            f"{agent} {says} {other} ({unit})",
            unit=unit,
            direction=1 if metric.startswith("mode") else None,
        )

    claims = []
    for rows, unit, agents in ((own, "seeds", ("pdi-mc", "pdi-net")), (others, "mixtures", ("pdi-mc",))):
        for agent in agents:
            for other in ("pdl", "pdm"):
                claims.append(better(rows, agent, other, "objective", "has a better objective than", unit))
                claims.append(better(rows, agent, other, "modes", "visits more modes than", unit))
                claims.append(better(rows, agent, other, "mode_entropy", "spreads more evenly than", unit))
                claims.append(
                    equals(
                        rows,
                        agent,
                        other,
                        "feasible",
                        args.margin,
                        f"{agent} is as feasible as {other} ({unit})",
                        paper="all feasible",
                        unit=unit,
                    )
                )
    shown = ("objective", "feasible", "modes", "seconds")
    run.figure(
        "bars",
        panels(own, shown, "The paper's mixture, d = 30, 12 modes, 10 constraints", first="pdi-mc"),
        f"The paper's mixture: dots are {args.seeds} inference seeds, bars 95 % intervals of the mean. Left "
        "is better in the objective; the unconstrained sampler meets no constraint.",
    )
    parts = (
        f"The paper's mixture, {args.seeds} inference seeds:\n\n{table(own, METRICS)}\n"
        f"{args.mixtures} mixtures of the family, one seed each:\n\n{table(others, METRICS)}"
    )
    run.write(
        [*own, *others],
        claims,
        parts,
        sample=f"The paper's mixture under inference seeds 0 to {args.seeds - 1}, and mixtures 0 to "
        f"{args.mixtures - 1} of its family under seed {args.seed}; {args.n} samples per policy.",
        reduced="Preset fast: 8 candidates instead of 64, which the row pdi-mc@paper has; T = 500 as in the "
        "paper. PDI-Net's training is far smaller than the paper's: failures may be for want of it.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
