"""Required rates that the agents were not made for: r_min from .5 to .8, trained and tuned at .6.

python runs/wireless_ood.py            # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from pdi_gym import drawing
from pdi_gym.envs import make_env
from pdi_gym.evaluation import Row
from pdi_gym.experiments.claims import Claim, beats, by_instance
from pdi_gym.experiments.run import WIRELESS, Common, Run, available, band, sample_of, table

NAME = "wireless-ood"
QUICK = {"networks": 2, "n": 40, "trials": 10, "levels": (0.5, 0.6, 0.8)}
STYLES = {
    "pdi-mc": ("#0072B2", "o"),
    "pdi-net": ("#009E73", "s"),
    "dt": ("#D55E00", "^"),
}


@dataclass
class Args(Common):
    levels: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8)
    """Required rates in bit/s/Hz; .6 is the one of training."""
    trained: float = 0.6
    """The required rate of training."""
    networks: int = 8
    """Test networks, from the first."""
    n: int = 200
    """Decisions per policy."""
    trials: int = 50
    """Horizons played per policy."""


def draw(rows: list[Row], agents: list[str], levels: tuple[float, ...], trained: float) -> drawing.Figure:
    fig, axes = drawing.figure(9.5, 3.7, ncols=2)
    for ax, metric in zip(axes, ("sum_violation", "feasible"), strict=True):
        for agent in agents:
            colour, marker = STYLES[agent]
            labels = [f"{agent} at {r:g}" for r in levels]
            band(ax, levels, rows, labels, metric, marker=marker, color=colour, label=agent)
        ax.axvline(trained, color="black", lw=0.8, ls=":")
        ax.set_xlabel("required rate $r_{min}$ (bit/s/Hz)")
        ax.grid(alpha=0.3)
    axes[0].legend(fontsize=9)
    return fig


def degradation(rows: list[Row], agents: list[str], level: float, trained: float) -> list[Row]:
    """What each agent loses from the trained level to another, as rows of their own."""
    found = []
    for agent in agents:
        for metric in ("sum_violation", "feasible"):
            there, here = (by_instance(rows, f"{agent} at {r:g}", metric) for r in (level, trained))
            found += [
                {"agent": f"{agent}, {metric}", "instance": i, "metrics": {metric: there[i] - here[i]}}
                for i in here
            ]
    return found


def main(args: Args) -> None:
    run = Run(NAME, args)
    problem = make_env("WirelessPower-v0", {"split": "test"}).make_problem(0)
    agents = available(problem, "pdi-mc", "pdi-net", "dt")
    rows: list[Row] = []
    for level in args.levels:
        found = run.compare(
            agents,
            "WirelessPower-v0",
            args.networks,
            n=args.n,
            trials=args.trials,
            env_kwargs={"split": "test", "r_min": level},
            folder=f"{level:g}",
        )
        rows += [row | {"agent": f"{row['agent']} at {level:g}"} for row in found]
    hardest = max(args.levels)
    lost = degradation(rows, agents, hardest, args.trained)
    claims: list[Claim] = []
    names = {"sum_violation": "sum of violations", "feasible": "feasible fraction"}
    words = {"sum_violation": ("adds less", "violates less"), "feasible": ("loses less", "is more feasible")}
    for own in ("pdi-net", "pdi-mc"):
        for metric, (change, level) in words.items():
            text = f"from r_min = {args.trained:g} to {hardest:g}, {own} {change} {names[metric]} than DT"
            claims.append(beats(lost, f"{own}, {metric}", f"dt, {metric}", metric, text))
            text = f"at r_min = {hardest:g}, {own} {level} than DT"
            claims.append(beats(rows, f"{own} at {hardest:g}", f"dt at {hardest:g}", metric, text))
    run.figure(
        "ood",
        draw(rows, agents, args.levels, args.trained),
        "Means over networks with 95 % intervals; the dotted line is the required rate of training.",
    )
    run.write(
        rows,
        claims,
        table(rows, WIRELESS),
        sample=sample_of(args),
        reduced=f"pdi-mc by preset fast (T = 100), the networks smaller and trained less than the paper's; "
        f"{args.networks} of the paper's 64 networks.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
