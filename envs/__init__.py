"""Gymnasium environments with ergodic constraints; importing registers them."""

from __future__ import annotations

import gymnasium as gym

from pdi_gym.envs.base import ErgodicEnv
from pdi_gym.envs.making import load_instances, make_env
from pdi_gym.envs.vector import ErgodicVectorEnv
from pdi_gym.envs.wrappers import LagrangianReward, RecordConstraintStatistics

__all__ = [
    "ENV_IDS",
    "ErgodicEnv",
    "ErgodicVectorEnv",
    "LagrangianReward",
    "RecordConstraintStatistics",
    "load_instances",
    "make_env",
    "register",
]

_CLASSES = {
    "WirelessPower-v0": "pdi_gym.envs.wireless:WirelessPower",
    "Portfolio-v0": "pdi_gym.envs.portfolio:Portfolio",
    "MixtureOfGaussians-v0": "pdi_gym.envs.mixture:MixtureOfGaussians",
    "MixtureOfGaussians2D-v0": "pdi_gym.envs.mixture:MixtureOfGaussians2D",
}
ENV_IDS = tuple(_CLASSES)


def register() -> None:
    """Make the ids known to Gymnasium; calling it again changes nothing."""
    for env_id, path in _CLASSES.items():
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=f"{path}Env", vector_entry_point=f"{path}VectorEnv")
