"""Dual updates: the one place where multipliers move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

Array = TypeVar("Array", Tensor, np.ndarray)


def ascend(lam: Array, push: Array, step: float, decay: float = 0.0, most: float | None = None) -> Array:
    """Projected ascent [(1 − decay) λ + step · push]₊, clamped at `most`."""
    return ((1 - decay) * lam + step * push).clip(0, most)


class Duals(NamedTuple):
    """The state of a dual rule: multipliers λ (C, 1, m), and the velocity of those that have momentum."""

    lam: Tensor
    velocity: Tensor | None = None


class DualRule(Protocol):
    """How multipliers start, and how a step's average residuals move them."""

    def start(self, groups: int, n_constraints: int) -> Duals: ...

    def __call__(self, duals: Duals, residual: Tensor, t: int) -> Duals:
        """The state after step t, whose residuals (C, 1, m) are signed: ≤ 0 is feasible."""
        ...


@dataclass(frozen=True)
class Ascent:
    """λ ← min([(1 − decay) λ + η_t v]₊, most) with v ← momentum·v + f + margin.

    The default freezes λ at zero. Momentum makes it heavy-ball ascent of the dual function; the margin
    is what constraints are asked to hold with to spare, in their own units.
    """

    step: float | Callable[[int], float] = 0.0
    """η, or η_t as a function of t."""
    init: float | Tensor = 0.0
    """The first λ: a number, (m,) or (C, m)."""
    most: float | None = None
    decay: float = 0.0
    margin: float = 0.0
    momentum: float = 0.0
    residual_max: float | None = None
    """The largest residual that one step sees: a bad start cannot raise λ out of reach."""

    def start(self, groups: int, n_constraints: int) -> Duals:
        lam = torch.as_tensor(self.init, dtype=torch.float32).expand(groups, n_constraints)
        return Duals(lam.clone().unsqueeze(1))

    def __call__(self, duals: Duals, residual: Tensor, t: int) -> Duals:
        seen = residual if self.residual_max is None else residual.clamp(max=self.residual_max)
        push = seen + self.margin
        if self.momentum and duals.velocity is not None:
            push = self.momentum * duals.velocity + push
        eta = self.step(t) if callable(self.step) else self.step
        return Duals(ascend(duals.lam, push, eta, self.decay, self.most), push if self.momentum else None)


FROZEN_AT_ZERO = Ascent()
