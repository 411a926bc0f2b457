"""Agents by their defaults on problems that are none of the shipped ones, with known optima, in many units.

python runs/own_problems.py

Every problem of tests/own_problems.py is solved as it is, and with the units of its objective,
constraints and decisions multiplied by a thousand or divided by it, one at a time and against each other.
Feasible means that no average residual is above 1 % of its constraint's right-hand side. Averages are true
ones, in closed form where there is noise; the last column has what `evaluate` says of the first policy.
Gaps are relative to the optimum, or to the cost's range where that is near 0.
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro

sys.path.insert(0, str(Path(__file__).parents[1]))

from pdi_gym.advice import PolicyWarning
from pdi_gym.agents import make_agent
from pdi_gym.evaluation import evaluate
from pdi_gym.files import write_text
from pdi_gym.policy import TimeSharingPolicy
from tests.own_problems import OWN, Units, shortfall

LIMITS = {"pdi-mc": 0.25, "expert": 0.05, "pdi-cg": 0.01}
FEASIBLE = 0.01
UNITS = (
    Units(objective=1e-3), Units(objective=1e3), Units(constraints=1e-3), Units(constraints=1e3),
    Units(decisions=1e-3), Units(decisions=1e3), Units(1e3, 1e-3, 1e3),
)  # fmt: skip


@dataclass
class Args:
    """What is run and where results go."""

    agents: tuple[str, ...] = ("pdi-mc", "expert", "pdi-cg", "pdi-adaptive", "pdl", "dps", "pdm")
    """Agents; those with a limit are judged in all units, the others in their own."""
    seed: int = 0
    """Of the policies."""
    seeds: int = 3
    """Further seeds, in the problem's own units."""
    out: Path = Path("runs/results/own-problems")
    """Where the table goes."""


class Solved(NamedTuple):
    """A policy's gap and worst residual as fractions, its mean decision in units of one, and its warnings."""

    gap: float
    violation: float
    mean: np.ndarray
    warnings: int
    policy: TimeSharingPolicy


def solve(agent: str, name: str, units: Units, seed: int) -> Solved:
    """One policy, judged by the closed form."""
    problem = OWN[name](units)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PolicyWarning)
        policy = make_agent(agent).sample(problem, seed=seed)
    gap, violation = shortfall(problem, policy)
    mean = policy.weights @ policy.actions / units.decisions
    count = sum(issubclass(w.category, PolicyWarning) for w in caught)
    return Solved(gap, violation, mean, count, policy)


def row(agent: str, name: str, args: Args) -> str:
    """One line of the table: the worst of all seeds and units, and how far units move the mean decision."""
    start = time.process_time()
    base = solve(agent, name, Units(), args.seed)
    once = time.process_time() - start
    found = [base] + [solve(agent, name, Units(), args.seed + 1 + k) for k in range(args.seeds)]
    moved = "–"
    if agent in LIMITS:
        others = [solve(agent, name, units, args.seed) for units in UNITS]
        moved = f"{max(np.abs(o.mean - base.mean).max() for o in others):.1e}"
        found += others
    gaps, violations = [f.gap for f in found], [f.violation for f in found]
    worst, violation = max(gaps), max(violations)
    verdict = "–"
    if agent in LIMITS:
        verdict = "yes" if worst <= LIMITS[agent] and violation <= FEASIBLE else "no"
    cells = [
        name, f"{100 * min(gaps):.2f} … {100 * worst:.2f}", f"{100 * violation:.2f}", moved, verdict,
        f"{sum(f.warnings for f in found)}/{len(found)}", f"{once:.1f}", seen(base, name),
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def seen(solved: Solved, name: str) -> str:
    """What `evaluate` says by default: objective and worst residual, with its standard error."""
    metrics = evaluate(solved.policy, OWN[name]())
    error = f" ± {metrics['worst_residual_se']:.4f}" if "worst_residual_se" in metrics else ""
    return f"{metrics['objective']:.4f}; {metrics['worst_residual']:.4f}{error}"


def main(args: Args) -> None:
    lines = ["# Own problems in many units\n", str(__doc__).strip().split("\n\n", 2)[2] + "\n"]
    lines.append(f"Command: `python runs/own_problems.py --seed {args.seed} --seeds {args.seeds}`\n")
    for agent in args.agents:
        limit = f": at most {100 * LIMITS[agent]:g} % above the optimum" if agent in LIMITS else ""
        lines += [
            f"## `{agent}`{limit}\n",
            "| problem | gap, % | worst residual, % | moved by units | met | warnings | s "
            "| `evaluate`: objective; worst residual |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for name in OWN:
            lines.append(row(agent, name, args))
            print(agent, lines[-1], flush=True)
        lines.append("")
        write_text(args.out / "results.md", "\n".join(lines))


if __name__ == "__main__":
    main(tyro.cli(Args))
