"""Powers at three temperatures β: a hot sampler is uniform, a cold one sits in the corners.

python runs/wireless_temperature.py    # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tyro
from wireless_annealing import rivals

from pdi_gym import drawing
from pdi_gym.agents import make_agent
from pdi_gym.envs import make_env
from pdi_gym.evaluation import Row
from pdi_gym.experiments.claims import beats
from pdi_gym.experiments.run import FAST_WIRELESS, WIRELESS, Common, Run, sample_of, table

NAME = "wireless-temperature"
QUICK = {"networks": 3, "n": 40, "trials": 10}


@dataclass
class Args(Common):
    betas: tuple[float, ...] = (10.0, 1.0, 0.1)
    """Temperatures, hot to cold; the second is the one that the paper finds balanced."""
    networks: int = 16
    """Test networks, from the first; the first two are drawn."""
    n: int = 200
    """Decisions per policy."""
    trials: int = 50
    """Horizons played per policy."""


def draw(run: Run, rows: list[Row], labels: list[str], networks: int) -> Any:
    """Powers of two users that hurt each other, per network and temperature."""
    env = make_env("WirelessPower-v0", {"split": "test"})
    fig, axes = drawing.figure(
        3.3 * len(labels) + 0.4,
        3.4 * networks + 0.3,
        nrows=networks,
        ncols=len(labels),
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    for k in range(networks):
        problem = env.make_problem(k)
        [(i, j)] = rivals(problem.gains.numpy(), 1)
        for ax, label in zip(axes[k], labels, strict=True):
            row = next(r for r in rows if r["agent"] == label and r["instance"] == k)
            powers = run.policy(row)[0].actions / problem.p_max
            ax.scatter(powers[:, i], powers[:, j], s=14, color=drawing.MET, alpha=0.5, linewidths=0)
            rate, feasible = row["metrics"]["mean_rate"], row["metrics"]["feasible"]
            ax.set_title(f"{label}, network {k}\n{rate:.2f} bit/s/Hz, feasible {feasible:.3f}", fontsize=9)
            ax.set(xlabel=f"power of user {i} / $P_{{max}}$", ylabel=f"power of user {j} / $P_{{max}}$")
            ax.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.05), aspect="equal")
    return fig


def main(args: Args) -> None:
    run = Run(NAME, args)
    agents = {f"β = {b:g}": make_agent("pdi-mc", beta=b) for b in args.betas}
    rows = run.compare(
        agents, "WirelessPower-v0", args.networks, n=args.n, trials=args.trials, env_kwargs={"split": "test"}
    )
    hot, one, cold = agents
    claims = [
        beats(rows, one, hot, "mean_rate", f"{one} has a higher mean rate than the hot {hot}"),
        beats(rows, one, hot, "feasible", f"{one} is more feasible than the hot {hot}"),
        beats(rows, cold, hot, "feasible", f"the hot {hot} is the least feasible: {cold} is more so"),
        beats(rows, cold, one, "mean_rate", f"the cold {cold} has a higher mean rate than {one}"),
        beats(rows, one, cold, "feasible", f"{one} is more feasible than the cold {cold}"),
        beats(rows, one, cold, "mean_violation", f"{one} violates less than the cold {cold}"),
    ]
    run.figure(
        "scatter",
        draw(run, rows, list(agents), min(2, args.networks)),
        "Powers of the two users that hurt each other most, in every decision of a policy, on two test "
        "networks: hot on the left, cold on the right.",
    )
    run.write(
        rows,
        claims,
        table(rows, WIRELESS),
        sample=sample_of(args),
        reduced=f"{FAST_WIRELESS} The paper shows two networks and does not print its temperatures.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
