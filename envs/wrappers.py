"""Wrappers for code that is not ours."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from pdi_gym.duals import ascend
from pdi_gym.validation import check_number

DUALS_SHOWN = 10.0
"""Observed multipliers log(1 + λ/unit) are clipped to this, so that the space is bounded."""


class RecordConstraintStatistics(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds `info["ergodic"]` at the end of each horizon: averages that no autoreset can corrupt.

    It holds `residuals` (m,), the average of every constraint over the horizon just ended;
    `feasible`, the fraction of them within the problem's tolerance; `mean_violation`, the mean
    positive part of the averages; and `reward`, the average reward of a slot.
    """

    def __init__(self, env: gym.Env[Any, Any]):
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._slots, self._reward = 0, 0.0
        self._residuals = np.zeros(self.env.unwrapped.problem.n_constraints)  # type: ignore[attr-defined]
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._slots += 1
        self._reward += float(reward)
        self._residuals += info["residuals"]
        if terminated or truncated:
            average = self._residuals / self._slots
            tolerance = self.env.unwrapped.problem.tolerance  # type: ignore[attr-defined]
            info["ergodic"] = {
                "residuals": average.astype(np.float32),
                "feasible": float((average <= tolerance).mean()),
                "mean_violation": float(np.maximum(average, 0).mean()),
                "reward": self._reward / self._slots,
            }
        return observation, reward, terminated, truncated, info


class Multipliers:
    """λ of a batch of horizons: λ ← [λ + η (f + margin)]₊ after every slot.

    λ and the constraints f have shape (rows, m). With `shared`, all rows play one instance: they
    have one λ, which moves by the average of their residuals.
    """

    def __init__(
        self,
        rows: int,
        n_constraints: int,
        dual_step: float = 0.1,
        dual_init: float = 0.0,
        dual_unit: float = 1.0,
        margin: float = 0.0,
        shared: bool = False,
    ):
        self.dual_step, self.dual_init = check_number("dual_step", dual_step, 0), dual_init
        self.margin, self.shared = check_number("margin", margin, 0), shared
        self.dual_unit = check_number("dual_unit", dual_unit, 0, above=True)
        self.values = np.full((rows, n_constraints), check_number("dual_init", dual_init, 0))

    def restart(self, rows: Any) -> None:
        """Those rows play a new instance: multipliers belong to an instance."""
        self.values[rows] = self.dual_init

    def charge(self, residuals: np.ndarray) -> np.ndarray:
        """Σ_j λ_j f_j of a slot's residuals (rows, m), with the λ that its action saw: (rows,)."""
        cost = (self.values * residuals).sum(-1)
        step = residuals.mean(0) if self.shared else residuals
        self.values = ascend(self.values, step + self.margin, self.dual_step)
        return np.asarray(cost)

    def observed(self) -> np.ndarray:
        """log(1 + λ/unit), (rows, m): λ spans orders of magnitude, and small ones matter most."""
        return np.minimum(np.log1p(self.values / self.dual_unit), DUALS_SHOWN).astype(np.float32)


def add_duals(observation: Any, duals: np.ndarray) -> Any:
    """A flat or dict observation, single or batched, with the observed multipliers behind it."""
    if isinstance(observation, dict):
        return observation | {"duals": duals}
    return np.concatenate([observation, duals], -1)


def add_duals_space(space: spaces.Space[Any], n_constraints: int) -> spaces.Space[Any]:
    """The space of `add_duals`, for one environment."""
    duals = spaces.Box(0, DUALS_SHOWN, (n_constraints,), np.float32)
    if isinstance(space, spaces.Dict):
        return spaces.Dict({**space.spaces, "duals": duals})
    if isinstance(space, spaces.Box):
        low, high = (np.concatenate(ends) for ends in ((space.low, duals.low), (space.high, duals.high)))
        return spaces.Box(low, high, dtype=np.float32)
    raise ValueError(f"observation must be flat or dict to hold multipliers, got {type(space).__name__}")


class LagrangianReward(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """The reward less Σ_j λ_j f_j: what a method for plain rewards can maximise to meet averages.

    λ takes a step [λ + η (f + margin)]₊ after every slot, so that it is never late and the
    observation, which holds it (key `duals`, or the last m entries of a flat one), is all that the
    next reward needs. An agent that maximises the reward for the λ it sees turns to each constraint
    in its turn, and the average over slots meets all of them, which no fixed λ can promise. λ goes on
    through the horizons of an instance and starts at `dual_init` with a new one, told apart by content,
    or a new seed. `dual_step` is η;
    `margin` is what averages are to hold with to spare, in the constraints' units; λ is shown as
    log(1 + λ/dual_unit). `info["duals"]` is the λ that charged this slot, `info["slot_reward"]` the
    reward without it.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        dual_step: float = 0.1,
        dual_init: float = 0.0,
        dual_unit: float = 1.0,
        margin: float = 0.0,
    ):
        RecordConstructorArgs.__init__(
            self, dual_step=dual_step, dual_init=dual_init, dual_unit=dual_unit, margin=margin
        )
        super().__init__(env)
        m = env.unwrapped.problem.n_constraints  # type: ignore[attr-defined]
        self.observation_space = add_duals_space(env.observation_space, m)
        self._multipliers = Multipliers(1, m, dual_step, dual_init, dual_unit, margin)
        self._instance: str | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        instance: str = self.env.unwrapped.instance_token  # type: ignore[attr-defined]
        if seed is not None or instance != self._instance:
            self._multipliers.restart(0)
            self._instance = instance
        return add_duals(observation, self._multipliers.observed()[0]), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        info["duals"] = self._multipliers.values[0].astype(np.float32)
        info["slot_reward"] = reward
        cost = float(self._multipliers.charge(info["residuals"][None])[0])
        observation = add_duals(observation, self._multipliers.observed()[0])
        return observation, float(reward) - cost, terminated, truncated, info
