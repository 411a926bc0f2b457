"""The constraints that the enriched portfolio problem puts on top of the risk budgets."""

from __future__ import annotations

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

    Every residual is relative to the size of its limit and multiplied by `unit`, the mean risk
    budget: one dual step and one tolerance then suit the budgets and these rows alike.
    """

    rows: Tensor
    """(L, N) a_l."""
    bounds: Tensor
    """(L,) u_l."""
    n_eff_cap: float
    unit: float
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def to(self, dtype: torch.dtype) -> Limits:
        return Limits(self.rows.to(dtype), self.bounds.to(dtype), self.n_eff_cap, self.unit, self.names)

    @property
    def values(self) -> Tensor:
        """(L + 1,) the limits in the units of a user: exposure, loss, number of assets."""
        return torch.cat([self.bounds, self.bounds.new_tensor([self.n_eff_cap])])

    @property
    def _scale(self) -> Tensor:
        return self.unit / self.bounds.abs()

    def residuals(self, x: Tensor) -> Tensor:
        """(..., N) → (..., L + 1), ≤ 0 is feasible."""
        linear = self._scale * (x @ self.rows.mT - self.bounds)
        cap = self.unit * (effective_number(x) / self.n_eff_cap - 1)
        return torch.cat([linear, cap.unsqueeze(-1)], -1)

    def lagrangian_grad(self, x: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
        """λᵀf (...,) and its gradient in x (..., N), for λ (..., L + 1)."""
        value = (lam * self.residuals(x)).sum(-1)
        n_eff = effective_number(x).unsqueeze(-1)
        spread = -n_eff * (x.clamp(min=torch.finfo(x.dtype).tiny).log() + 1) / self.n_eff_cap
        return value, (lam[..., :-1] * self._scale) @ self.rows + self.unit * lam[..., -1:] * spread


def effective_number(x: Tensor) -> Tensor:
    """exp(−Σ x log x): (..., N) → (...,), from 1 (one asset) to N (equal weights)."""
    entropy: Tensor = torch.special.entr(x).sum(-1)
    return entropy.exp()


def sector_stress_limits(sectors: Tensor, scenarios: Tensor, budgets: Tensor) -> Limits:
    """Sector exposure bands, stress scenarios and an effective-number cap.

    The stress scenarios are the twelve in which the equal-weight portfolio loses most; on average
    the policy may lose no more in any of them than equal weights do. The cap asks for portfolios
    of few names: no single portfolio can then spread its risk over all budgets, a mixture can.
    """
    n = scenarios.shape[1]
    n_sectors = int(sectors.max()) + 1
    member = torch.nn.functional.one_hot(sectors, n_sectors).mT.to(scenarios.dtype)
    stress = scenarios[scenarios.mean(1).argsort()[:N_STRESS]]
    loss = -stress.mean(1)
    if (loss <= 0).any():
        raise ValueError(
            f"scenarios must hold at least {N_STRESS} in which equal weights lose, got "
            f"{int((scenarios.mean(1) < 0).sum())}: use constraints='budgets'"
        )
    cap = torch.full((n_sectors,), SECTOR_CAP / n_sectors, dtype=scenarios.dtype)
    floor = torch.full((n_sectors,), SECTOR_FLOOR / n_sectors, dtype=scenarios.dtype)
    names = [f"sector {k} {side}" for side in ("cap", "floor") for k in range(n_sectors)]
    names += [f"stress {s}" for s in range(len(stress))]
    return Limits(
        rows=torch.cat([member, -member, -stress]),
        bounds=torch.cat([cap, -floor, loss]),
        n_eff_cap=max(2.0, EFFECTIVE_SHARE * n),
        unit=float(budgets.mean()),
        names=(*names, "effective number"),
    )
