"""The native vector form as a Stable-Baselines3 `VecEnv`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from pdi_gym.envs import ErgodicVectorEnv


class SB3VecEnv(VecEnv):
    """`num_envs` horizons in one batched slot, equal to SB3's `DummyVecEnv` of as many environments.

    A finished horizon is reset in the same step: its last observation is
    `infos[i]["terminal_observation"]`, and `infos[i]["TimeLimit.truncated"]` is True. Seeds and
    options given by `seed` and `set_options` serve the next `reset` only, as in SB3.
    """

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any]):
        if not isinstance(env, ErgodicVectorEnv):
            raise ValueError(
                f"env must be a native vector environment, got {type(env).__name__}: make it by "
                'gym.make_vec(…, vectorization_mode="vector_entry_point")'
            )
        if isinstance(env.single_observation_space, gym.spaces.Graph):
            raise ValueError(
                'observation must be "flat" or "dict", got "graph": Stable-Baselines3 knows no graph '
                'spaces; take "dict" and pdi_gym.sb3.GraphObservation'
            )
        self.env = env
        self._actions: np.ndarray | None = None
        self._fresh = True
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self.metadata = env.metadata

    def reset(self) -> Any:
        seeds, options = list(self._seeds), list(self._options)
        alike = all(own == options[0] for own in options)
        if alike or self._fresh:  # the first reset must be of all rows, even if each has options of its own
            observation, info = self.env.reset(seed=seeds, options=options[0] if alike else None)
            self.reset_infos = _rows(info, self.num_envs)
        for i, own in enumerate([] if alike else options):
            mask = np.arange(self.num_envs) == i
            observation, info = self.env.reset(seed=seeds, options={**own, "reset_mask": mask})
            self.reset_infos[i] = _rows(info, self.num_envs)[i]
        self._fresh = False
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        assert self._actions is not None
        observation, rewards, terminated, truncated, info = self.env.step(self._actions)
        dones = terminated | truncated
        infos = _rows(info, self.num_envs)
        for own, cut in zip(infos, truncated.tolist(), strict=True):
            own["TimeLimit.truncated"] = cut
        if dones.any():
            last = observation
            observation, again = self.env.reset(options={"reset_mask": dones})
            first = _rows(again, self.num_envs)
            for i in np.flatnonzero(dones).tolist():
                infos[i]["terminal_observation"] = row_of(last, i)
                self.reset_infos[i] = first[i]
        return observation, rewards.astype(np.float32), dones, infos

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        values = self.env.get_attr(attr_name)
        return [values[i] for i in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        if sorted(self._get_indices(indices)) != list(range(self.num_envs)):
            raise ValueError(
                f"{attr_name} must be set in all rows, which share one environment, got {indices}"
            )
        self.env.set_attr(attr_name, [value] * self.num_envs)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        values = self.env.call(method_name, *args, **kwargs)
        return [values[i] for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


def make_sb3_vec(
    env_id: str, num_envs: int = 1, seed: int | None = None, monitor: bool = True, **kwargs: Any
) -> VecEnv:
    """`num_envs` environments of that id as a fast `VecEnv`, as `make_vec_env` of SB3 gives slow ones.

    Further arguments are the environment's. With `monitor`, episode returns and lengths are recorded.
    """
    env = gym.make_vec(env_id, num_envs=num_envs, vectorization_mode="vector_entry_point", **kwargs)
    venv = SB3VecEnv(env)
    venv.seed(seed)
    return VecMonitor(venv) if monitor else venv


def row_of(batch: Any, i: int) -> Any:
    """Row i of a batch of flat or dict observations, copied."""
    return {k: v[i].copy() for k, v in batch.items()} if isinstance(batch, dict) else batch[i].copy()


def _rows(info: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """Gymnasium's batched info as a dict per row, without the entries that its masks say are absent."""
    keys = [k for k in info if not k.startswith("_")]
    columns = [list(info[k]) for k in keys]
    if all(info[f"_{k}"].all() for k in keys):
        return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]
    return [{k: c[i] for k, c in zip(keys, columns, strict=True) if info[f"_{k}"][i]} for i in range(n)]
