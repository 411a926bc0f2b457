"""WirelessPower-v0."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces

from pdi_gym.envs.base import RESIDUAL_CLIP, ErgodicEnv
from pdi_gym.envs.horizon import Horizon
from pdi_gym.envs.vector import ErgodicVectorEnv
from pdi_gym.problem import Problem
from pdi_gym.problems.wireless import SPLITS, WirelessPower
from pdi_gym.validation import check_choice

INTERFERERS = 3
"""Strongest interferers of each receiver that the flat and dict observations show."""


class WirelessPowerEnv(ErgodicEnv):
    """Share a channel among transmitter-receiver pairs that interfere with each other.

    ## Description
    N pairs transmit at once in a square. Each slot the agent sets every transmit power, the channel
    fades (Rayleigh, correlated from slot to slot by the users' walking speed), and user j gets
    r_j = log2(1 + x_j h_jj / (noise + Σ_{i≠j} x_i h_ij)) bit/s/Hz. The sum of rates is to be
    large while the *average* rate of every user reaches `r_min`: users in conflict must take turns.

    ## Action Space
    `Box(-1, 1, (N,), float32)`: −1 is silent, +1 is `p_max`, linear between (`to_decision` gives watts).
    Values outside are clipped; NaN is refused.

    ## Observation Space
    `observation="flat"`: for every user log10 SNR of its own signal and of its three strongest
    interferers at full power, over 5; then the running average residuals r_min − r̄_j (N,) and the
    elapsed fraction of the horizon. `"dict"`: the same as `features` (4N,), `residuals`, `time`.
    `"graph"`: `Graph` with a node per pair (five features: own, incoming, outgoing log2(1 + SNR)
    over 10, running residual), an edge per kept interferer and self loop, and the weight of
    each edge.

    ## Rewards
    Sum of the slot's rates. `info["rates"]` (N,) bit/s/Hz, `info["residuals"]` = r_min − rates,
    `info["ergodic_rates"]` the running average rates.

    ## Episode End
    Truncated after `horizon` slots, never terminated.

    ## Arguments
    `n_users=200`, `r_min=0.6`, `split="test"` (train 160, validation 32, test 64 networks; `reset`
    draws one, `options={"instance": i}` chooses), `deployment_range` (side in metres; 4100 at 200
    users, the same density otherwise), `bandwidth=40e6`, `p_max=0.01` W, `slot=0.05` s, `speed=1`
    m/s; `horizon=500`, `observation`, `render_mode`. A network of one's own:
    `gym.make("WirelessPower-v0", problem=WirelessPower.from_gains(…))`.

    ## Version History
    v0: first version.
    """

    observations: ClassVar[tuple[str, ...]] = ("flat", "dict", "graph")
    problem_type = WirelessPower

    def __init__(self, split: str = "test", problem: Problem | None = None, **kwargs: Any):
        check_choice("split", split, SPLITS)
        names = ("horizon", "observation", "render_mode")
        base = {k: kwargs.pop(k) for k in names if k in kwargs}
        self._network = {"split": split, **kwargs}
        self._own = problem
        self.n_instances = SPLITS[split][1] if problem is None else 1
        super().__init__(problem, **base)

    def make_problem(self, index: int) -> Problem:
        return self._own or WirelessPower.instance(index, **self._network)

    @classmethod
    def features(cls, problem: Problem) -> np.ndarray:
        assert isinstance(problem, WirelessPower)
        return network_features(problem)

    @classmethod
    def residual_scale(cls, problem: Problem) -> float:
        assert isinstance(problem, WirelessPower)
        return max(problem.r_min, 0.1)

    @classmethod
    def slot_info(
        cls, problem: Problem, objective: np.ndarray, residuals: np.ndarray
    ) -> dict[str, np.ndarray]:
        assert isinstance(problem, WirelessPower)
        return {"rates": np.float32(problem.r_min) - residuals}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return observation, self._with_rates(info)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, self._with_rates(info)

    def _with_rates(self, info: dict[str, Any]) -> dict[str, Any]:
        return info | {"ergodic_rates": self.problem.constraint_limits - info["ergodic_residuals"]}

    def _make_observation_space(self) -> spaces.Space[Any]:
        if self.observation != "graph":
            return super()._make_observation_space()
        nodes = spaces.Box(-RESIDUAL_CLIP, RESIDUAL_CLIP, (4,), np.float32)
        return spaces.Graph(nodes, spaces.Box(0, 1, (1,), np.float32))

    def observe(self, problem: Problem, state: Horizon) -> Any:
        if self.observation != "graph":
            return super().observe(problem, state)
        graph = problem.graph
        residuals = state.ergodic_residuals / self.residual_scale(problem)
        nodes = np.column_stack([graph.node_features.numpy(), residuals])
        return spaces.GraphInstance(
            nodes=np.clip(nodes, -RESIDUAL_CLIP, RESIDUAL_CLIP).astype(np.float32),
            edges=graph.edge_weight.numpy()[:, None].copy(),
            edge_links=graph.edge_index.numpy().T.copy(),
        )

    def _picture(self) -> np.ndarray:
        from pdi_gym import drawing

        assert self._state is not None and isinstance(self.problem, WirelessPower)
        if self.problem.positions is None:  # a network given by its gains has no map
            return super()._picture()
        rates = self.problem.r_min - self._state.ergodic_residuals
        return drawing.to_array(drawing.network_map(self.problem, rates, self._text()))


class WirelessPowerVectorEnv(ErgodicVectorEnv):
    env_class = WirelessPowerEnv

    def _info(self, playing: np.ndarray, extra: dict[str, np.ndarray], told: np.ndarray) -> dict[str, Any]:
        limits = np.stack([p.constraint_limits for p in self.problems])
        if "residuals" in extra:  # each network by its own requirement
            extra["rates"] = limits[playing] - extra["residuals"]
        infos = super()._info(playing, extra, told)
        infos["ergodic_rates"] = (limits - infos["ergodic_residuals"]) * told[:, None]
        infos["_ergodic_rates"] = told.copy()
        return infos


@functools.lru_cache(maxsize=256)
def network_features(problem: WirelessPower) -> np.ndarray:
    """log10 SNR of every user's own signal and strongest interferers over 5, user by user: (4N,)."""
    n = problem.latent_dim
    cross = problem.snr - torch.diag(problem.snr.diagonal())
    shown = torch.zeros(n, 1 + INTERFERERS)
    shown[:, 0] = problem.snr.diagonal()
    most = min(INTERFERERS, n - 1)
    shown[:, 1 : 1 + most] = cross.topk(most, dim=0).values.T
    features = (shown.clamp(min=1e-10).log10() / 5).clamp(-RESIDUAL_CLIP, RESIDUAL_CLIP).flatten().numpy()
    features.setflags(write=False)  # shared by every step
    return features
