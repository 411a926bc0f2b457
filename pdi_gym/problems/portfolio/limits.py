"""The constraints that the enriched portfolio problem puts on top of the risk budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SECTOR_CAP, SECTOR_FLOOR = 1.5, 0.67
"""Exposure band of a sector, in units of 1/n_sectors: .15 and .067 for ten sectors."""
N_STRESS = 12
EFFECTIVE_SHARE = 0.05
"""Cap on the effective number of assets, as a share of all assets: 25 of 500."""


@dataclass(frozen=True, eq=False)
class Limits:
    """Rows a_l·x ≤ u_l and one cap on N_eff = exp(entropy of x), each holding on average.

    Every residual is divided by the `scale` of its row (for the cap: by the cap) and multiplied by
    `unit`, √N mean risk budgets: between the unit that would give these rows the multipliers of a
    budget (N) and the one that would give them its steps (1), so that one dual step suits both.
    """

    rows: Tensor
    """(L, N) a_l."""
    bounds: Tensor
    """(L,) u_l."""
    scale: Tensor
    """(L,) sizes of an excess worth noticing."""
    n_eff_cap: float
    unit: float
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def to(self, dtype: torch.dtype) -> Limits:
        rows, bounds, scale = (t.to(dtype) for t in (self.rows, self.bounds, self.scale))
        return Limits(rows, bounds, scale, self.n_eff_cap, self.unit, self.names)

    @property
    def values(self) -> Tensor:
        """(L + 1,) the limits in the units of a user: exposure, loss (< 0: least gain), number of assets."""
        return torch.cat([self.bounds, self.bounds.new_tensor([self.n_eff_cap])])

    def residuals(self, x: Tensor) -> Tensor:
        """(..., N) → (..., L + 1), ≤ 0 is feasible."""
        linear = (x @ self.rows.mT - self.bounds) * (self.unit / self.scale)
        cap = self.unit * (effective_number(x) / self.n_eff_cap - 1)
        return torch.cat([linear, cap.unsqueeze(-1)], -1)

    def lagrangian_grad(self, x: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
        """λᵀf (...,) and its gradient in x (..., N), for λ (..., L + 1)."""
        return (lam * self.residuals(x)).sum(-1), self.gradient(x, lam)

    def gradient(self, x: Tensor, lam: Tensor) -> Tensor:
        """The gradient of λᵀf in x (..., N)."""
        n_eff = effective_number(x).unsqueeze(-1)
        spread = -n_eff * (x.clamp(min=torch.finfo(x.dtype).tiny).log() + 1) / self.n_eff_cap
        linear = (lam[..., :-1] * (self.unit / self.scale)) @ self.rows
        return linear + self.unit * lam[..., -1:] * spread


def effective_number(x: Tensor) -> Tensor:
    """exp(−Σ x log x): (..., N) → (...,), from 1 (one asset) to N (equal weights)."""
    entropy: Tensor = torch.special.entr(x).sum(-1)
    return entropy.exp()


def sector_stress_limits(sectors: Tensor, scenarios: Tensor, budgets: Tensor) -> Limits:
    """Sector exposure bands, stress scenarios and an effective-number cap.

    The stress scenarios are the twelve in which the equal-weight portfolio earns least; on average
    the policy may earn no less in any of them than equal weights do, in units of the standard
    deviation of their return. The cap asks for portfolios of few names: no single portfolio can
    then spread its risk over all budgets, a mixture can.
    """
    n = scenarios.shape[1]
    n_sectors = int(sectors.max()) + 1
    member = torch.nn.functional.one_hot(sectors, n_sectors).mT.to(scenarios.dtype)
    market = scenarios.mean(1)
    stress = scenarios[market.argsort()[:N_STRESS]]
    cap = torch.full((n_sectors,), SECTOR_CAP / n_sectors, dtype=scenarios.dtype)
    floor = torch.full((n_sectors,), SECTOR_FLOOR / n_sectors, dtype=scenarios.dtype)
    names = [f"sector {k} {side}" for side in ("cap", "floor") for k in range(n_sectors)]
    names += [f"stress {s}" for s in range(len(stress))]
    return Limits(
        rows=torch.cat([member, -member, -stress]),
        bounds=torch.cat([cap, -floor, -stress.mean(1)]),
        scale=torch.cat([cap, floor, market.std().expand(len(stress))]),
        n_eff_cap=max(2.0, EFFECTIVE_SHARE * n),
        unit=math.sqrt(n) * float(budgets.mean()),
        names=(*names, "effective number"),
    )
