"""Optimal time sharing: the weights of a pool of decisions as a linear program.

The paper shares time equally among its samples. Over a given pool, the best shares w solve

    minimise Σ_i w_i f0(x_i)  subject to  Σ_i w_i f(x_i) ≤ −margin,  Σ_i w_i = 1,  w ≥ 0,

whose optimal multipliers λ are those of the constrained problem over that pool. At most m + 1
decisions get time at a vertex of its polytope.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from pdi_gym.problem import Problem

CHUNK = 50
_STEEPEST = 1e6
"""Most that a unit of excess may cost in units of the objective's range: HiGHS fails far above it."""


@dataclass(frozen=True)
class Mix:
    """The solution of the program over a pool of n decisions."""

    weights: np.ndarray
    """(n,) shares of time."""
    duals: np.ndarray
    """(m,) multipliers λ ≥ 0 of the constraints."""
    level: float
    """Multiplier of Σ w = 1: a decision with f0 + λᵀ(f + margin) below it would improve the mix."""
    value: float
    """Σ w f0."""
    residuals: np.ndarray
    """(m,) Σ w f."""
    excess: float
    """Σ_j [Σ_i w_i f_ij + margin_j]₊: 0 when the pool can meet the constraints with their margin."""

    @property
    def met(self) -> bool:
        """Whether all constraints hold with their margin, up to rounding."""
        return self.excess <= 1e-12 + 1e-6 * float(np.abs(self.residuals).sum())


def optimal_mix(
    objective: np.ndarray, constraints: np.ndarray, margin: Any = 0.0, penalty: float | None = None
) -> Mix:
    """Shares of time for decisions with values f0 (n,) and residuals f (n, m).

    Without a penalty, violation comes first: if no mix meets f ≤ −margin, the best objective among
    those whose total excess is least. With one, Σw f0 + penalty·excess is minimised: that bounds
    every multiplier by the penalty.
    """
    f0, f = np.asarray(objective, dtype=np.float64), np.asarray(constraints, dtype=np.float64)
    f = f + np.broadcast_to(np.asarray(margin, dtype=np.float64), f.shape[1:])
    scale = np.median(np.abs(f), axis=0)
    scale = np.where(scale > 0, scale, np.maximum(np.abs(f).max(0), 1e-300))
    unit = max(float(np.ptp(f0)), 1e-300)
    program = _Program((f0 - f0.min()) / unit, f / scale, scale / scale.mean())
    if penalty is not None:
        solution = program.solve(slack_cost=min(penalty * scale.mean() / unit, _STEEPEST))
    else:
        solution = program.solve()
        if solution.status != 0:  # infeasible, or so nearly that HiGHS cannot tell
            least = program.solve(slack_cost=1.0, objective=0.0)
            solution = program.solve(slack_most=least.fun * (1 + 1e-6) + 1e-9, slack_cost=0.0)
    if solution.status != 0:
        raise RuntimeError(f"the program over {len(f0)} decisions was not solved: {solution.message}")
    weights = np.clip(solution.x[: len(f0)], 0, None)
    weights /= weights.sum()
    average = weights @ f
    return Mix(
        weights,
        np.clip(-solution.ineqlin.marginals[: f.shape[1]], 0, None) * unit / scale,
        float(solution.eqlin.marginals[0]) * unit + float(f0.min()),
        float(weights @ f0),
        average - margin,
        float(np.clip(average, 0, None).sum()),
    )


def heaviest_mix(objective: np.ndarray, constraints: np.ndarray, margin: Any, most: int) -> Mix:
    """`optimal_mix` with time for at most `most` decisions: the heaviest, solved for again alone."""
    mix = optimal_mix(objective, constraints, margin)
    if (mix.weights > 0).sum() <= most:
        return mix
    kept = np.sort(np.argsort(-mix.weights, kind="stable")[:most])
    fewer = optimal_mix(objective[kept], constraints[kept], margin)
    weights = np.zeros_like(mix.weights)
    weights[kept] = fewer.weights
    return replace(fewer, weights=weights)


@dataclass(frozen=True)
class _Program:
    """The linear program in units of order 1: slacks are excess over a constraint's scale."""

    f0: np.ndarray
    f: np.ndarray
    slack_weight: np.ndarray
    """(m,) what one unit of each slack counts in the total excess."""

    def solve(
        self, slack_cost: float | None = None, objective: float = 1.0, slack_most: float | None = None
    ) -> Any:
        """Minimise objective·wᵀf0 + slack_cost·excess; no slack without a cost; excess ≤ slack_most."""
        n, m = self.f.shape
        cost, rows, right = objective * self.f0, self.f.T, np.zeros(m)
        if slack_cost is not None:
            cost = np.concatenate([cost, slack_cost * self.slack_weight])
            rows = np.hstack([rows, -np.eye(m)])
        if slack_most is not None:
            rows = np.vstack([rows, np.concatenate([np.zeros(n), self.slack_weight])])
            right = np.append(right, slack_most)
        total = np.zeros((1, len(cost)))
        total[0, :n] = 1.0
        return linprog(cost, rows, right, total, [1.0], bounds=(0, None), method="highs")


@torch.no_grad()
def pool_values(
    problem: Problem, actions: np.ndarray, draws: int = 0, generator: torch.Generator | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """f0 (n,) and f (n, m) of decisions in float64, averaged over draws; exact where the problem is.

    With draws = 0 the problem's expectations without ξ are used. All decisions meet the same
    realisations, so that their differences carry less noise.
    """
    x = torch.as_tensor(actions, dtype=torch.float32)
    if problem.exact or draws == 0:
        exact_f0, exact_f = problem.values(x)
        return exact_f0.double().numpy(), exact_f.double().numpy()
    if generator is None:
        raise ValueError(f"draws = {draws} need a generator of their own: pass one")
    f0 = torch.zeros(len(x), dtype=torch.float64)
    f = torch.zeros(len(x), problem.n_constraints, dtype=torch.float64)
    for start in range(0, draws, CHUNK):
        size = min(CHUNK, draws - start)
        xi: Tensor | None = problem.draw(size, generator)
        value, residuals = problem.values(x, xi)
        f0 += value.double() * (size / draws)
        f += residuals.double() * (size / draws)
    return f0.numpy(), f.numpy()
