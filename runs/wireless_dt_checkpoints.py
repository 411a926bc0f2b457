"""What DT achieves at each checkpoint along its training, against PDI-Net.

python runs/wireless_dt_checkpoints.py    # the committed results
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import tyro

from pdi_gym import drawing
from pdi_gym.agents import Agent, make_agent
from pdi_gym.checkpoints import load_network
from pdi_gym.envs import make_env
from pdi_gym.evaluation import Row
from pdi_gym.experiments.claims import Claim, beats
from pdi_gym.experiments.run import WIRELESS, Common, Run, available, band, sample_of, table

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


def draw(rows: list[Row], steps: dict[str, int]) -> drawing.Figure:
    """What DT has more than PDI-Net on the same networks, against DT's gradient steps."""
    fig, axes = drawing.figure(15, 3.3, ncols=len(METRICS))
    for ax, metric in zip(axes, METRICS, strict=True):
        band(
            ax,
            list(steps.values()),
            rows,
            list(steps),
            metric,
            against="pdi-net",
            marker="o",
            color=drawing.MISSED,
        )
        ax.axhline(0, color="black", lw=0.9, ls="--")
        ax.set_xlabel("gradient steps of DT")
        ax.grid(alpha=0.3)
    fig.suptitle("DT less PDI-Net", fontsize=11)
    return fig


def peak(folder: Path) -> int:
    """Gradient steps after which DT's multipliers were most like PDI's."""
    rows = json.loads((folder.parent / "history.json").read_text())
    return int(max(rows, key=lambda row: row["dual_cosine"])["step"])


def judged(rows: list[Row], label: str) -> list[Claim]:
    """The paper's claims for one checkpoint."""
    step = label.removeprefix("dt ")
    return [
        beats(rows, own, other, metric, f"after {step} steps DT {says} PDI-Net")
        for own, other, metric, says in (
            (label, "pdi-net", "mean_rate", "has a higher mean rate than"),
            ("pdi-net", label, "p5_rate", "has a lower 5 % rate than"),
            ("pdi-net", label, "p1_rate", "has a lower 1 % rate than"),
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
    claims, content = judged(rows, "dt"), "No checkpoints have been kept.\n"
    if steps:
        later = [label for label, step in steps.items() if step >= peak(args.folder)]
        claims = [claim for label in later for claim in judged(rows, label)]
        content = table(rows, WIRELESS)
        run.figure(
            "checkpoints",
            draw(rows, steps),
            "DT at every checkpoint along its training less PDI-Net on the same networks, means with 95 % "
            "intervals; violations above the dashed line and rates below it are worse.",
        )
    run.write(
        rows,
        claims,
        content,
        sample=sample_of(args),
        reduced="As in the paper, checkpoints are judged from the one whose multipliers are most like PDI's "
        "on. Smaller networks and fewer training steps than the paper's, and "
        f"{args.networks} of its 64 test networks: what fails here may fail for want of training.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
