"""The map of one test network: who is served by each agent, and who is not.

python runs/intro_map.py               # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tyro

from pdi_gym import plots
from pdi_gym.claims import UNKNOWN, Claim, judge, shown
from pdi_gym.evaluation import averages, named_agent, one_thread
from pdi_gym.experiment import FAST_WIRELESS, Common, Run, available
from pdi_gym.problems import WirelessPower
from pdi_gym.statistics import bootstrap

NAME = "intro-map"
QUICK = {"n": 40, "trials": 10, "agents": ("unconstrained", "dt", "pdi-mc")}


@dataclass
class Args(Common):
    agents: tuple[str, ...] = ("unconstrained", "dt", "pdi-mc", "pdi-cg")
    """One map each; those without weights are left out."""
    network: int = 0
    """Index of the test network."""
    n: int = 200
    """Decisions per policy."""
    trials: int = 50
    """Horizons played per policy."""


def summary(agent: str, rates: np.ndarray, problem: WirelessPower) -> dict:
    served = rates >= problem.r_min - problem.tolerance
    return {
        "agent": agent, "mean_rate": float(rates.mean()), "p5_rate": float(np.percentile(rates, 5)),
        "p1_rate": float(np.percentile(rates, 1)), "served": float(served.mean()),
        "missed": int((~served).sum()),
    }  # fmt: skip


def lifts(rates: dict[str, np.ndarray], own: str, other: str, r_min: float) -> Claim:
    """Rates of the users that `other` leaves short, under `own`: users are the sample."""
    text = f"{own} lifts the users that {other} leaves short"
    if own not in rates or other not in rates:
        return Claim(text, "shown on a map", "not measured", UNKNOWN, f"not run: {other}")
    short = rates[other] < r_min
    gain = bootstrap((rates[own] - rates[other])[short])
    before, after = (rates[a][short].mean() for a in (other, own))
    ours = f"{before:.3f} to {after:.3f} bit/s/Hz: {shown(gain)}, n = {short.sum()} users"
    left = int((rates[own] < r_min).sum())
    reason = f"{short.sum()} of {len(short)} users are below {r_min:g} under {other}, {left} under {own}"
    return Claim(text, "shown on a map", ours, judge(gain), reason)


def main(args: Args) -> None:
    run = Run(NAME, args)
    problem = WirelessPower.instance(args.network, "test")
    rates: dict[str, np.ndarray] = {}
    with one_thread():
        for name in available(problem, *args.agents):
            agent = named_agent(name)
            run.agents[name] = agent.config(problem)
            _, residuals = averages(
                agent.sample(problem, args.n, args.seed), problem, trials=args.trials, seed=args.seed
            )
            rates[name] = (problem.r_min - residuals.mean(0)).numpy()
    rows = [summary(name, r, problem) for name, r in rates.items()]
    run.figure(
        "map", plots.network_maps(problem, rates),
        f"Test network {args.network}: receivers coloured by their average rate; crosses fall short.",
    )  # fmt: skip
    lines = ["| agent | mean rate | 5 % rate | 1 % rate | users served |", "|---|---|---|---|---|"]
    for row in rows:
        figures = " | ".join(f"{row[k]:.3f}" for k in ("mean_rate", "p5_rate", "p1_rate", "served"))
        lines.append(f"| {row['agent']} | {figures} |")
    run.write(
        rows, [lifts(rates, "pdi-mc", other, problem.r_min) for other in ("unconstrained", "dt")],
        "\n".join(lines) + "\n",
        sample=f"Test network {args.network}, {problem.latent_dim} users, {args.n} decisions per policy, "
        f"seed {args.seed}.",
        reduced=f"{FAST_WIRELESS} pdi-cg is the best that we have.",
    )  # fmt: skip


if __name__ == "__main__":
    main(tyro.cli(Args))
