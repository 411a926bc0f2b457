"""Temperatures β on portfolios, along the denoising steps and at the end.

python runs/portfolio_temperature.py   # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import tyro

from pdi_gym import drawing
from pdi_gym.agents import Agent, make_agent
from pdi_gym.envs import make_env
from pdi_gym.experiments.claims import beats
from pdi_gym.experiments.run import FAST_PORTFOLIO, PORTFOLIO, Common, Run, sample_of, table
from pdi_gym.problem import Problem
from pdi_gym.processes import one_thread
from pdi_gym.samplers import Step

NAME = "portfolio-temperature"
QUICK = {"instances": 2, "n": 64, "inverse": (100.0, 2000.0)}
COLOURS = ("#440154", "#31688E", "#35B779", "#C9A800")
"""From viridis, dark and hot to light and cold, the last darkened so that it shows on white."""


@dataclass
class Args(Common):
    inverse: tuple[float, ...] = (100.0, 500.0, 1000.0, 2000.0)
    """Inverse temperatures 1/β, hot to cold."""
    instances: int = 8
    """Test instances, from the first."""
    n: int = 128
    """Portfolios per policy."""


def path(agent: Agent, problem: Problem, n: int, seed: int) -> np.ndarray:
    """(T, 2) mean return and mean violation of the clean estimates after each step."""
    seen: list[tuple[float, float]] = []

    def observe(step: Step) -> None:
        value = -float(problem.objective(problem.decode(step.clean)).mean())
        seen.append((value, float(step.residual.clamp(min=0).mean())))

    with one_thread():
        agent.sample(problem, n, seed, observe)
    return np.array(seen)


def curves(paths: dict[str, np.ndarray]) -> drawing.Figure:
    fig, axes = drawing.figure(9.5, 3.6, ncols=2)
    for column, (ax, name) in enumerate(zip(axes, ("mean return", "mean violation"), strict=True)):
        for colour, (label, values) in zip(COLOURS, paths.items(), strict=False):
            ax.plot(values[:, column], color=colour, lw=1.6, label=label)
        ax.set(xlabel="denoising step", ylabel=f"{name} of the clean estimates", yscale="log")
        ax.grid(alpha=0.3)
    ends = [values[-1, 0] for values in paths.values()]
    axes[0].set(yscale="linear", ylim=(0.5 * min(ends), 2 * max(ends)))  # the first steps are far above
    axes[0].legend(title="1/β")
    return fig


def main(args: Args) -> None:
    run = Run(NAME, args)
    agents = {f"{b:g}": make_agent("pdi-mc", beta=1 / b) for b in args.inverse}
    kwargs = {"split": "test"}
    rows = run.compare(agents, "Portfolio-v0", args.instances, n=args.n, env_kwargs=kwargs)
    claims = []
    for hot, cold in [*pairwise(agents), (next(iter(agents)), list(agents)[-1])][: len(agents)]:
        for metric, says in (("mean_return", "earns more"), ("mean_violation", "violates less")):
            claims.append(beats(rows, cold, hot, metric, f"1/β = {cold} {says} than {hot}", unit="instances"))
    hot, cold = next(iter(agents)), list(agents)[-1]
    claims.append(
        beats(
            rows,
            hot,
            cold,
            "top1_entropy",
            f"1/β = {hot} spreads over more top assets than {cold}",
            unit="instances",
            direction=1,
            note="entropy of the assets that lead a portfolio",
        )
    )
    problem = make_env("Portfolio-v0", kwargs).make_problem(0)
    run.figure(
        "temperature",
        curves({label: path(agent, problem, args.n, args.seed) for label, agent in agents.items()}),
        "Mean return and mean violation along the sampler on test instance 0, at four temperatures.",
    )
    run.write(
        rows,
        claims,
        table(rows, PORTFOLIO),
        sample=sample_of(args),
        reduced=FAST_PORTFOLIO,
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
