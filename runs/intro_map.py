"""The map of one test network: who is served by each agent, and who is not.

python runs/intro_map.py             # writes map.png, results.json and README.md to runs/results/intro_map
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from pdi_gym import plots, tracking
from pdi_gym.evaluation import averages, named_agent, one_thread
from pdi_gym.files import whole_file, write_text
from pdi_gym.problems import WirelessPower


@dataclass
class Args:
    agents: tuple[str, ...] = ("unconstrained", "pdi-mc", "pdi-cg")
    """Agents by name, or name@preset; one map each."""
    network: int = 0
    """Index of the test network."""
    n: int = 200
    """Decisions per policy."""
    seed: int = 0
    """Seed of inference and, by an independent stream, of evaluation."""
    out: Path = Path("runs/results/intro_map")
    """Folder of the results."""


def main(args: Args) -> None:
    problem = WirelessPower.instance(args.network, "test")
    rates: dict[str, np.ndarray] = {}
    with one_thread():
        for name in args.agents:
            policy = named_agent(name).sample(problem, args.n, args.seed)
            _, residuals = averages(policy, problem, seed=args.seed)
            rates[name] = (problem.r_min - residuals.mean(0)).numpy()
    with whole_file(args.out / "map.png") as temporary:
        plots.network_maps(problem, rates).savefig(temporary, dpi=110, format="png")
    table = {name: summary(r, problem) for name, r in rates.items()}
    content = {"command": tracking.command(), "versions": tracking.versions(), "agents": table}
    write_text(args.out / "results.json", json.dumps(content, indent=1))
    write_text(args.out / "README.md", page(args, table))


def summary(rates: np.ndarray, problem: WirelessPower) -> dict[str, float]:
    served = rates >= problem.r_min - problem.tolerance
    return {
        "mean_rate": float(rates.mean()),
        "p5_rate": float(np.percentile(rates, 5)),
        "p1_rate": float(np.percentile(rates, 1)),
        "served": float(served.mean()),
    }


def page(args: Args, table: dict[str, dict[str, float]]) -> str:
    lines = [
        f"# Who is served on test network {args.network}",
        "",
        f"`{tracking.command()}`: {args.n} decisions per policy, rates averaged over 500 slots, 50 times.",
        "",
        "![map](map.png)",
        "",
        "| agent | mean rate | 5 % rate | 1 % rate | users served |",
        "|---|---|---|---|---|",
    ]
    for name, row in table.items():
        figures = " | ".join(f"{row[k]:.3f}" for k in ("mean_rate", "p5_rate", "p1_rate", "served"))
        lines.append(f"| {name} | {figures} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(tyro.cli(Args))
