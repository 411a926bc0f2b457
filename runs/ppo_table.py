"""PPO on the Lagrangian reward against agents that need no training, on test networks.

python runs/ppo_table.py                                                    # 8 users
python runs/ppo_table.py --users 200 --steps 100000 --networks 8 --out runs/results/ppo-table-200
"""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from pdi_gym.agents import make_agent
from pdi_gym.experiments.claims import beats
from pdi_gym.experiments.run import WIRELESS, Common, Run, sample_of, table

NAME = "ppo-table"
OTHERS = ("pdi-mc", "pdi-cg", "expert", "full-power", "random")


@dataclass
class Args(Common):
    users: int = 8
    """Users of every network, in training and test."""
    steps: int = 250_000
    """Slots of PPO's training, over all its environments."""
    networks: int = 32
    """Test networks, from the first."""
    n: int = 200
    """Decisions per policy."""
    trials: int = 50
    """Horizons played per policy."""


def main(args: Args) -> None:
    run = Run(NAME, args, f"{NAME}/{args.users}-users-{args.steps}-slots-seed-{args.seed}")
    ppo, folder = make_agent("ppo"), run.logs / "training"
    ppo.learn(
        "WirelessPower-v0",
        out=folder,
        seed=args.seed,
        steps=args.steps,
        resume=folder.exists(),
        n_users=args.users,
    )
    rows = run.compare(
        {"ppo": ppo} | {name: name for name in OTHERS},
        "WirelessPower-v0",
        args.networks,
        n=args.n,
        trials=args.trials,
        env_kwargs={"split": "test", "n_users": args.users},
    )
    claims = [
        beats(rows, "ppo", "pdi-mc", "mean_rate", "PPO has a higher mean rate than PDI-MC"),
        beats(rows, "ppo", "pdi-mc", "mean_violation", "PPO violates less than PDI-MC"),
        beats(rows, "pdi-cg", "ppo", "mean_rate", "column generation has a higher mean rate than PPO"),
    ]
    run.write(
        rows,
        claims,
        table(rows, WIRELESS),
        sample=sample_of(args),
        reduced=f"{args.users} users; PPO trained on the training split for {args.steps} slots, "
        "rounded up to whole rounds.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
