"""Training histories of DT and PDI-Net: those of the full trainings, or of a small one made here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdi_gym.agents import make_agent
from pdi_gym.experiment import Common, Run
from pdi_gym.problems import WirelessPower

TRAINING = Path("runs/results/training")


@dataclass
class HistoryArgs(Common):
    dt: Path = TRAINING / "dt-wireless" / "history.json"
    """History that `pdi-gym train dt WirelessPower-v0` wrote: a row per validation."""
    pdi: Path = TRAINING / "pdi-net-wireless" / "history.json"
    """History of PDI-Net, likewise."""
    train_steps: int = 0
    """If above zero, train small networks for that many steps instead of reading the two files."""
    users: int = 20
    """Users per network of such a training."""


def histories(run: Run, args: HistoryArgs) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of DT and of PDI-Net, empty where a file is missing: step, validation figures, DT's duals."""
    if args.train_steps > 0:
        return tuple(_train(run, args, agent) for agent in ("dt", "pdi-net"))  # type: ignore[return-value]
    found = (json.loads(p.read_text()) if p.exists() else [] for p in (args.dt, args.pdi))
    return tuple(found)  # type: ignore[return-value]


def _train(run: Run, args: HistoryArgs, agent: str) -> list[dict[str, Any]]:
    folder = run.logs / agent
    problems = [WirelessPower.instance(k, "train", n_users=args.users) for k in range(4)]
    checks = [WirelessPower.instance(k, "validation", n_users=args.users) for k in range(2)]
    history = folder / "history.json"
    if not history.exists() or json.loads(history.read_text())[-1]["step"] < args.train_steps:
        resume = (folder / "state.safetensors").exists()
        make_agent(agent).learn(
            problems, validation=checks, out=folder, seed=args.seed, resume=resume, quiet=True,
            steps=args.train_steps, validate_every=max(1, args.train_steps // 8), seed_rollouts=4,
        )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(history.read_text())
    return found
