"""Checks of a user's market data; the messages say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pdi_gym.validation import check_tensor, to_tensor

BUDGET_FACTOR = 3.0


def as_array(value: Any) -> Any:
    return value.to_numpy() if hasattr(value, "to_numpy") else value


def check_names(names: Sequence[str] | None, n: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"asset {j}" for j in range(n))
    names = tuple(str(name) for name in names)
    if len(names) != n:
        raise ValueError(f"names must be one per asset ({n}), got {len(names)}")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"names must be unique, got {name!r} twice: rename or drop one of the columns")
        seen.add(name)
    return names


def check_sectors(sectors: Any, n: int) -> Tensor:
    tensor = torch.as_tensor(sectors)
    if tensor.shape != (n,) or tensor.is_floating_point() or (tensor < 0).any():
        raise ValueError(f"sectors must be {n} whole numbers ≥ 0, got {sectors!r}")
    return tensor.long().clone()


def check_budgets(budgets: Any, sigma: Tensor) -> Tensor:
    """(N,); None gives three times the mean risk contribution of equal weights to every asset."""
    n = len(sigma)
    if budgets is None:
        return torch.full((n,), BUDGET_FACTOR * float(sigma.mean()) / n, dtype=torch.float64)
    values = to_tensor("budgets", as_array(budgets), f"() or ({n})", torch.float64)
    values = check_tensor("budgets", values.expand(n) if values.ndim == 0 else values, (n,), torch.float64)
    if (values <= 0).any():
        j = int((values <= 0).nonzero()[0])
        raise ValueError(f"budgets must be positive, got {float(values[j]):g} at index {j}")
    return values


def check_covariance(sigma: Tensor) -> Tensor:
    """A factor F with F Fᵀ = Σ up to rounding; refuses what is not symmetric positive semidefinite."""
    if not torch.allclose(sigma, sigma.mT, rtol=1e-6, atol=1e-12):
        raise ValueError(
            f"sigma must be symmetric, off by {float((sigma - sigma.mT).abs().max()):g}: pass (S + S.T) / 2"
        )
    zero = sigma.diagonal() <= 0
    if zero.any():
        j = int(zero.nonzero()[0])
        raise ValueError(
            f"sigma must have a positive diagonal, got {float(sigma[j, j]):g} at asset {j}: drop it"
        )
    ridge = 1e-9 * float(sigma.diagonal().mean())
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(sigma + ridge * torch.eye(len(sigma), dtype=sigma.dtype))
    if failed:
        lowest = float(torch.linalg.eigvalsh(sigma)[0])
        raise ValueError(
            f"sigma must be positive semidefinite, its lowest eigenvalue is {lowest:.3g}: add a ridge"
        )
    return factor
