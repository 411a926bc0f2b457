"""Portfolio-v0."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from pdi_gym.envs.base import RESIDUAL_CLIP, ErgodicEnv
from pdi_gym.envs.horizon import Horizon
from pdi_gym.envs.vector import ErgodicVectorEnv
from pdi_gym.problem import Problem
from pdi_gym.problems.portfolio import Portfolio
from pdi_gym.problems.portfolio.factor_model import SPLITS
from pdi_gym.validation import check_choice


class PortfolioEnv(ErgodicEnv):
    """Invest for return while every asset's risk contribution stays in its budget on average.

    ## Description
    Each slot the agent holds a long-only portfolio x of N assets and the market draws one of its
    return scenarios r. The slot earns rᵀx; asset j contributes x_j (Σx)_j to the variance, which
    may exceed its budget b_j in a slot but not on average. Two of ten sectors pay most of the
    return and carry most of the risk. Slots do not compound: each starts from the same capital.

    ## Action Space
    `Box(-1, 1, (N,), float32)`: logits divided by 10, x = softmax(10 a). `to_action` puts the
    largest weight at +1, so weights keep their ratios down to e⁻²⁰ of the largest.

    ## Observation Space
    `observation="flat"`: per asset μ_j, Σ_jj and b_j over their mean sizes, then the running
    average residuals over the mean budget, clipped to ±10, and the elapsed fraction of the horizon.
    `"dict"`: the keys `features` (3N,), `residuals` (m,) and `time` (1,). `"graph"`: a node per asset
    (the three features and its budget's running residual), an edge from each of its 20 most
    correlated assets, and the weight of each edge.

    ## Rewards
    rᵀx, also `info["returns"]`. `info["residuals"]` (m,) = x_j (Σx)_j − b_j in the covariance of the
    instance, ≤ 0 is feasible: the scenario moves the return only.

    ## Episode End
    Truncated after `horizon` slots, never terminated.

    ## Arguments
    `n_assets=500`, `n_sectors=10`, `split="test"` (`train`: 200 instances, `validation`: 10,
    `test`: 20); `constraints="budgets"`, or `"enriched"` with sector exposure bands, stress scenarios
    and a cap on the effective number of assets. `horizon=500`, `observation`, `render_mode`. A user's
    own market: `gym.make("Portfolio-v0", problem=Portfolio.from_returns(returns))`.

    ## Version History
    v0: first version.
    """

    observations: ClassVar[tuple[str, ...]] = ("flat", "dict", "graph")
    problem_type = Portfolio

    def __init__(
        self,
        n_assets: int = 500,
        n_sectors: int = 10,
        split: str = "test",
        constraints: str = "budgets",
        problem: Problem | None = None,
        **kwargs: Any,
    ):
        check_choice("split", split, SPLITS)
        self._arguments = (n_assets, n_sectors, split, constraints)
        self._own = problem
        self.n_instances = len(SPLITS[split]) if problem is None else 1
        self._wealth = [1.0]
        super().__init__(problem, **kwargs)

    def make_problem(self, index: int) -> Problem:
        return self._own or Portfolio.instance(index, *self._arguments)

    @classmethod
    def features(cls, problem: Problem) -> np.ndarray:
        assert isinstance(problem, Portfolio)
        return problem.asset_features.clamp(-RESIDUAL_CLIP, RESIDUAL_CLIP).flatten().numpy()

    @classmethod
    def residual_scale(cls, problem: Problem) -> float:
        assert isinstance(problem, Portfolio)
        return float(problem.budgets.mean())

    @classmethod
    def slot_info(
        cls, problem: Problem, objective: np.ndarray, residuals: np.ndarray
    ) -> dict[str, np.ndarray]:
        return {"returns": -objective}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._wealth = [1.0]
        return super().reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        if self.render_mode is not None:
            self._wealth.append(self._wealth[-1] + reward)
        return observation, reward, terminated, truncated, info

    def _make_observation_space(self) -> spaces.Space[Any]:
        if self.observation != "graph":
            return super()._make_observation_space()
        nodes = spaces.Box(-RESIDUAL_CLIP, RESIDUAL_CLIP, (4,), np.float32)
        return spaces.Graph(nodes, spaces.Box(0, 1, (1,), np.float32))

    def observe(self, problem: Problem, state: Horizon) -> Any:
        if self.observation != "graph":
            return super().observe(problem, state)
        graph = problem.graph
        residuals = state.ergodic_residuals[: problem.latent_dim] / self.residual_scale(problem)
        nodes = np.column_stack([graph.node_features.numpy(), residuals])
        return spaces.GraphInstance(
            nodes=np.clip(nodes, -RESIDUAL_CLIP, RESIDUAL_CLIP).astype(np.float32),
            edges=graph.edge_weight.numpy()[:, None].copy(),
            edge_links=graph.edge_index.numpy().T.copy(),
        )

    def _text(self) -> str:
        assert self._state is not None
        mean = (self._wealth[-1] - 1) / max(self._state.slot, 1)
        return f"{super()._text()}; mean return {mean:+.3f} a slot"

    def _picture(self) -> np.ndarray:
        from pdi_gym import drawing

        assert isinstance(self.problem, Portfolio) and self._state is not None
        played = np.array(self._history).reshape(-1, self.problem.latent_dim)
        residuals = self._state.ergodic_residuals
        return drawing.to_array(drawing.portfolio_horizon(self.problem, played, residuals, self._wealth))


class PortfolioVectorEnv(ErgodicVectorEnv):
    env_class = PortfolioEnv
