"""Multipliers frozen at λ_T or λ̄, and PDI from different starts λ0, on portfolios.

python runs/portfolio_fixed_dual.py    # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from pdi_gym.agents import make_agent
from pdi_gym.experiments.claims import beats, equals
from pdi_gym.experiments.run import FAST_PORTFOLIO, PORTFOLIO, Common, Run, panels, sample_of, table

NAME = "portfolio-fixed-dual"
QUICK = {"instances": 2, "n": 64}


@dataclass
class Args(Common):
    starts: tuple[float, ...] = (2.0, 10.0)
    """Other first values λ0 than zero; along the path the multipliers average 2 to 6."""
    margin: float = 0.005
    """Largest difference in mean return, about 2 % of it, that counts as none."""
    instances: int = 20
    """Test instances, from the first."""
    start_instances: int = 8
    """Instances for the other first values."""
    n: int = 256
    """Portfolios per policy."""


def main(args: Args) -> None:
    run = Run(NAME, args, "portfolio_table")
    starts = {f"pdi-mc, λ0 = {s:g}": make_agent("pdi-mc", dual_init=s) for s in args.starts}
    kwargs, few = {"split": "test"}, min(args.instances, args.start_instances)
    frozen = ["pdi-mc", "frozen-last", "frozen-mean"]
    rows = run.compare(frozen, "Portfolio-v0", args.instances, n=args.n, env_kwargs=kwargs)
    rows += run.compare(starts, "Portfolio-v0", few, n=args.n, env_kwargs=kwargs)

    def better(own: str, other: str, metric: str, claim: str):
        paid = (other, metric) == ("frozen-last", "mean_return")
        note = "what λ_T frozen earns it takes by breaking the budgets" if paid else ""
        return beats(rows, own, other, metric, claim, unit="instances", note=note)

    claims = [
        better("pdi-mc", "frozen-last", "mean_violation", "the dynamics violate less than λ_T frozen"),
        better("pdi-mc", "frozen-mean", "mean_violation", "the dynamics violate less than λ̄ frozen"),
        better("pdi-mc", "frozen-last", "mean_return", "the dynamics earn more than λ_T frozen"),
        better("pdi-mc", "frozen-mean", "mean_return", "the dynamics earn more than λ̄ frozen"),
        better("frozen-mean", "frozen-last", "mean_violation", "λ̄ frozen violates less than λ_T frozen"),
        better("frozen-mean", "frozen-last", "mean_return", "λ̄ frozen earns more than λ_T frozen"),
    ]
    for label in starts:
        start = label.split(", ")[1]
        claims += [
            equals(
                rows,
                label,
                "pdi-mc",
                "mean_return",
                args.margin,
                f"{start} returns the same as λ0 = 0",
                unit="instances",
            ),
            equals(
                rows, label, "pdi-mc", "feasible", 0.01, f"{start} is as feasible as λ0 = 0", unit="instances"
            ),
        ]
    metrics = ("mean_return", "feasible", "mean_violation", "n_eff")
    run.figure(
        "frozen",
        panels(
            rows,
            metrics,
            "λ frozen at its last value leaves the budgets",
            first="pdi-mc",
            log_scaled=["mean_return", "mean_violation"],
        ),
        "PDI from three starts λ0, and with λ frozen: dots are instances, bars 95 % intervals of the mean.",
    )
    run.write(
        rows,
        claims,
        table(rows, PORTFOLIO),
        sample=sample_of(args),
        reduced=f"{FAST_PORTFOLIO} Other λ0 on {few} instances; the paper does not print its own.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
