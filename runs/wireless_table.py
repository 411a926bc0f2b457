"""The paper's wireless table for every agent that needs no training.

python runs/wireless_table.py                        # the committed results: 64 test networks
python runs/wireless_table.py --instances 4 --rows pdi-mc pdl --out /tmp/table     # a glance

A killed run continues where it stopped: finished rows are kept under `logs`.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
import tyro
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import pdi_gym
from pdi_gym.agents import Agent, make_agent
from pdi_gym.evaluation import compare, make_env
from pdi_gym.files import write_text

ROWS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "full-power": ("full-power", "fast", {}),
    "random": ("random", "fast", {}),
    "unconstrained": ("unconstrained", "fast", {}),
    "pdi-mc": ("pdi-mc", "fast", {}),
    "expert": ("expert", "fast", {}),
    "dps": ("dps", "fast", {}),
    "pdl": ("pdl", "paper", {}),
    "pdi-mc@paper": ("pdi-mc", "paper", {}),
    "pdm": ("pdm", "fast", {"n_draws": 4}),
    "frozen-last": ("frozen-last", "fast", {}),
    "frozen-mean": ("frozen-mean", "fast", {}),
}
"""Label → agent, preset and overrides. A full PDM row (T = 500, up to 100 gradient steps in each)
would take hours."""

COSTLY = ("pdi-mc@paper", "pdm", "frozen-last", "frozen-mean")

PAPER = {
    "unconstrained": (2.957, 0.239, 0.081, 0.0421, 0.856),
    "pdi-mc": (2.839, 0.614, 0.355, 0.0085, 0.955),
    "pdi-mc@paper": (2.839, 0.614, 0.355, 0.0085, 0.955),
    "pdl": (2.635, 0.641, 0.405, 0.0068, 0.962),
    "pdm": (2.591, 0.510, 0.165, 0.0180, 0.919),
    "dps": (2.731, 0.461, 0.184, 0.0198, 0.908),
}
METRICS = ("mean_rate", "p5_rate", "p1_rate", "mean_violation", "feasible", "feasible_single")


@dataclass
class Args:
    rows: tuple[str, ...] = tuple(ROWS)
    """Rows of the table to compute."""
    instances: int = 64
    """Networks, from the first of the split."""
    costly_instances: int = 64
    """Networks of the slow rows pdi-mc@paper, pdm, frozen-last and frozen-mean; at most `instances`."""
    split: str = "test"
    """Split of the networks: train, validation or test."""
    n: int = 200
    """Decisions per policy."""
    horizon: int = 500
    """Slots per horizon."""
    trials: int = 50
    """Horizons played per policy."""
    seed: int = 0
    """Seed of inference and, by independent streams, of evaluation."""
    workers: int = 2
    """Processes, each with one thread."""
    out: Path = Path("runs/results/wireless_table")
    """Folder of table.md and table.json."""
    logs: Path = Path("runs/logs/wireless_table")
    """Folder of the finished rows, for a run that continues."""


def main(args: Args) -> None:
    unknown = set(args.rows) - set(ROWS)
    if unknown:
        raise SystemExit(f"rows must be among {', '.join(ROWS)}; got {', '.join(sorted(unknown))}")
    start = time.time()
    agents = {
        label: make_agent(a, preset, **o) for label, (a, preset, o) in ROWS.items() if label in args.rows
    }
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    results: dict[str, list[dict[str, Any]]] = {}
    with Progress(*columns) as progress:
        for label, agent in agents.items():
            instances = min(args.instances, args.costly_instances) if label in COSTLY else args.instances
            bar = progress.add_task(label, total=instances)
            results[label] = compare(
                {label: agent}, "WirelessPower-v0", instances, args.horizon, args.trials, args.seed,
                args.workers, args.logs, n=args.n, env_kwargs={"split": args.split},
                on_row=lambda row, bar=bar: progress.advance(bar),
            )  # fmt: skip
            write(args, agents, results, time.time() - start)


def write(
    args: Args, agents: dict[str, Agent], results: dict[str, list[dict[str, Any]]], elapsed: float
) -> None:
    """table.json with every row and setting, table.md for the eye."""
    problem = make_env("WirelessPower-v0", {"split": args.split}).make_problem(0)
    command = shlex.join(["python", "runs/wireless_table.py", *sys.argv[1:]])
    versions = {
        "pdi_gym": pdi_gym.__version__, "python": platform.python_version(), "torch": torch.__version__,
        "numpy": np.__version__, "gymnasium": gymnasium.__version__,
    }  # fmt: skip
    summary = {
        label: {m: _mean_std([r["metrics"][m] for r in rows]) for m in METRICS}
        | {"seconds": _mean_std([r["seconds"] for r in rows])}
        for label, rows in results.items()
    }
    content = {
        "command": command, "versions": versions, "cores": os.cpu_count(), "elapsed_seconds": elapsed,
        "args": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(args).items()},
        "settings": {label: agents[label].config(problem) for label in results},
        "summary": summary, "paper": PAPER, "rows": results,
    }  # fmt: skip
    write_text(args.out / "table.json", json.dumps(content, indent=1) + "\n")
    lines = [
        f"# Wireless power control, {args.split} networks", "",
        f"Mean ± standard deviation over networks; {args.n} decisions per policy, {args.horizon} slots, "
        f"{args.trials} trials. In brackets, the paper's figure. *Single* is the feasible fraction of one "
        "horizon; seconds are those of one inference on one thread of a shared machine.", "",
        f"`{command}` with {', '.join(f'{k} {v}' for k, v in versions.items())}", "",
        "| agent | networks | mean rate | 5 % rate | 1 % rate | violation | feasible | single | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(label, len(results[label]), summary[label]) for label in results), "",
        "Settings:", "",
        *(f"* **{label}**: {_settings(agents[label], problem)}" for label in results),
    ]  # fmt: skip
    write_text(args.out / "table.md", "\n".join(lines) + "\n")


def _mean_std(values: list[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values))


def _line(label: str, networks: int, summary: dict[str, tuple[float, float]]) -> str:
    cells = []
    for k, metric in enumerate(METRICS):
        mean, std = summary[metric]
        digits = 4 if metric == "mean_violation" else 3
        paper = f" [{PAPER[label][k]:.{digits}f}]" if label in PAPER and k < len(PAPER[label]) else ""
        cells.append(f"{mean:.{digits}f} ± {std:.{digits}f}{paper}")
    return f"| {label} | {networks} | {' | '.join(cells)} | {summary['seconds'][0]:.1f} |"


def _settings(agent: Agent, problem: Any) -> str:
    options = agent.config(problem)["options"]
    return (
        ", ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in options.items()) or "none"
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
