"""What DT achieves at each validation along its training, against PDI-Net's best.

python runs/wireless_dt_checkpoints.py    # the committed results, from the histories of both trainings
"""

from __future__ import annotations

from dataclasses import dataclass

import tyro
from dt_history import HistoryArgs, histories

from pdi_gym import plots
from pdi_gym.claims import beats
from pdi_gym.experiment import LABELS, Run, table

NAME = "wireless-dt-checkpoints"
QUICK = {"train_steps": 120}
METRICS = ("mean_rate", "p5_rate", "p1_rate", "mean_violation", "feasible")


@dataclass
class Args(HistoryArgs):
    last: float = 0.5
    """Last share of DT's validations that is judged: the paper looks at those after the duals' peak."""


def draw(rows: list[dict], best: dict) -> plots.Figure:
    fig, axes = plots.figure(15, 3.3, ncols=len(METRICS))
    steps = [row["step"] for row in rows]
    for ax, metric in zip(axes, METRICS, strict=True):
        ax.plot(steps, [r["validation"][metric] for r in rows], "o-", color=plots.MISSED, label="DT")
        ax.axhline(best["validation"][metric], color=plots.MET, ls="--", label="PDI-Net, best")
        ax.set(xlabel="gradient steps of DT", ylabel=LABELS[metric])
        ax.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    return fig


def main(args: Args) -> None:
    run = Run(NAME, args)
    dt, pdi = histories(run, args)
    rows: list[dict] = []
    if dt and pdi:
        best = min(pdi, key=lambda row: row["validation"]["criterion"])
        judged = dt[-max(1, round(args.last * len(dt))) :]
        rows = [
            {"agent": agent, "instance": k, "metrics": row["validation"], "seconds": row["seconds"]}
            for k, checkpoint in enumerate(judged)
            for agent, row in (("dt", checkpoint), ("pdi-net", best))
        ]
        run.figure(
            "checkpoints", draw(dt, best),
            "DT at every validation along its training (circles) and PDI-Net's best validation (dashed).",
        )  # fmt: skip
    claims = [
        beats(rows, own, other, metric, text, unit="checkpoints")
        for own, other, metric, text in (
            ("dt", "pdi-net", "mean_rate", "DT checkpoints have a higher mean rate than PDI-Net"),
            ("pdi-net", "dt", "p5_rate", "DT checkpoints have a lower 5 % rate"),
            ("pdi-net", "dt", "p1_rate", "DT checkpoints have a lower 1 % rate"),
            ("pdi-net", "dt", "mean_violation", "DT checkpoints violate more"),
            ("pdi-net", "dt", "feasible", "DT checkpoints are less feasible"),
        )
    ]
    found = table(rows, METRICS) if rows else "No trainings have been recorded.\n"
    run.write(
        rows, claims, found,
        sample=f"The last {len(rows) // 2} validations of one training of DT against PDI-Net's best, on the "
        f"same validation networks, seed {args.seed}. The interval is over checkpoints, not over networks.",
        reduced="Smaller networks and far fewer steps than the paper's; validation networks, where the paper "
        "evaluates all checkpoints on test ones.",
    )  # fmt: skip


if __name__ == "__main__":
    main(tyro.cli(Args))
