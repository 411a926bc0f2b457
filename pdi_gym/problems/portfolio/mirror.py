"""The geometry of the simplex for portfolios: a damped mirror step, and its parts as features.

Market units: weights x̃ = N x, returns over m = mean|μ|, risk S = Σ/(N² b̄), multipliers λ̃ = λ N b̄/m.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pdi_gym.problems.portfolio.limits import Limits

_LEAST = -9.0
"""Least logarithm of x̃ from which a step starts: an asset at nothing can come back."""


class Market(NamedTuple):
    """A portfolio problem's data in market units."""

    returns: Tensor
    """(N,) μ/m."""
    risk: Tensor
    """(N, N) S."""
    dual: Tensor
    """λ̃ of a budget's multiplier of one."""
    size: Tensor
    """m."""
    limits: Limits | None

    @classmethod
    def of(cls, mu: Tensor, sigma: Tensor, budgets: Tensor, limits: Limits | None) -> Market:
        n, size, budget = len(mu), mu.abs().mean(), budgets.mean()
        return cls(mu / size, sigma / (n**2 * budget), n * budget / size, size, limits)


class Parts(NamedTuple):
    """The Lagrangian's gradient in market units at x̃ (..., N)."""

    own: Tensor
    """λ̃ ∘ S x̃: what an asset's own budget charges it."""
    others: Tensor
    """S (λ̃ ∘ x̃): what it costs the others."""
    limits: Tensor | float
    dual: Tensor
    """λ̃ (..., N)."""
    h: Tensor
    """The whole gradient less its mean under x: nothing where the step rests."""


def gradient_parts(market: Market, x: Tensor, lam: Tensor) -> Parts:
    """Parts at decisions x (..., N) under multipliers λ (..., m)."""
    n = x.shape[-1]
    weights = n * x
    dual = lam[..., :n] * market.dual
    both = torch.stack([weights, dual * weights]) @ market.risk  # Σ is symmetric
    own, others = dual * both[0], both[1]
    limits: Tensor | float = 0.0
    if market.limits is not None:
        limits = market.limits.gradient(x, lam[..., n:]) / market.size
    gradient = own + others - market.returns + limits
    return Parts(own, others, limits, dual, gradient - (gradient * x).sum(-1, keepdim=True))


def mirror_step(market: Market, x: Tensor, lam: Tensor, kappa: float) -> Tensor:
    """log x̃ ← max(log x̃, −9) − h/(κ + |h|/2 + 2 x̃ λ̃ diag S), then back to the simplex.

    The denominator is a bound on how fast h changes along its own coordinate: κ damps all assets
    alike, |h|/2 caps the move at a factor of e², the last term is the curvature of the own budget.
    """
    parts = gradient_parts(market, x, lam)
    weights = x.shape[-1] * x
    curvature = 2 * weights * parts.dual * market.risk.diagonal()
    log = weights.clamp(min=1e-30).log().clamp(min=_LEAST)
    return torch.softmax(log - parts.h / (kappa + 0.5 * parts.h.abs() + curvature), -1)


def mirror_features(market: Market, x: Tensor, lam: Tensor) -> Tensor:
    """(..., N, 5): log x̃ over 3, and asinh of return, own and others' risk charges, and h."""
    parts = gradient_parts(market, x, lam)
    log = (x.shape[-1] * x).clamp(min=1e-30).log().clamp(min=_LEAST) / 3
    columns = [log, market.returns.expand_as(x), parts.own, parts.others, parts.h]
    return torch.stack([columns[0], *(c.asinh() for c in columns[1:])]).movedim(0, -1)
