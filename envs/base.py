"""The shared environment: one slot of a problem whose constraints hold on average."""

from __future__ import annotations

import copy
import uuid
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from pdi_gym import seeding
from pdi_gym.digests import problem_digest
from pdi_gym.envs.horizon import Horizon
from pdi_gym.problem import Problem, check_problem
from pdi_gym.validation import check_choice, check_int

RESIDUAL_CLIP = 10.0
"""Observed residuals are clipped to ± this many `residual_scale`s, so that the space is bounded."""


class ErgodicEnv(gym.Env[Any, np.ndarray]):
    """Any `Problem` as a Gymnasium environment.

    ## Description
    Every slot the agent plays one decision x, nature draws one realisation ξ, and the slot earns
    −f0(x, ξ) and the residuals f(x, ξ). What counts is the *average* over the horizon: a good
    agent shares time between decisions so that every average residual is ≤ 0.

    ## Action Space
    `Box(-1, 1, (d,), float32)`, mapped to decisions by the problem (`to_decision`, `to_action`).
    Actions outside are clipped; NaN is refused.

    ## Observation Space
    `observation="flat"`: the problem's features, the running average residuals and the elapsed
    fraction of the horizon in one `Box`. `"dict"`: the same three under the keys `features`,
    `residuals`, `time`.

    ## Rewards
    −f0(x, ξ) of this slot. `info["residuals"]` (m,) is signed, ≤ 0 is feasible;
    `info["ergodic_residuals"]` its running average; `info["cost"]` the mean positive part of this
    slot's residuals, a surrogate for constrained-RL code and never the metric.

    ## Episode End
    Truncated after `horizon` slots, never terminated.

    ## Arguments
    `problem`: the instance to play; `horizon`: slots per episode; `observation`; `render_mode`:
    `"rgb_array"` or `"ansi"`. `reset(options={"problem": p})` swaps the instance.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 10}  # noqa: RUF012
    observations: ClassVar[tuple[str, ...]] = ("flat", "dict")
    problem_type: ClassVar[type] = Problem
    """What the environment can play, subclasses included."""

    def __init__(
        self,
        problem: Problem | None = None,
        horizon: int = 500,
        observation: str = "flat",
        render_mode: str | None = None,
    ):
        check_int("horizon", horizon, 1)
        check_choice("observation", observation, self.observations)
        if render_mode is not None:
            check_choice("render_mode", render_mode, self.metadata["render_modes"])
        self.horizon, self.observation, self.render_mode = horizon, observation, render_mode
        self._spec: EnvSpec | None = None
        self._own = problem
        if problem is None:
            problem = self.make_problem(0)
        self._check_kind("problem", problem)
        self.problem = problem
        self._known: tuple[Problem, str] | None = None
        self._state: Horizon | None = None
        self._history: list[np.ndarray] = []
        self.action_space = spaces.Box(-1, 1, (problem.latent_dim,), np.float32)
        self.observation_space = self._make_observation_space()

    # What a registered environment adds.

    n_instances = 1

    def make_problem(self, index: int) -> Problem:
        """Instance `index` of the environment's split; the given problem where there is no split."""
        if self._own is None:
            raise TypeError("ErgodicEnv needs problem=…, an object that fits pdi_gym.Problem")
        return self._own

    @classmethod
    def features(cls, problem: Problem) -> np.ndarray:
        """What an agent may know of the instance, (k,) or (nodes, k), float32 within [-10, 10]."""
        return np.zeros(0, dtype=np.float32)

    @classmethod
    def residual_scale(cls, problem: Problem) -> float:
        """The size of a residual worth noticing: observed residuals are divided by it."""
        return 1.0

    @classmethod
    def slot_info(
        cls, problem: Problem, objective: np.ndarray, residuals: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Extra info of slots, from objective (B,) and residuals (B, m); first axis B."""
        return {}

    # Gymnasium's interface.

    @property
    def spec(self) -> EnvSpec | None:
        """What `gym.make` was told, and the horizon, which wrappers look for there."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = copy.copy(spec)
        if self._spec is not None:
            self._spec.max_episode_steps = self.horizon

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.problem = self.choose_problem(self.problem, self.np_random, options)
        stream = seed if seed is not None else int(self.np_random.integers(2**31))
        self._state = Horizon(self.problem, self.horizon, seeding.generator(stream, seeding.SLOTS))
        self._history = []
        return self._observe(), {"ergodic_residuals": self._state.ergodic_residuals.astype(np.float32)}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._state is None or self._state.ended:
            raise gym.error.ResetNeeded("call reset() before step() and after a truncated horizon")
        a = check_actions(as_array(action)[None], self.action_space.shape)
        xi = self._state.next_realisation()
        x = self.problem.to_decision(torch.from_numpy(a))
        value, f = self.problem.slot(x, xi)
        objective, residuals = value.numpy().astype(np.float64), f.numpy().astype(np.float32)
        self._state.residual_sum += residuals[0]
        if self.render_mode is not None:
            self._history.append(x[0].numpy().copy())
        info = {k: v[0] for k, v in self.slot_info(self.problem, objective, residuals).items()}
        info["residuals"] = residuals[0]
        info["ergodic_residuals"] = self._state.ergodic_residuals.astype(np.float32)
        info["cost"] = np.maximum(residuals[0], 0).mean().astype(np.float64)
        return self._observe(), float(-objective[0]), False, self._state.ended, info

    def render(self) -> Any:
        if self.render_mode is None:
            gym.logger.warn("render() needs render_mode='rgb_array' or 'ansi', given to gym.make")
            return None
        return self._text() if self.render_mode == "ansi" else self._picture()

    def __getstate__(self) -> dict[str, Any]:
        generator = self.np_random  # made now if nothing was drawn yet, so that a copy draws the same
        return {**vars(self), "_np_random": generator}

    # The contract's conveniences.

    @property
    def instance_token(self) -> str:
        """What tells the instance from others: alike for equal content, in every process.

        A problem whose content cannot be read has one of its own in each environment.
        """
        if self._known is None or self._known[0] is not self.problem:
            self._known = (self.problem, instance_token(self.problem))
        return self._known[1]

    @property
    def constraint_names(self) -> tuple[str, ...]:
        return self.problem.constraint_names

    @property
    def constraint_limits(self) -> np.ndarray:
        return self.problem.constraint_limits

    def to_action(self, x: np.ndarray) -> np.ndarray:
        """Decisions (..., d) → actions in [-1, 1]."""
        return self.problem.to_action(torch.as_tensor(x, dtype=torch.float32)).numpy()

    def to_decision(self, action: np.ndarray) -> np.ndarray:
        """Actions (..., d) → decisions in the problem's own units."""
        return self.problem.to_decision(torch.as_tensor(action, dtype=torch.float32)).numpy()

    # Parts.

    def choose_problem(
        self, current: Problem, rng: np.random.Generator, options: dict[str, Any] | None
    ) -> Problem:
        """The instance of the next horizon: as the options say, else drawn from the split."""
        options = dict(options or {})
        unknown = set(options) - {"instance", "problem", "reset_mask"}
        if unknown:
            raise ValueError(f"options must be 'instance' or 'problem', got {', '.join(sorted(unknown))}")
        if "problem" in options:
            problem: Problem = options["problem"]
            self._check_fits(problem)
            return problem
        if "instance" in options:
            index = check_int("options['instance']", options["instance"], 0)
            if index >= self.n_instances:
                raise ValueError(f"options['instance'] must be < {self.n_instances}, got {index}")
            return self.make_problem(index)
        if self.n_instances == 1:
            return current
        return self.make_problem(int(rng.integers(self.n_instances)))

    def _check_kind(self, argument: str, problem: Problem) -> None:
        check_problem(problem)
        if not isinstance(problem, self.problem_type):
            raise ValueError(
                f"{argument} must be a {self.problem_type.__name__} for {type(self).__name__}, got a "
                f"{type(problem).__name__}: ErgodicEnv(problem) plays any problem"
            )

    def _check_fits(self, problem: Problem) -> None:
        if problem is self.problem:
            return
        self._check_kind("options['problem']", problem)
        for name in ("latent_dim", "n_constraints"):
            old, new = getattr(self.problem, name), getattr(problem, name)
            if old != new:
                raise ValueError(f"options['problem'] must have {name} = {old} as the environment, got {new}")

    def _make_observation_space(self) -> spaces.Space[Any]:
        features = self.features(self.problem)
        m = self.problem.n_constraints
        if self.observation == "flat":
            return spaces.Box(-RESIDUAL_CLIP, RESIDUAL_CLIP, (features.size + m + 1,), np.float32)
        parts: dict[str, spaces.Space[Any]] = {
            "residuals": spaces.Box(-RESIDUAL_CLIP, RESIDUAL_CLIP, (m,), np.float32),
            "time": spaces.Box(0, 1, (1,), np.float32),
        }
        if features.size:
            parts["features"] = spaces.Box(-RESIDUAL_CLIP, RESIDUAL_CLIP, features.shape, np.float32)
        return spaces.Dict(parts)

    def _observe(self) -> Any:
        assert self._state is not None
        return self.observe(self.problem, self._state)

    def observe(self, problem: Problem, state: Horizon) -> Any:
        """The observation of a running horizon, fresh arrays every call."""
        residuals = state.ergodic_residuals / self.residual_scale(problem)
        batch = self.assemble(self.features(problem)[None], residuals[None], np.array([state.slot]))
        return {k: v[0] for k, v in batch.items()} if isinstance(batch, dict) else batch[0]

    def assemble(self, features: np.ndarray, residuals: np.ndarray, slots: np.ndarray) -> Any:
        """Observations of B horizons from features (B, …), scaled residuals (B, m) and slots (B,)."""
        residuals = np.clip(residuals, -RESIDUAL_CLIP, RESIDUAL_CLIP).astype(np.float32)
        time = (slots / self.horizon).astype(np.float32)[:, None]
        if self.observation == "flat":
            return np.concatenate([features.reshape(len(slots), -1), residuals, time], 1)
        parts = {"residuals": residuals, "time": time}
        return parts | {"features": features.copy()} if features[0].size else parts

    def _text(self) -> str:
        assert self._state is not None
        residual = self._state.ergodic_residuals
        met = int((residual <= self.problem.tolerance).sum())
        return (
            f"slot {self._state.slot}/{self.horizon}: {met}/{len(residual)} constraints met on average, "
            f"largest residual {residual.max():+.4g}"
        )

    def _picture(self) -> np.ndarray:
        from pdi_gym import drawing

        assert self._state is not None
        return drawing.to_array(
            drawing.residual_bars(self._state.ergodic_residuals, self.problem, self._text())
        )


def instance_token(problem: Problem) -> str:
    """A digest of the problem's content, or a number that is never given again."""
    return problem_digest(problem) or uuid.uuid4().hex


def as_array(action: Any) -> np.ndarray:
    """An action as float32, or an error that names it."""
    try:
        return np.asarray(action, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"action must be an array of numbers, got {action!r}: {error}") from None


def check_actions(actions: np.ndarray, shape: tuple[int, ...] | None) -> np.ndarray:
    """Actions (B, d) clipped to [-1, 1]; refuses another shape and NaN."""
    if actions.shape[1:] != shape:
        raise ValueError(f"action must have shape {shape}, got {actions.shape[1:]}")
    if np.isnan(actions).any():
        raise ValueError("action must not contain NaN: check the policy that made it")
    return np.asarray(np.clip(actions, -1, 1))
