"""Our agents where Stable-Baselines3 wants an algorithm."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from pdi_gym.agents.base import Agent
from pdi_gym.validation import check_int


class AgentAlgorithm:
    """An agent of ours with the members of `BaseAlgorithm` that SB3's callbacks ask for.

    `learn` plays the agent in `env`, and so gives callbacks (`EvalCallback`, `CheckpointCallback`,
    a user's own) the steps they count; nothing is trained. `predict` answers for `eval_env`, where
    `EvalCallback` judges it. Where `predict` is all that is wanted, as in `evaluate_policy`,
    `agent.bind(env)` does without this class.
    """

    def __init__(self, agent: Agent, env: VecEnv, eval_env: VecEnv, seed: int = 0):
        self.agent = copy.copy(agent).bind(eval_env, seed)
        self._player = copy.copy(agent).bind(env, seed)
        self.env = env
        self.n_envs = env.num_envs
        self.num_timesteps = 0
        self.logger = Logger(folder=None, output_formats=[])

    def get_env(self) -> VecEnv:
        return self.env

    def get_vec_normalize_env(self) -> None:
        return None

    def set_logger(self, logger: Logger) -> None:
        self.logger = logger

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """The next slot's actions in `eval_env`."""
        return self.agent.predict(observation, state, episode_start, deterministic)

    def save(self, path: str | Path) -> None:
        """Write the agent, as its own `save` does, to the folder `path`."""
        self.agent.save(path)

    def learn(
        self, total_timesteps: int, callback: BaseCallback | list[BaseCallback] | None = None
    ) -> AgentAlgorithm:
        """Play at least that many slots, all rows counted; a callback may end it earlier."""
        check_int("total_timesteps", total_timesteps, 1)
        watch = callback if isinstance(callback, BaseCallback) else CallbackList(callback or [])
        watch.init_callback(self)  # type: ignore[arg-type]
        watch.on_training_start(locals(), globals())
        observation = self.env.reset()
        going = True
        while going and self.num_timesteps < total_timesteps:
            actions, _ = self._player.predict(observation)
            observation, rewards, dones, infos = self.env.step(actions)
            self.num_timesteps += self.n_envs
            watch.update_locals(locals())
            going = watch.on_step()
        watch.on_training_end()
        return self
