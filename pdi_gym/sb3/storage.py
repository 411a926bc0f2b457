"""Checkpoints of PPO: one file, so that network, optimiser, progress and setup always belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from pdi_gym.checkpoints import check_finite, load_tensors, save_tensors

FILE = "ppo.safetensors"


def write(folder: Path, weights: dict[str, Tensor], setup: dict[str, Any]) -> None:
    """The network alone and where it was trained."""
    save_tensors(folder / FILE, {f"policy.{k}": v for k, v in weights.items()}, {"setup": setup})


def read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and setup from what `write` or a training wrote; anything else is refused."""
    tensors, metadata = load_tensors(folder / FILE)
    weights = _part(tensors, "policy.")
    if not weights or not isinstance(metadata.get("setup"), dict):
        raise ValueError(f"{folder / FILE} holds no network of ppo: give the folder of its training")
    check_finite(folder / FILE, weights)
    return weights, metadata["setup"]


def claim(folder: Path, setup: dict[str, Any], resume: bool) -> None:
    """Refuse to overwrite a training, or to continue another."""
    if not (folder / FILE).exists():
        return
    if not resume:
        raise ValueError(f"{folder} holds a training: go on with resume, or choose another folder")
    _, stored = read(folder)
    differing = [k for k in setup if stored.get(k) != setup[k]]
    if differing:
        raise ValueError(f"{folder} holds a training with another {' and '.join(differing)}: choose another")


def checkpoint(folder: Path, model: PPO, scaled: VecNormalize, rounds: int, setup: dict[str, Any]) -> None:
    """All that the next round needs."""
    tensors = {f"policy.{k}": v for k, v in model.policy.state_dict().items()}
    for index, own in model.policy.optimizer.state_dict()["state"].items():
        tensors |= {f"optimiser.{index}.{k}": v for k, v in own.items()}
    rewards = scaled.ret_rms
    progress = {"rounds": rounds, "rewards": [float(rewards.mean), float(rewards.var), float(rewards.count)]}
    save_tensors(folder / FILE, tensors, {"setup": setup, "progress": progress})


def restore(folder: Path, model: PPO, scaled: VecNormalize) -> int:
    """Go back to the last checkpoint; the number of rounds done, 0 where there is none."""
    if not (folder / FILE).exists():
        return 0
    tensors, metadata = load_tensors(folder / FILE)
    if "progress" not in metadata:
        raise ValueError(f"{folder / FILE} holds a network without its training's state: it cannot resume")
    model.policy.load_state_dict(_part(tensors, "policy."))
    state = model.policy.optimizer.state_dict()
    state["state"] = {}
    for name, value in _part(tensors, "optimiser.").items():
        index, key = name.split(".")
        state["state"].setdefault(int(index), {})[key] = value
    model.policy.optimizer.load_state_dict(state)
    mean, var, count = metadata["progress"]["rewards"]
    scaled.ret_rms.mean, scaled.ret_rms.var, scaled.ret_rms.count = np.array(mean), np.array(var), count
    return int(metadata["progress"]["rounds"])


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
