"""`LagrangianReward` for a whole `VecEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from pdi_gym.envs.wrappers import Multipliers, add_duals, add_duals_space


class LagrangianVecReward(VecEnvWrapper):
    """`pdi_gym.envs.LagrangianReward` for a batch: any `VecEnv` of ours, native or not.

    Every row has multipliers of its own, as it may play an instance of its own; with `shared`, all
    rows play one instance and have one λ, moved by the average of their residuals. A new seed starts
    all of them anew. `multipliers` holds them.
    """

    def __init__(self, venv: VecEnv, shared: bool = False, **duals: Any):
        self._instances = venv.get_attr("instance_token")
        self._reseeded = False
        m = len(venv.get_attr("constraint_limits", indices=[0])[0])
        self.multipliers = Multipliers(venv.num_envs, m, shared=shared, **duals)
        super().__init__(venv, add_duals_space(venv.observation_space, m))

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        self._reseeded = seed is not None
        return self.venv.seed(seed)

    def reset(self) -> Any:
        observation = self.venv.reset()
        self._follow(range(self.num_envs))
        if self._reseeded:
            self.multipliers.restart(slice(None))
            self._reseeded = False
        return add_duals(observation, self.multipliers.observed())

    def step_wait(self) -> Any:
        observation, rewards, dones, infos = self.venv.step_wait()
        before = self.multipliers.values.astype(np.float32)
        costs = self.multipliers.charge(np.stack([info["residuals"] for info in infos]))
        for info, duals, reward in zip(infos, before, rewards.tolist(), strict=True):
            info["duals"], info["slot_reward"] = duals, reward
        if dones.any():
            after = self.multipliers.observed()
            ended = np.flatnonzero(dones)
            for i in ended:
                infos[i]["terminal_observation"] = add_duals(infos[i]["terminal_observation"], after[i])
            self._follow(ended)
        observation = add_duals(observation, self.multipliers.observed())
        return observation, (rewards - costs).astype(np.float32), dones, infos

    def _follow(self, rows: Any) -> None:
        """Restart the multipliers of rows that have got another instance."""
        instances = self.venv.get_attr("instance_token")
        self.multipliers.restart([i for i in rows if instances[i] != self._instances[i]])
        self._instances = instances
