"""Checkpoints of PPO: one file, so that network, optimiser, progress and setup always belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from pdi_gym.checkpoints import check_finite, load_tensors, save_tensors
from pdi_gym.labels import brief
from pdi_gym.training.state import number, whole

FILE = "ppo.safetensors"
_SETUP: dict[str, tuple[type, ...]] = {
    "problem": (str,),
    "env_id": (str, type(None)),
    "env_kwargs": (dict,),
    "options": (dict,),
    "seed": (int,),
}
"""What a setup tells, and of which type."""


def write(folder: Path, weights: dict[str, Tensor], setup: dict[str, Any]) -> None:
    """The network alone and where it was trained."""
    save_tensors(folder / FILE, {f"policy.{k}": v for k, v in weights.items()}, {"setup": setup})


def read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and setup from what `write` or a training wrote; anything else is refused."""
    tensors, metadata = load_tensors(folder / FILE)
    weights = _part(tensors, "policy.")
    if not weights or not isinstance(metadata.get("setup"), dict):
        raise ValueError(f"{folder / FILE} holds no network of ppo: give the folder of its training")
    for name, tensor in weights.items():
        if not tensor.is_floating_point():
            raise ValueError(
                f"{folder / FILE} holds {tensor.dtype} in {brief(name)}, weights are floating-point"
            )
    check_finite(folder / FILE, weights)
    setup: dict[str, Any] = metadata["setup"]
    for name, kinds in _SETUP.items():
        if name not in setup or type(setup[name]) not in kinds:
            raise ValueError(
                f"{folder / FILE} must tell the {name} in its setup, got {setup.get(name)!r:.60}"
            )
    return weights, setup


def claim(folder: Path, setup: dict[str, Any], resume: bool) -> None:
    """Refuse to overwrite a training, to continue another, or to continue none."""
    if not (folder / FILE).exists():
        if resume:
            raise FileNotFoundError(f"{folder / FILE} does not exist: leave resume out to begin a training")
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
    path = folder / FILE
    if not path.exists():
        return 0
    tensors, metadata = load_tensors(path)
    if "progress" not in metadata:
        raise ValueError(f"{path} holds a network without its training's state: it cannot resume")
    rounds, (mean, var, count) = _progress(path, metadata["progress"])
    _check_tensors(path, tensors, model, rounds)
    model.policy.load_state_dict(_part(tensors, "policy."))
    state = model.policy.optimizer.state_dict()
    state["state"] = {}
    for name, value in _part(tensors, "optimiser.").items():
        index, key = name.split(".")
        state["state"].setdefault(int(index), {})[key] = value
    model.policy.optimizer.load_state_dict(state)
    scaled.ret_rms.mean, scaled.ret_rms.var, scaled.ret_rms.count = np.array(mean), np.array(var), count
    return rounds


def _progress(path: Path, progress: Any) -> tuple[int, list[float]]:
    """Rounds done, and the mean, variance and count of the rewards."""
    content = progress if isinstance(progress, dict) else {}
    rounds: Any = content.get("rounds")
    rewards: Any = content.get("rewards")
    if (
        not whole(rounds)
        or not isinstance(rewards, list)
        or len(rewards) != 3
        or not all(map(number, rewards))
    ):
        raise ValueError(
            f"{path} must tell rounds and rewards of its progress, got {progress!r:.80}: train anew"
        )
    return rounds, rewards


def _check_tensors(path: Path, tensors: dict[str, Tensor], model: PPO, rounds: int) -> None:
    """Refuse a state that lacks part of this model, or holds anything else; at first Adam has no moments."""
    expected = {f"policy.{k}": tuple(v.shape) for k, v in model.policy.state_dict().items()}
    for i, parameter in enumerate(model.policy.optimizer.param_groups[0]["params"] if rounds else ()):
        shape = tuple(parameter.shape)
        expected |= {f"optimiser.{i}.step": (), f"optimiser.{i}.exp_avg": shape}
        expected[f"optimiser.{i}.exp_avg_sq"] = shape
    for name in sorted(expected.keys() | tensors.keys()):
        found = tuple(tensors[name].shape) if name in tensors else None
        if found != expected.get(name) or not tensors[name].is_floating_point():
            raise ValueError(
                f"{path} holds {brief(name)} as {found}, this training needs {expected.get(name)}: train anew"
            )
    check_finite(path, tensors)


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
