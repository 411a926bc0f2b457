"""Four noise schedules under PDI-MC, which needs no retraining for any of them.

python runs/wireless_schedules.py      # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from pdi_gym.agents import make_agent
from pdi_gym.evaluation import Row
from pdi_gym.experiments.claims import Claim, beats
from pdi_gym.experiments.run import FAST_WIRELESS, WIRELESS, Common, Run, panels, sample_of, table
from pdi_gym.schedules import SCHEDULES

NAME = "wireless-schedules"
QUICK = {"networks": 3, "n": 40, "trials": 10}


@dataclass
class Args(Common):
    networks: int = 16
    """Test networks, from the first."""
    n: int = 200
    """Decisions per policy."""
    trials: int = 50
    """Horizons played per policy."""


SNR = ("linear-snr", "polynomial-snr")


def about_schedules(rows: list[Row], unit: str) -> list[Claim]:
    """Cosine and linear against both SNR schedules."""
    words = {"feasible": "is more feasible", "mean_violation": "violates less"}
    return [
        beats(rows, good, bad, metric, f"{good} {says} than {bad}", unit=unit)
        for bad in SNR
        for good in ("cosine", "linear")
        for metric, says in words.items()
    ]


def main(args: Args) -> None:
    run = Run(NAME, args)
    agents = {s: make_agent("pdi-mc", schedule=s) for s in SCHEDULES}
    agents |= {"unconstrained": make_agent("unconstrained")}
    rows = run.compare(
        agents, "WirelessPower-v0", args.networks, n=args.n, trials=args.trials, env_kwargs={"split": "test"}
    )
    claims = about_schedules(rows, "networks") + [
        beats(rows, "unconstrained", bad, "feasible", f"{bad} fails: no constraints at all are more feasible")
        for bad in SNR
    ]
    metrics = ("mean_rate", "p5_rate", "mean_violation", "feasible")
    run.figure(
        "schedules",
        panels(rows, metrics, "PDI-MC under four noise schedules", first="cosine", marks={"p5_rate": 0.6}),
        "The paper's cosine schedule (diamond) and three others: dots are networks, bars 95 % intervals of "
        "the mean, the dashed line is the required rate.",
    )
    run.write(
        rows,
        claims,
        table(rows, WIRELESS),
        sample=sample_of(args),
        reduced=f"{FAST_WIRELESS} {args.networks} of the paper's 64 networks; every schedule has its own "
        "Monte-Carlo score, where a trained network would have to be trained anew.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
