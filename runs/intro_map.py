"""The map of one test network: who is served by each agent, and who is not.

python runs/intro_map.py               # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from pdi_gym import drawing
from pdi_gym.evaluation import Row
from pdi_gym.experiments.claims import beats
from pdi_gym.experiments.run import WIRELESS, Common, Run, available, sample_of, table
from pdi_gym.problems import WirelessPower

NAME = "intro-map"
QUICK = {"networks": 2, "n": 40, "trials": 10, "agents": ("unconstrained", "dt", "pdi-net")}
BEST = "pdi-cg"


@dataclass
class Args(Common):
    agents: tuple[str, ...] = ("unconstrained", "dt", "pdi-net", BEST)
    """One map each, of test network 0; those without weights are left out."""
    networks: int = 64
    """Test networks of the claims; the best that we have is on the map only."""
    n: int = 200
    """Decisions per policy."""
    trials: int = 50
    """Horizons played per policy."""


def main(args: Args) -> None:
    run = Run(NAME, args, "wireless_table")
    problem = WirelessPower.instance(0, "test")
    rows: list[Row] = []
    for agent in available(problem, *args.agents):
        rows += run.compare(
            [agent],
            "WirelessPower-v0",
            1 if agent == BEST else args.networks,
            n=args.n,
            trials=args.trials,
            env_kwargs={"split": "test"},
        )
    rates = {row["agent"]: problem.r_min - run.policy(row)[1] for row in rows if row["instance"] == 0}
    short = {agent: int((r < problem.r_min - problem.tolerance).sum()) for agent, r in rates.items()}
    counts = ", ".join(f"{count} under {agent}" for agent, count in short.items())
    claims = [
        beats(rows, "pdi-net", other, metric, f"pdi-net lifts the worst-served: {says} than {other}")
        for other in ("unconstrained", "dt")
        for metric, says in (("p5_rate", "a higher 5 % rate"), ("p1_rate", "a higher 1 % rate"))
    ]
    run.figure(
        "map",
        drawing.network_maps(problem, rates),
        f"Test network 0: receivers coloured by their average rate; crosses fall short ({counts}).",
    )
    run.write(
        rows,
        claims,
        table(rows, WIRELESS),
        sample=sample_of(args),
        reduced=f"The map is one network, the claims are over all. {BEST}, on the map only, is the best that "
        "we have. Smaller networks, trained for fewer steps, than the paper's.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
