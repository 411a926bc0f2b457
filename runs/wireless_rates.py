"""Multipliers and residuals along PDI's denoising steps, and the distribution of users' rates.

python runs/wireless_rates.py          # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tyro

from pdi_gym import drawing
from pdi_gym.envs import make_env
from pdi_gym.evaluation import named_agent
from pdi_gym.experiments.run import FAST_WIRELESS, WIRELESS, Common, Run, sample_of, table
from pdi_gym.processes import one_thread

NAME = "wireless-rates"
QUICK = {"networks": 2, "n": 40, "trials": 10, "agent": "pdi-mc"}
AGENTS = {"unconstrained": "unconstrained", "pdi-mc": "pdi-mc", "pdl": "pdl@paper", "expert": "expert"}
STYLES = (("#666666", ":"), ("#0072B2", "-"), ("#E69F00", "-."), ("#009E73", "--"))


@dataclass
class Args(Common):
    agent: str = "pdi-mc"
    """Agent whose multipliers are drawn, on test network 0."""
    networks: int = 64
    """Test networks of the rates' distribution."""
    n: int = 200
    """Decisions per policy."""
    trials: int = 50
    """Horizons played per policy."""


def draw_path(trace: dict[str, np.ndarray], r_min: float) -> drawing.Figure:
    """λ of every user, and the mean violation and worst residual of the clean estimates."""
    fig, (left, right) = drawing.figure(10.5, 4, ncols=2)
    duals, residuals, step = trace["duals"], trace["residuals"], trace["step"]
    order = np.argsort(duals[-1])
    left.plot(step, duals[:, order[:-5]], color=drawing.NEUTRAL, lw=0.4, alpha=0.5)
    left.plot(step, duals[:, order[-5:]], color=drawing.MISSED, lw=1.6)
    left.plot([], [], color=drawing.MISSED, lw=1.6, label="five largest at the end")
    left.plot([], [], color=drawing.NEUTRAL, lw=0.8, label="the other users")
    left.set(xlabel="denoising step", ylabel="multiplier λ of each user", title="Multipliers")
    right.plot(step, residuals.max(1), color=drawing.MISSED, lw=1.6, label="worst user")
    right.plot(
        step, np.percentile(residuals, 95, axis=1), color="#E69F00", lw=1.6, label="worst 5 % of users"
    )
    right.plot(step, np.median(residuals, axis=1), color=drawing.MET, lw=1.6, label="median user")
    right.axhline(0, color="black", lw=0.8)
    right.set(
        xlabel="denoising step",
        ylabel="residual $r_{min}$ − rate (bit/s/Hz)",
        title="Residuals of the clean estimates: above 0 is short",
        ylim=(-3, r_min + 0.05),
    )
    for ax in (left, right):
        ax.legend(fontsize=9)
        ax.grid(alpha=0.3)
    return fig


def draw_rates(rates: dict[str, np.ndarray], r_min: float) -> drawing.Figure:
    """Share of users whose average rate is at most x, over all networks."""
    fig, (left, right) = drawing.figure(10.5, 4, ncols=2)
    for (colour, line), (agent, values) in zip(STYLES, rates.items(), strict=False):
        x = np.sort(values)
        for ax in (left, right):
            ax.plot(x, np.arange(1, len(x) + 1) / len(x), color=colour, ls=line, lw=1.8, label=agent)
    for ax in (left, right):
        ax.axvline(r_min, color="black", lw=0.9)
        ax.set(xlabel="average rate of a user (bit/s/Hz)", ylabel="share of users at or below")
        ax.grid(alpha=0.3)
    left.set(xlim=(0, 8), title="All users")
    right.set(xlim=(0, 1.2), ylim=(0, 0.25), title=f"The worst served; required {r_min:g}")
    left.legend()
    return fig


def main(args: Args) -> None:
    run = Run(NAME, args, "wireless_table")
    problem = make_env("WirelessPower-v0", {"split": "test"}).make_problem(0)
    rows = run.compare(
        AGENTS, "WirelessPower-v0", args.networks, n=args.n, trials=args.trials, env_kwargs={"split": "test"}
    )
    rates = {
        agent: np.concatenate([problem.r_min - run.policy(r)[1] for r in rows if r["agent"] == agent])
        for agent in AGENTS
    }
    with one_thread():
        trace = named_agent(args.agent).sample(problem, args.n, args.seed).info["trace"]
    run.figure(
        "duals",
        draw_path(trace, problem.r_min),
        f"{args.agent} on test network 0. The multipliers of users that interference keeps short rise to the "
        "last step, the others fall to zero.",
    )
    run.figure(
        "rates",
        draw_rates(rates, problem.r_min),
        f"Average rates of the users of {args.networks} networks: PDI moves the left tail to the requirement "
        "and pays with rates in the middle.",
    )
    run.write(
        rows,
        [],
        table(rows, WIRELESS),
        sample=sample_of(args),
        reduced=f"{FAST_WIRELESS} The paper draws no conclusion from this figure.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
