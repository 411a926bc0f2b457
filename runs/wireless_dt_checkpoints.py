"""What DT achieves at each checkpoint along its training, against PDI-Net.

python runs/wireless_dt_checkpoints.py    # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from pdi_gym import plots
from pdi_gym.agents import Agent, make_agent
from pdi_gym.checkpoints import load_network
from pdi_gym.claims import Claim, beats, by_instance
from pdi_gym.evaluation import Row, make_env
from pdi_gym.experiment import LABELS, WIRELESS, Common, Run, available, band, sample_of, table

NAME = "wireless-dt-checkpoints"
QUICK = {"networks": 2, "n": 40, "trials": 5, "every": 3}
METRICS = ("mean_rate", "p5_rate", "p1_rate", "mean_violation", "feasible")


@dataclass
class Args(Common):
    folder: Path = Path(__file__).parent / "results/training/dt-wireless/checkpoints"
    """Checkpoints of DT's training, a folder each."""
    every: int = 1
    """Take each checkpoint, each second one, …, counted from the last."""
    networks: int = 16
    """Test networks, from the first."""
    n: int = 200
    """Decisions per policy."""
    trials: int = 50
    """Horizons played per policy."""


def checkpoint(folder: Path) -> Agent:
    """DT with the weights that its training had then."""
    agent = make_agent("dt")
    agent.network, _ = load_network(folder, "dt")
    return agent


def draw(rows: list[Row], steps: dict[str, int]) -> plots.Figure:
    """Metrics against DT's gradient steps; PDI-Net as a dashed line."""
    fig, axes = plots.figure(15, 3.3, ncols=len(METRICS))
    for ax, metric in zip(axes, METRICS, strict=True):
        band(ax, list(steps.values()), rows, list(steps), metric, marker="o", color=plots.MISSED, label="DT")
        if other := by_instance(rows, "pdi-net", metric):
            ax.axhline(np.mean(list(other.values())), color=plots.MET, ls="--", label="PDI-Net")
        ax.set(xlabel="gradient steps of DT", ylabel=LABELS[metric])
        ax.grid(alpha=0.3)
    axes[0].legend(fontsize=9)
    return fig


def judged(rows: list[Row], label: str) -> list[Claim]:
    """The paper's claims for one checkpoint."""
    step = label.removeprefix("dt ")
    return [
        beats(rows, own, other, metric, f"after {step} steps DT {says} PDI-Net")
        for own, other, metric, says in (
            (label, "pdi-net", "mean_rate", "has a higher mean rate than"),
            ("pdi-net", label, "p5_rate", "has a lower 5 % rate than"),
            ("pdi-net", label, "mean_violation", "violates more than"),
            ("pdi-net", label, "feasible", "is less feasible than"),
        )
    ]


def main(args: Args) -> None:
    run = Run(NAME, args, "wireless_table")
    found = sorted(p for p in args.folder.glob("step-*") if p.is_dir())[:: -args.every][::-1]
    steps = {f"dt {int(p.name.removeprefix('step-'))}": int(p.name.removeprefix("step-")) for p in found}
    problem = make_env("WirelessPower-v0", {"split": "test"}).make_problem(0)
    agents = {label: checkpoint(p) for label, p in zip(steps, found, strict=True)}
    agents |= {name: make_agent(name) for name in available(problem, "pdi-net")}
    rows = run.compare(
        agents, "WirelessPower-v0", args.networks, n=args.n, trials=args.trials, env_kwargs={"split": "test"}
    )
    later = list(steps)[len(steps) // 2 :]  # the paper looks at those after the duals' peak
    claims = [claim for label in later for claim in judged(rows, label)] or judged(rows, "dt")
    content = "No checkpoints have been kept.\n"
    if steps:
        content = table(rows, WIRELESS)
        run.figure(
            "checkpoints", draw(rows, steps),
            "DT at every checkpoint along its training, mean over networks with 95 % intervals, and PDI-Net.",
        )  # fmt: skip
    run.write(
        rows, claims, content, sample=sample_of(args),
        reduced="Smaller networks and fewer training steps than the paper's, and "
        f"{args.networks} of its 64 test networks: what fails here may fail for want of training.",
    )  # fmt: skip


if __name__ == "__main__":
    main(tyro.cli(Args))
