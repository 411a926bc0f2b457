"""Four noise schedules under PDI-MC on portfolios.

python runs/portfolio_schedules.py     # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import tyro
from wireless_schedules import about_schedules

from pdi_gym.agents import make_agent
from pdi_gym.experiments.run import PORTFOLIO, Common, Run, panels, sample_of, table
from pdi_gym.schedules import SCHEDULES

NAME = "portfolio-schedules"
QUICK = {"instances": 3, "n": 64, "T": 200}


@dataclass
class Args(Common):
    instances: int = 8
    """Test instances, from the first."""
    n: int = 128
    """Portfolios per policy."""
    T: int = 500
    """Denoising steps."""


def main(args: Args) -> None:
    run = Run(NAME, args)
    agents = {s: make_agent("pdi-mc", "paper", schedule=s, T=args.T) for s in SCHEDULES}
    rows = run.compare(agents, "Portfolio-v0", args.instances, n=args.n, env_kwargs={"split": "test"})
    metrics = ("mean_return", "feasible", "mean_violation", "n_eff")
    fig = panels(
        rows, metrics, "PDI-MC under four noise schedules", first="cosine", log_scaled=["mean_violation"]
    )
    run.figure(
        "schedules",
        fig,
        "The paper's cosine schedule (diamond) and three others: dots are instances, bars 95 % intervals of "
        "the mean.",
    )
    run.write(
        rows,
        about_schedules(rows, "instances"),
        table(rows, PORTFOLIO),
        sample=sample_of(args),
        reduced=f"Preset paper, but 8 candidates instead of 512 and {args.n} portfolios instead of 1024.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
