"""The native vector form: one batched slot for all sub-environments, equal to stepping each."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from pdi_gym import seeding
from pdi_gym.envs.base import ErgodicEnv, as_array, check_actions, instance_token
from pdi_gym.envs.horizon import Horizon
from pdi_gym.problem import Problem
from pdi_gym.validation import check_int

_OF_A_ROW = ("problem", "np_random", "np_random_seed", "instance_token")
"""Attributes that every row has of its own."""


class ErgodicVectorEnv(gym.vector.VectorEnv[Any, np.ndarray, np.ndarray]):
    """`num_envs` horizons of `env_class` side by side; arguments beyond that are the class's.

    `autoreset_mode` is next-step, as Gymnasium's default, or disabled: then reset finished
    horizons with `options={"reset_mask": …}`. Averages over a horizon want it disabled, since a
    reset in between is a slot that was never played. A horizon is cut by `horizon` alone:
    `max_episode_steps`, which Gymnasium hands on from a spec, must say the same.
    """

    env_class: ClassVar[type[ErgodicEnv]] = ErgodicEnv
    metadata: dict[str, Any]

    def __init__(
        self,
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        **kwargs: Any,
    ):
        self.num_envs = check_int("num_envs", num_envs, 1)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            raise ValueError(
                "autoreset_mode must be NextStep or Disabled: the last residuals would be hidden"
            )
        if kwargs.get("render_mode") is not None:
            raise ValueError("render_mode needs a single environment: gym.make(…, render_mode=…)")
        self._env = self.env_class(**kwargs)
        if max_episode_steps not in (None, self._env.horizon):
            raise ValueError(
                f"max_episode_steps must be the horizon, {self._env.horizon}, got {max_episode_steps}: give "
                "horizon=… alone"
            )
        self.metadata = {**self.env_class.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_action_space = self._env.action_space
        self.single_observation_space = self._env.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.problems: list[Problem] = [self._env.problem] * num_envs
        self._known: list[tuple[Problem, str] | None] = [None] * num_envs
        self._rngs: list[tuple[np.random.Generator, int] | None] = [None] * num_envs
        self._horizons: list[Horizon] = []
        self._sums = np.zeros((num_envs, self._env.problem.n_constraints))
        self._scales = np.ones((num_envs, 1))
        self._features = np.stack([self._env.features(self._env.problem)] * num_envs)
        self._probe = torch.full((1, self._env.problem.latent_dim), 0.5)
        self._probed = self._env.problem.to_decision(self._probe).repeat(num_envs, 1)
        self._alike = True
        self._done = np.zeros(num_envs, dtype=bool)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if seed is None or isinstance(seed, int):
            seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must be one number or {self.num_envs} of them, got {len(seeds)}")
        options = dict(options or {})
        mask = options.pop("reset_mask", np.ones(self.num_envs, dtype=bool))
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise ValueError(f"options['reset_mask'] must be a boolean array of shape ({self.num_envs},)")
        if not self._horizons and not mask.all():
            raise gym.error.ResetNeeded("the first reset must be of all environments")
        self._reset_rows(np.flatnonzero(mask), seeds, options)
        return self._observe(), self._info(np.zeros(0, dtype=int), {}, mask)

    def _reset_rows(self, rows: np.ndarray, seeds: list[int | None], options: dict[str, Any]) -> None:
        for i in rows:
            self._reset_one(int(i), seeds[i], options)
        self._alike = bool((self._probed == self._probed[0]).all())

    def _reset_one(self, i: int, seed: int | None, options: dict[str, Any]) -> None:
        if seed is not None:
            self._rngs[i] = np_random(seed)
        rng, _ = self._rng(i)
        self.problems[i] = self._env.choose_problem(self.problems[i], rng, options)
        stream = seed if seed is not None else int(rng.integers(2**31))
        generator = seeding.generator(stream, seeding.SLOTS)
        self._sums[i] = 0
        horizon = Horizon(self.problems[i], self._env.horizon, generator, self._sums[i])
        self._horizons[i : i + 1] = [horizon]
        self._scales[i] = self._env.residual_scale(self.problems[i])
        self._features[i] = self._env.features(self.problems[i])
        self._probed[i] = self.problems[i].to_decision(self._probe)[0]
        self._done[i] = False

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if not self._horizons:
            raise gym.error.ResetNeeded("call reset() before step()")
        if self.autoreset_mode == AutoresetMode.DISABLED and self._done.any():
            raise gym.error.ResetNeeded("reset the finished horizons with options={'reset_mask': …}")
        actions = check_actions(as_array(actions), self.single_action_space.shape)
        if len(actions) != self.num_envs:
            raise ValueError(f"actions must have {self.num_envs} rows, got {len(actions)}")
        playing = ~self._done
        if self._done.any():
            self._reset_rows(np.flatnonzero(self._done), [None] * self.num_envs, {})
        rewards = np.zeros(self.num_envs)
        extra: dict[str, np.ndarray] = {}
        rows = np.flatnonzero(playing)
        if len(rows):
            objective, residuals = self._play(rows, actions[rows])
            rewards[rows] = -objective
            extra = self._env.slot_info(self._env.problem, objective, residuals)
            extra["residuals"] = residuals
            extra["cost"] = np.maximum(residuals, 0).mean(-1).astype(np.float64)
        truncated = np.array([horizon.ended for horizon in self._horizons])
        self._done = truncated.copy()
        return (
            self._observe(),
            rewards,
            np.zeros(self.num_envs, dtype=bool),
            truncated,
            self._info(rows, extra, np.ones(self.num_envs, dtype=bool)),
        )

    def _play(self, rows: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Objective (B,) and residuals (B, m) of one slot of those rows."""
        problems = [self.problems[i] for i in rows]
        drawn = [self._horizons[i].next_realisation() for i in rows]
        a = torch.from_numpy(actions)
        if self._alike:
            x = problems[0].to_decision(a)
        else:
            x = torch.cat([p.to_decision(a[b : b + 1]) for b, p in enumerate(problems)])
        value, f = type(problems[0]).slot_batch(problems, x, None if drawn[0] is None else drawn)
        residuals = f.numpy().astype(np.float32)
        self._sums[rows] += residuals
        return value.numpy().astype(np.float64), residuals

    def _slots(self) -> np.ndarray:
        return np.array([horizon.slot for horizon in self._horizons])

    def _averages(self) -> np.ndarray:
        return np.asarray(self._sums / np.maximum(self._slots(), 1)[:, None])

    def _info(self, playing: np.ndarray, extra: dict[str, np.ndarray], told: np.ndarray) -> dict[str, Any]:
        """Batched arrays with Gymnasium's boolean masks, zero where a row has no such entry.

        `playing` are the rows of `extra`; `told` masks the rows that this call stepped or reset.
        """
        infos: dict[str, Any] = {}
        for key, values in extra.items():
            full = np.zeros((self.num_envs, *values.shape[1:]), dtype=values.dtype)
            full[playing] = values
            mask = np.zeros(self.num_envs, dtype=bool)
            mask[playing] = True
            infos[key], infos[f"_{key}"] = full, mask
        infos["ergodic_residuals"] = (self._averages() * told[:, None]).astype(np.float32)
        infos["_ergodic_residuals"] = told.copy()
        return infos

    def _observe(self) -> Any:
        if self._env.observation in ("flat", "dict"):
            return self._env.assemble(self._features, self._averages() / self._scales, self._slots())
        rows = [self._env.observe(p, h) for p, h in zip(self.problems, self._horizons, strict=True)]
        out: Any = create_empty_array(self.single_observation_space, self.num_envs, fn=np.zeros)
        return concatenate(self.single_observation_space, rows, out)

    # What Gymnasium's own vector forms offer.

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(self._rng(i)[1] for i in range(self.num_envs))

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        return tuple(self._rng(i)[0] for i in range(self.num_envs))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every sub-environment, or get an attribute that is none."""
        if name in ("reset", "step", "close"):
            raise ValueError(f"call({name!r}) would be unseen by the others: use {name} of the batch")
        if name == "instance_token":
            return self._tokens()
        if name == "problem":
            return tuple(self.problems)
        found = [getattr(self._row(i), name) for i in range(self.num_envs)]
        return tuple(value(*args, **kwargs) if callable(value) else value for value in found)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """The value of an attribute in every sub-environment."""
        return self.call(name)

    def set_attr(self, name: str, values: list[Any] | tuple[Any, ...] | Any) -> None:
        """Set an attribute of all sub-environments, to one value: they share all but their horizons."""
        each = list(values) if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ValueError(f"values must be one or {self.num_envs}, got {len(each)}")
        if name in _OF_A_ROW or any(value != each[0] for value in each[1:]):
            raise ValueError(
                f"{name} must be alike in all rows, which share one environment: give instances and seeds to "
                "reset, and what differs otherwise to environments of its own"
            )
        setattr(self._env, name, each[0])

    def _rng(self, i: int) -> tuple[np.random.Generator, int]:
        """The generator of row i and the seed that made it."""
        known = self._rngs[i]
        if known is None:
            known = self._rngs[i] = np_random()
        return known

    def _tokens(self) -> tuple[str, ...]:
        """The instance token of every row, with one digest for rows that share a problem."""
        fresh: dict[int, str] = {}
        for i, problem in enumerate(self.problems):
            known = self._known[i]
            if known is None or known[0] is not problem:
                if id(problem) not in fresh:
                    fresh[id(problem)] = instance_token(problem)
                self._known[i] = (problem, fresh[id(problem)])
        return tuple(known[1] for known in self._known if known is not None)

    def _row(self, i: int) -> ErgodicEnv:
        """Row i as an environment, to look at: it shares its state with the batch."""
        own = copy.copy(self._env)
        own.problem = self.problems[i]
        own._np_random, own._np_random_seed = self._rng(i)
        own._state = self._horizons[i] if self._horizons else None
        return own

    def __getstate__(self) -> dict[str, Any]:
        for i in range(self.num_envs):
            self._rng(i)  # made now if nothing was drawn yet, so that a copy draws the same
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for horizon, residual_sum in zip(self._horizons, self._sums, strict=False):
            horizon.residual_sum = residual_sum
