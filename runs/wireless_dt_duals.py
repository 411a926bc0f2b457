"""How DT's multipliers compare with PDI's along its training.

python runs/wireless_dt_duals.py       # the committed results, from the history of DT's training
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from pdi_gym import drawing
from pdi_gym.experiments.claims import UNKNOWN, Claim, judge, judge_equal
from pdi_gym.experiments.run import Common, Run
from pdi_gym.report.statistics import Interval

NAME = "wireless-dt-duals"
QUICK: dict = {}
ONE = "one training, whose figure decides: there is no interval over trainings"


@dataclass
class Args(Common):
    history: Path = Path(__file__).parent / "results/training/dt-wireless/history.json"
    """History of DT's training, as runs/ship_weights.py keeps it: a row per validation."""
    least: float = 0.01
    """Change of the cosine similarity that counts as a rise or a fall."""
    slight: float = 0.05
    """Largest fall of it from its peak that counts as slight."""


def draw(steps: list[int], cosine: np.ndarray, distance: np.ndarray) -> drawing.Figure:
    fig, left = drawing.figure(7, 3.8)
    right = left.twinx()
    left.plot(steps, cosine, "o-", color=drawing.MET, label="cosine similarity")
    right.plot(steps, distance, "s--", color=drawing.MISSED, label="distance")
    left.axvline(steps[int(cosine.argmax())], color=drawing.NEUTRAL, lw=0.9, ls=":")
    left.set_xlabel("gradient steps of DT")
    left.set_ylabel("cosine similarity to PDI's multipliers (circles)", color=drawing.MET)
    right.set_ylabel("distance to PDI's multipliers (squares)", color=drawing.MISSED)
    left.grid(alpha=0.3)
    return fig


def single(value: float) -> Interval:
    return Interval(value, value, value)


def main(args: Args) -> None:
    run = Run(NAME, args)
    rows = json.loads(args.history.read_text()) if args.history.exists() else []
    texts = (
        "the cosine similarity of DT's multipliers to PDI's rises, then falls",
        "it peaks above 0.95",
        "after its peak it drifts only slightly",
        "the distance falls, then rises",
    )
    papers = ("peaks between 2200 and 3200 of 4000", "above 0.95", "drifts slightly", "drifts slightly")
    table = "No training of DT has been recorded.\n"
    claims = [Claim(t, p, "not measured", UNKNOWN, "not run: dt") for t, p in zip(texts, papers, strict=True)]
    if rows:
        steps = [row["step"] for row in rows]
        cosine, distance = (np.array([row[k] for row in rows]) for k in ("dual_cosine", "dual_distance"))
        top, near = int(cosine.argmax()), int(distance.argmin())
        ends = f"{cosine[0]:.3f} to {cosine[top]:.3f} at step {steps[top]}, then {cosine[-1]:.3f}"
        path = f"{distance[0]:.1f} to {distance[near]:.1f} at step {steps[near]}, then {distance[-1]:.1f}"
        claims = [
            Claim(
                texts[0],
                papers[0],
                ends,
                judge(single(cosine[top] - max(cosine[0], cosine[-1]) - args.least)),
                ONE,
            ),
            Claim(texts[1], papers[1], f"{cosine[top]:.3f}", judge(single(cosine[top] - 0.95)), ONE),
            Claim(
                texts[2],
                papers[2],
                f"falls by {cosine[top] - cosine[-1]:.3f}",
                judge_equal(single(cosine[top] - cosine[-1]), args.slight),
                f"margin {args.slight:g}; {ONE}",
            ),
            Claim(
                texts[3], papers[3], path, judge(single(min(distance[0], distance[-1]) - distance[near])), ONE
            ),
        ]
        run.figure(
            "duals",
            draw(steps, cosine, distance),
            "DT's multipliers on training networks against those that PDI finds there; dotted, the peak.",
        )
        lines = ["| step | cosine similarity | distance | mean λ |", "|---|---|---|---|"]
        lines += [
            f"| {r['step']} | {r['dual_cosine']:.3f} | {r['dual_distance']:.1f} | {r['mean_dual']:.2f} |"
            for r in rows
        ]
        table = "\n".join(lines) + "\n"
    run.write(
        rows,
        claims,
        table,
        sample=f"One training of DT, {len(rows)} validations, seed {args.seed}.",
        reduced="A smaller network and far fewer steps than the paper's 4000 outer iterations; PDI's "
        "multipliers are its time average on four training networks, the paper's its last iterate on all.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
