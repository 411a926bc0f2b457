"""Classical portfolios, each one convex programme solved by Clarabel through CVXPY."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import torch

from pdi_gym.agents.base import Agent, Observer
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.problems.portfolio import Portfolio


class ConvexAgent(Agent):
    """One portfolio, repeated n times: these methods have no use for time sharing."""

    @classmethod
    def applies(cls, problem: Problem) -> bool:
        return isinstance(problem, Portfolio)

    @classmethod
    def missing(cls) -> str | None:
        found = all(importlib.util.find_spec(package) for package in ("cvxpy", "clarabel"))
        return None if found else "pip install 'pdi-gym[convex]'"

    def _weights(self, problem: Portfolio, cvxpy: Any) -> np.ndarray:
        raise NotImplementedError

    def _sample(
        self, problem: Problem, options: Any, n: int, generator: torch.Generator, callback: Observer | None
    ) -> TimeSharingPolicy:
        import cvxpy

        assert isinstance(problem, Portfolio)
        x = np.clip(self._weights(problem, cvxpy), 0, None)
        return TimeSharingPolicy(np.tile((x / x.sum()).astype(np.float32), (n, 1)))


class Markowitz(ConvexAgent):
    """max μᵀx subject to xᵀΣx ≤ Σ_j b_j on the simplex: the whole risk is limited, not its parts."""

    name = "markowitz"
    summary = "largest mean return within the total variance of all budgets"

    def _weights(self, problem: Portfolio, cvxpy: Any) -> np.ndarray:
        x = cvxpy.Variable(problem.latent_dim, nonneg=True)
        total = float(problem.budgets.sum())
        risk = cvxpy.sum_squares(_risk_factor(problem) @ x)
        rules = [cvxpy.sum(x) == 1, risk <= 1e3 * total]
        _solve(self.name, cvxpy, cvxpy.Problem(cvxpy.Maximize(problem.mu.numpy() @ x), rules))
        return np.asarray(x.value)


class RiskBudget(ConvexAgent):
    """The portfolio whose risk contributions are proportional to the budgets.

    It is y/Σy for y = argmin ½ yᵀΣy − Σ_j (b_j/Σb) log y_j, whose optimality condition is
    y_j (Σy)_j = b_j/Σb. Returns play no part.
    """

    name = "risk-budget"
    summary = "risk contributions proportional to the budgets"

    def _weights(self, problem: Portfolio, cvxpy: Any) -> np.ndarray:
        y = cvxpy.Variable(problem.latent_dim)
        share = (problem.budgets / problem.budgets.sum()).numpy()
        risk = cvxpy.sum_squares(_risk_factor(problem) @ y)
        _solve(self.name, cvxpy, cvxpy.Problem(cvxpy.Minimize(0.5 * risk - share @ cvxpy.log(y))))
        return np.asarray(y.value)


def _risk_factor(problem: Portfolio) -> np.ndarray:
    """F with FᵀF = 1000 Σ: the factor brings daily and yearly variances near 1 for the solver."""
    values, vectors = torch.linalg.eigh(1e3 * problem.sigma)
    keep = values > 1e-12 * values[-1]
    return np.asarray((vectors[:, keep] * values[keep].sqrt()).mT)


def _solve(name: str, cvxpy: Any, programme: Any) -> None:
    programme.solve(solver=cvxpy.CLARABEL)
    if programme.status not in ("optimal", "optimal_inaccurate"):
        raise RuntimeError(
            f"{name}: Clarabel ended with status {programme.status!r}: no portfolio meets the total budget"
        )
