"""MixtureOfGaussians-v0 and MixtureOfGaussians2D-v0."""

from __future__ import annotations

from typing import Any

import numpy as np

from pdi_gym.envs.base import ErgodicEnv
from pdi_gym.envs.vector import ErgodicVectorEnv
from pdi_gym.problem import Problem
from pdi_gym.problems.mixture import MixtureOfGaussians


class MixtureOfGaussiansEnv(ErgodicEnv):
    """Visit the dense regions of a Gaussian mixture while half-spaces hold on average.

    ## Description
    Each slot the agent picks a point x of R^d. It earns the log density of a mixture of Gaussians
    at x; the constraints A x ≥ b need only hold for the average of the points. No mode's centre
    satisfies more than a few of them, so time must be shared between modes.

    ## Action Space
    `Box(-1, 1, (d,), float32)`: the point divided by the half-width of the domain
    (`env.unwrapped.problem.bound`, 6.414 for the default instance).

    ## Observation Space
    `observation="flat"`: running average residuals b − A x̄ (m,), clipped to ±10, and the elapsed
    fraction of the horizon. `"dict"`: the keys `residuals` and `time`.

    ## Rewards
    log Σ_k w_k N(x; m_k, C_k). `info["residuals"]` = b − A x, ≤ 0 is feasible.

    ## Episode End
    Truncated after `horizon` slots, never terminated.

    ## Arguments
    `dim=30`, `n_modes=12`, `n_constraints=10`, `seed=0` give the instance of the paper;
    `MixtureOfGaussians2D-v0` is the paper's example in the plane (three modes, two constraints) and
    takes none of the four. `horizon=500`, `observation`, `render_mode`. A user's own mixture:
    `gym.make("MixtureOfGaussians-v0", problem=MixtureOfGaussians(…))`.

    ## Version History
    v0: first version.
    """

    problem_type = MixtureOfGaussians

    def __init__(
        self,
        dim: int = 30,
        n_modes: int = 12,
        n_constraints: int = 10,
        seed: int = 0,
        problem: Problem | None = None,
        **kwargs: Any,
    ):
        super().__init__(problem or MixtureOfGaussians.instance(dim, n_modes, n_constraints, seed), **kwargs)

    def _picture(self) -> np.ndarray:
        from pdi_gym import drawing

        assert isinstance(self.problem, MixtureOfGaussians)
        visited = np.array(self._history).reshape(-1, self.problem.latent_dim)
        return drawing.to_array(drawing.mixture_samples(self.problem, visited, self._text()))


class MixtureOfGaussians2DEnv(MixtureOfGaussiansEnv):
    __doc__ = MixtureOfGaussiansEnv.__doc__

    def __init__(self, problem: Problem | None = None, **kwargs: Any):
        super().__init__(problem=problem or MixtureOfGaussians.toy(), **kwargs)


class MixtureOfGaussiansVectorEnv(ErgodicVectorEnv):
    env_class = MixtureOfGaussiansEnv


class MixtureOfGaussians2DVectorEnv(ErgodicVectorEnv):
    env_class = MixtureOfGaussians2DEnv
