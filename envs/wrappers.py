"""Wrappers for code that is not ours."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class RecordConstraintStatistics(gym.Wrapper[Any, Any, Any, Any]):
    """Adds `info["ergodic"]` at the end of each horizon: averages that no autoreset can corrupt.

    It holds `residuals` (m,), the average of every constraint over the horizon just ended;
    `feasible`, the fraction of them within the problem's tolerance; `mean_violation`, the mean
    positive part of the averages; and `reward`, the average reward of a slot.
    """

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
