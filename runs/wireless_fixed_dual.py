"""Multipliers frozen at PDI's last iterate λ_T or its time average λ̄, against the full dynamics.

python runs/wireless_fixed_dual.py     # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from pdi_gym.experiments.claims import beats
from pdi_gym.experiments.run import FAST_WIRELESS, WIRELESS, Common, Run, panels, sample_of, table

NAME = "wireless-fixed-dual"
QUICK = {"networks": 3, "n": 40, "trials": 10}


@dataclass
class Args(Common):
    networks: int = 64
    """Test networks, from the first."""
    n: int = 200
    """Decisions per policy."""
    trials: int = 50
    """Horizons played per policy."""


def main(args: Args) -> None:
    run = Run(NAME, args, "wireless_table")
    rows = run.compare(
        ["pdi-mc", "frozen-last", "frozen-mean"],
        "WirelessPower-v0",
        args.networks,
        n=args.n,
        trials=args.trials,
        env_kwargs={"split": "test"},
    )
    claims = [
        beats(rows, "pdi-mc", "frozen-last", "feasible", "the dynamics are more feasible than λ_T frozen"),
        beats(rows, "pdi-mc", "frozen-mean", "feasible", "the dynamics are more feasible than λ̄ frozen"),
        beats(rows, "pdi-mc", "frozen-last", "mean_violation", "the dynamics violate less than λ_T frozen"),
        beats(rows, "pdi-mc", "frozen-mean", "mean_violation", "the dynamics violate less than λ̄ frozen"),
        beats(rows, "frozen-mean", "frozen-last", "feasible", "λ̄ frozen is more feasible than λ_T frozen"),
        beats(rows, "frozen-mean", "frozen-last", "mean_violation", "λ̄ frozen violates less than λ_T frozen"),
    ]
    title = "Frozen multipliers earn more rate and leave more users short"
    metrics = ("mean_rate", "p5_rate", "mean_violation", "feasible")
    run.figure(
        "frozen",
        panels(rows, metrics, title, first="pdi-mc", marks={"p5_rate": 0.6}),
        "PDI-MC with its multipliers moving, frozen at the last iterate, and frozen at the time average: "
        "dots are networks, bars 95 % intervals of the mean, the dashed line is the required rate.",
    )
    run.write(
        rows,
        claims,
        table(rows, WIRELESS),
        sample=sample_of(args),
        reduced=f"{FAST_WIRELESS} λ is really frozen and the samples drawn afresh.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
