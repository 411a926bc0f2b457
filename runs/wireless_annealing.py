"""Powers of pairs of users under PDI and PDL: how many ways of sharing the channel each finds.

python runs/wireless_annealing.py      # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tyro

from pdi_gym import drawing
from pdi_gym.envs import make_env
from pdi_gym.evaluation import Row
from pdi_gym.experiments.claims import beats
from pdi_gym.experiments.run import FAST_WIRELESS, Common, Run, sample_of, table

NAME = "wireless-annealing"
QUICK = {"networks": 3, "n": 40, "trials": 5}
AGENTS = {"pdi-mc": "pdi-mc", "pdl": "pdl@paper"}


@dataclass
class Args(Common):
    networks: int = 64
    """Test networks, from the first; the first is drawn."""
    pairs: int = 50
    """Pairs of users per network that are looked at: those that hurt each other most."""
    n: int = 200
    """Decisions per policy."""
    trials: int = 50
    """Horizons played per policy."""


def rivals(gains: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Disjoint pairs of users, those that hurt each other most first.

    The harm of a pair is the smaller of its two interference-to-signal ratios.
    """
    ratio = gains / np.diag(gains)[None]
    mutual = np.triu(np.minimum(ratio, ratio.T), 1)
    pairs: list[tuple[int, int]] = []
    taken: set[int] = set()
    for flat in np.argsort(mutual, axis=None)[::-1]:
        i, j = (int(k) for k in np.unravel_index(flat, mutual.shape))
        if len(pairs) == count or mutual[i, j] == 0:
            break
        if not taken & {i, j}:
            pairs.append((i, j))
            taken |= {i, j}
    return pairs


def corners(powers: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """(pairs, 4) shares of decisions (n, N) in which none, one, the other or both are above half power."""
    on = powers > 0.5
    index = np.stack([2 * on[:, i] + on[:, j] for i, j in pairs])
    return np.stack([(index == k).mean(1) for k in range(4)], 1)


def modes(shares: np.ndarray) -> float:
    """Mean effective number of corners, the exponential of the shares' entropy: 1 to 4."""
    logs = np.log(shares, where=shares > 0, out=np.zeros_like(shares))
    return float(np.exp(-(shares * logs).sum(1)).mean())


def draw(powers: dict[str, np.ndarray], pairs: list[tuple[int, int]]) -> drawing.Figure:
    fig, axes = drawing.figure(
        2.8 * len(pairs) + 0.5, 6.2, nrows=2, ncols=len(pairs), squeeze=False, sharex=True, sharey=True
    )
    for line, (agent, own) in zip(axes, powers.items(), strict=True):
        for ax, (i, j) in zip(line, pairs, strict=True):
            ax.scatter(own[:, i], own[:, j], s=14, alpha=0.5, color=drawing.MET, linewidths=0)
            ax.set_title(f"{agent}: users {i} and {j}", fontsize=9)
            ax.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.05), aspect="equal")
        line[0].set_ylabel("power of the second / $P_{max}$")
    for ax in axes[-1]:
        ax.set_xlabel("power of the first / $P_{max}$")
    return fig


def main(args: Args) -> None:
    run = Run(NAME, args, "wireless_table")
    env = make_env("WirelessPower-v0", {"split": "test"})
    rows = run.compare(
        AGENTS, "WirelessPower-v0", args.networks, n=args.n, trials=args.trials, env_kwargs={"split": "test"}
    )
    problems = [env.make_problem(k) for k in range(args.networks)]
    pairs = [rivals(p.gains.numpy(), args.pairs) for p in problems]

    def powers(row: Row) -> np.ndarray:
        return run.policy(row)[0].actions / problems[row["instance"]].p_max

    for row in rows:
        own = powers(row)
        row["metrics"]["pair_modes"] = modes(corners(own, pairs[row["instance"]]))
        row["metrics"]["mean_power"] = float(own.mean())
    claims = [
        beats(rows, "pdi-mc", "pdl", "pair_modes", "PDI finds more ways of sharing than PDL", direction=1),
        beats(rows, "pdi-mc", "pdl", "mean_power", "PDI lets users transmit with higher power", direction=1),
        beats(rows, "pdi-mc", "pdl", "mean_rate", "PDI's mean rate is higher", paper=(2.839, 2.635)),
    ]
    first = {row["agent"]: powers(row) for row in rows if row["instance"] == 0}
    run.figure(
        "pairs",
        draw(first, pairs[0][:4]),
        "Every decision of a policy as the powers of two users, for the four pairs of test network 0 that "
        "hurt each other most.",
    )
    run.write(
        rows,
        claims,
        table(rows, ("pair_modes", "mean_power", "mean_rate", "feasible")),
        sample=sample_of(args),
        reduced=f"{FAST_WIRELESS} PDL as published. The paper shows four pairs and gives no figure; ours is "
        "the effective number of the four corners (each power above or below half) over "
        f"{args.pairs} pairs a network.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
