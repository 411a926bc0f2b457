"""Multipliers frozen at the average of the last part of their path: how much of the path matters.

python runs/portfolio_tail.py          # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from pdi_gym import drawing
from pdi_gym.agents import make_agent
from pdi_gym.evaluation import Row
from pdi_gym.experiments.claims import beats
from pdi_gym.experiments.run import FAST_PORTFOLIO, PORTFOLIO, Common, Run, band, sample_of, table

NAME = "portfolio-tail"
QUICK = {"instances": 2, "n": 64, "tails": (0.1, 0.5, 1.0)}


@dataclass
class Args(Common):
    tails: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)
    """Last fractions of the path that are averaged; the last one is the whole."""
    instances: int = 8
    """Test instances, from the first."""
    n: int = 128
    """Portfolios per policy."""


def curves(rows: list[Row], labels: dict[str, float]) -> drawing.Figure:
    """Return, violation and feasibility against the share of the path."""
    fig, axes = drawing.figure(10.5, 3.3, ncols=3)
    x = [100 * share for share in labels.values()]
    for ax, metric in zip(axes, ("mean_return", "mean_violation", "feasible"), strict=True):
        band(ax, x, rows, list(labels), metric, marker="o", color=drawing.MET)
        ax.set_xlabel("last part of the path averaged (%)")
        ax.grid(alpha=0.3)
    axes[1].set_yscale("log")
    return fig


def main(args: Args) -> None:
    run = Run(NAME, args)
    labels = {f"last {100 * t:g} %": t for t in args.tails}
    agents = {label: make_agent("frozen-tail", tail=t) for label, t in labels.items()}
    rows = run.compare(agents, "Portfolio-v0", args.instances, n=args.n, env_kwargs={"split": "test"})
    *parts, whole = labels
    words = {"mean_violation": "violates less", "feasible": "is more feasible", "mean_return": "earns more"}
    paid = {"mean_return": "what a part of the path earns more it takes by breaking the budgets"}
    claims = [
        beats(
            rows,
            whole,
            part,
            metric,
            f"the full average {says} than the {part}",
            unit="instances",
            note=paid.get(metric, ""),
        )
        for part in parts
        for metric, says in words.items()
    ]
    run.figure(
        "tail",
        curves(rows, labels),
        "λ frozen at the average of the last part of PDI's path: means over instances with 95 % intervals. A "
        "shorter tail earns more only by breaking the budgets.",
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
