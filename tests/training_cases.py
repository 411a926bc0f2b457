"""Short trainings that several test modules share."""

from __future__ import annotations

import os
import signal
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from pdi_gym.agents import AGENTS, make_agent
from pdi_gym.checkpoints import load_tensors
from pdi_gym.options import DiffusionOptions
from pdi_gym.problems import MixtureOfGaussians, WirelessPower
from pdi_gym.training.loop import Training
from pdi_gym.training.options import TrainingOptions
from pdi_gym.training.rollouts import Task

LEARNED = ("st", "pdi-net", "pdi-net-warm", "dt", "dt-plus")
USERS = [WirelessPower.instance(i, "train", n_users=8) for i in range(4)]
SHORT = {
    "steps": 6,
    "validate_every": 3,
    "seed_rollouts": 2,
    "chains": 6,
    "groups": 1,
    "keep": 20,
    "inner": 2,
    "rollouts": 1,
    "problems": 2,
    "pairs": 4,
    "validation_n": 8,
    "validation_instances": 1,
    "width": 8,
    "depth": 1,
    "messages": 4,
    "expert_steps": 30,
}


def learn(name: str, out: Path, on: Any = USERS, **more: Any) -> Any:
    options = {k: more.pop(k) for k in ("T",) if k in more}
    short = read_by(name, SHORT)
    if "body" in more or (isinstance(on, list) and on and isinstance(on[0], MixtureOfGaussians)):
        del short["messages"]  # a perceptron has none
    return make_agent(name, **options).learn(on, out=out, quiet=True, **(short | more))


def read_by(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a training without those that the agent refuses, since it would ignore them."""
    agent: Any = AGENTS[name]
    return {k: v for k, v in settings.items() if k not in agent.unread}


def weights(folder: Path) -> dict[str, bytes]:
    tensors, _ = load_tensors(folder / "weights.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def interrupt(monkeypatch: Any, method: str, at: int, owner: type = Training) -> None:
    """A SIGTERM during call number `at` of a method."""
    calls, original = [0], getattr(owner, method)

    def counted(self: Any, *arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *arguments)

    monkeypatch.setattr(owner, method, counted)


def task(**more: Any) -> Task:
    names = {f.name for f in fields(TrainingOptions)}
    options = TrainingOptions(**{k: v for k, v in (SHORT | more).items() if k in names})
    sampler = DiffusionOptions(T=5, alpha_min=0.0, dual_step=0.1, dual_init=1.0, candidates="unscaled")
    return Task(USERS, [sampler] * len(USERS), options, torch.Generator().manual_seed(0))
