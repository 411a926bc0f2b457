"""Checkpoints of PPO: safetensors and JSON, nothing that is ever unpickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from pdi_gym.files import whole_file, write_text

WEIGHTS, SETUP = "ppo.safetensors", "ppo.json"
# One file of tensors, so that network, optimiser and progress always belong together.


def claim(out: Path, described: dict[str, Any], resume: bool) -> None:
    """Make `out` the folder of that training; refuse to overwrite one, or to continue another."""
    if (out / WEIGHTS).exists():
        if not resume:
            raise ValueError(f"out already holds a training: {out}. Give another folder, or resume it")
        stored = read_setup(out)
        differing = [k for k in described if stored.get(k) != described[k]]
        if differing:
            raise ValueError(
                f"{out} holds another training, with other {', '.join(differing)}: give another folder"
            )
    write_text(out / SETUP, json.dumps(described, indent=1))


def restore(out: Path, model: PPO, scaled: VecNormalize) -> int:
    """Go back to the last checkpoint; the number of rounds done, 0 where there is none."""
    if not (out / WEIGHTS).exists():
        return 0
    tensors = read_tensors(out)
    model.policy.load_state_dict(part(tensors, "policy."))
    state = model.policy.optimizer.state_dict()
    state["state"] = {}
    for name, value in part(tensors, "optimiser.").items():
        index, key = name.split(".")
        state["state"].setdefault(int(index), {})[key] = value
    model.policy.optimizer.load_state_dict(state)
    progress = tensors["progress"].tolist()
    statistics = scaled.ret_rms
    statistics.mean, statistics.var = np.array(progress[1]), np.array(progress[2])
    statistics.count = progress[3]
    return int(progress[0])


def checkpoint(out: Path, model: PPO, scaled: VecNormalize, rounds: int) -> None:
    tensors = {f"policy.{k}": v for k, v in model.policy.state_dict().items()}
    for index, own in model.policy.optimizer.state_dict()["state"].items():
        tensors |= {f"optimiser.{index}.{k}": v for k, v in own.items()}
    statistics = scaled.ret_rms
    progress = [rounds, float(statistics.mean), float(statistics.var), statistics.count]
    tensors["progress"] = torch.tensor(progress, dtype=torch.float64)
    write_tensors(out, tensors)


def write_tensors(folder: Path, tensors: dict[str, Tensor]) -> None:
    with whole_file(folder / WEIGHTS) as temporary:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, temporary)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    path = folder / WEIGHTS
    try:
        tensors = load_file(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist: give the folder of a training or of save") from None
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None
    if not any(name.startswith("policy.") for name in tensors):
        raise ValueError(f"{path} holds no policy: give the folder of a training or of save")
    return tensors


def read_setup(folder: Path) -> dict[str, Any]:
    path = folder / SETUP
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist: give the folder of a training or of save") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(stored, dict) or stored.get("format") != 1 or "env_id" not in stored:
        raise ValueError(f"{path} does not describe a training of ppo that this version can read")
    return stored


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names have that prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
