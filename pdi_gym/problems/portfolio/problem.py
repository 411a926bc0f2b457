"""Portfolios with a risk budget per asset: returns on average, risk contributions on average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pdi_gym.features import Units
from pdi_gym.graph import Graph
from pdi_gym.problem import Problem
from pdi_gym.problems.portfolio.checks import (
    as_array,
    check_budgets,
    check_covariance,
    check_names,
    check_sectors,
)
from pdi_gym.problems.portfolio.factor_model import instance_seed, sector_market
from pdi_gym.problems.portfolio.limits import Limits, effective_number, sector_stress_limits
from pdi_gym.problems.portfolio.mirror import Market, mirror_features, mirror_step
from pdi_gym.validation import check_choice, check_number, check_tensor

CONSTRAINTS = ("budgets", "enriched")
MIN_WEIGHT = 1e-12
NEIGHBOURS = 20
GAUSSIAN_SCENARIOS = 1000


class Moments(NamedTuple):
    """The problem's data in one floating-point type."""

    mu: Tensor
    sigma: Tensor
    budgets: Tensor
    limits: Limits | None


@dataclass(frozen=True, eq=False)
class Portfolio(Problem):
    """Maximise E[μᵀx] subject to E[x_j (Σx)_j] ≤ b_j for every asset, x on the simplex.

    The latent is a vector of logits, x = softmax(z). Use `from_returns`, `from_moments` or
    `instance`; the fields are float64, because budgets near 1e-4 are judged to 1e-8, and all
    methods compute in the type of their argument. A realisation ξ is a row of `scenarios`; it
    moves the return, while the constraints always use Σ.

    With `limits` (`constraints="enriched"`) there are more rows: see `portfolio_limits`.
    """

    mu: Tensor
    """(N,) mean simple returns."""
    sigma: Tensor
    """(N, N) covariance."""
    budgets: Tensor
    """(N,) b_j, variance that asset j may contribute on average."""
    scenarios: Tensor
    """(S, N) simple returns from which slots are drawn; their mean is μ."""
    names: tuple[str, ...]
    sectors: Tensor
    """(N,) whole numbers from 0; all zero when unknown."""
    limits: Limits | None = None
    tolerance: float = 1e-8
    bound: float = field(default=math.inf, init=False)
    exact: bool = field(default=True, init=False)
    action_scale: float = field(default=10.0, init=False)
    """Logits per unit of an environment's action."""

    def __post_init__(self) -> None:
        for name in ("mu", "sigma", "budgets", "scenarios", "sectors"):
            object.__setattr__(self, name, getattr(self, name).clone())

    @classmethod
    def from_returns(
        cls,
        returns: Any,
        budgets: Any = None,
        names: Sequence[str] | None = None,
        *,
        sectors: Any = None,
        constraints: str = "budgets",
    ) -> Portfolio:
        """From simple returns (S, N), an array or a pandas frame whose columns name the assets.

        μ and Σ are the sample mean and covariance. `budgets` is one number, (N,), or None: three
        times the mean risk contribution of the equal-weight portfolio.
        """
        check_choice("constraints", constraints, CONSTRAINTS)
        if names is None and hasattr(returns, "columns"):
            names = [str(c) for c in returns.columns]
        scenarios = check_tensor("returns", as_array(returns), (None, None), torch.float64)
        s, n = scenarios.shape
        if s < 2 or n < 2:
            raise ValueError(f"returns must have ≥ 2 scenarios (rows) of ≥ 2 assets (columns), got {(s, n)}")
        if (scenarios < -1).any():
            raise ValueError(
                f"returns must be ≥ -1, got {float(scenarios.min()):g}: pass simple returns, in fractions"
            )
        names = check_names(names, n)
        mu = scenarios.mean(0)
        centred = scenarios - mu
        constant = centred.square().sum(0) <= 1e-24 * s
        if constant.any():
            j = int(constant.nonzero()[0])
            raise ValueError(f"returns must vary, but column {j} ({names[j]}) is constant: drop it")
        sigma = centred.mT @ centred / (s - 1)
        group = torch.zeros(n, dtype=torch.long) if sectors is None else check_sectors(sectors, n)
        b = check_budgets(budgets, sigma)
        limits = None
        if constraints == "enriched":
            limits = sector_stress_limits(group, scenarios, b)
        return cls(mu, sigma, b, scenarios, names, group, limits)

    @classmethod
    def from_moments(
        cls, mu: Any, sigma: Any, budgets: Any = None, names: Sequence[str] | None = None, *, seed: int = 0
    ) -> Portfolio:
        """From means (N,) and a covariance (N, N); slots are Gaussian scenarios with exactly that mean."""
        mu = check_tensor("mu", as_array(mu), (None,), torch.float64)
        n = len(mu)
        sigma = check_tensor("sigma", as_array(sigma), (n, n), torch.float64)
        factor = check_covariance(sigma)
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn((GAUSSIAN_SCENARIOS, n), generator=generator, dtype=torch.float64)
        scenarios = mu + (noise - noise.mean(0)) @ factor.mT
        group = torch.zeros(n, dtype=torch.long)
        return cls(mu, sigma, check_budgets(budgets, sigma), scenarios, check_names(names, n), group)

    @classmethod
    def instance(
        cls,
        index: int = 0,
        n_assets: int = 500,
        n_sectors: int = 10,
        split: str = "test",
        constraints: str = "budgets",
    ) -> Portfolio:
        """Instance `index` of a split of the sector factor model."""
        market = sector_market(instance_seed(index, split), n_assets, n_sectors)
        return cls.from_returns(market.returns, sectors=market.sectors, constraints=constraints)

    @classmethod
    def chronological(
        cls, returns: Any, fraction: float = 0.7, budgets: Any = None, names: Sequence[str] | None = None
    ) -> tuple[Portfolio, Portfolio]:
        """The problem of the first `fraction` of the rows and that of the rest, under the same budgets.

        Infer a policy on the first and evaluate it on the second; budgets left out come from the
        first period, since the second is not known when they are set.
        """
        check_number("fraction", fraction, 0, above=True)
        cut = round(fraction * len(returns))
        if not 2 <= cut <= len(returns) - 2:
            raise ValueError(
                f"fraction must leave ≥ 2 scenarios on both sides of {len(returns)}, got {fraction:g}"
            )
        if names is None and hasattr(returns, "columns"):
            names = [str(c) for c in returns.columns]
        rows = as_array(returns)
        first = cls.from_returns(rows[:cut], budgets, names)
        return first, cls.from_returns(rows[cut:], first.budgets, names)

    @property
    def latent_dim(self) -> int:  # type: ignore[override]
        return len(self.mu)

    @property
    def n_constraints(self) -> int:  # type: ignore[override]
        return len(self.mu) + (0 if self.limits is None else len(self.limits))

    @property
    def constraint_names(self) -> tuple[str, ...]:
        return self.names if self.limits is None else self.names + self.limits.names

    @property
    def constraint_limits(self) -> np.ndarray:
        rows = [self.budgets] if self.limits is None else [self.budgets, self.limits.values]
        return torch.cat(rows).to(torch.float32).numpy()

    @cached_property
    def _single(self) -> Moments:
        limits = None if self.limits is None else self.limits.to(torch.float32)
        return Moments(self.mu.float(), self.sigma.float(), self.budgets.float(), limits)

    def _moments(self, x: Tensor) -> Moments:
        if x.dtype == torch.float32:
            return self._single
        return Moments(self.mu, self.sigma, self.budgets, self.limits)

    def decode(self, z: Tensor) -> Tensor:
        return torch.softmax(z, -1)

    def encode(self, x: Tensor) -> Tensor:
        return _centre(x.clamp(min=MIN_WEIGHT).log())

    def project(self, z: Tensor) -> Tensor:
        return _centre(torch.log_softmax(z, -1).clamp_(min=math.log(MIN_WEIGHT)))

    def to_action(self, x: Tensor) -> Tensor:
        """Logits with the largest at +1: relative weights survive down to e⁻²⁰ of the largest."""
        log_x = x.clamp(min=MIN_WEIGHT).log()
        return (1 + (log_x - log_x.amax(-1, keepdim=True)) / self.action_scale).clamp(-1, 1)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """(n, N) scenarios with replacement, float32."""
        rows = torch.randint(len(self.scenarios), (n,), generator=generator)
        return self.scenarios[rows].float()

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return -(x @ self._mean_return(x, xi))

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        _, sigma, budgets, limits = self._moments(x)
        risk = x * (x @ sigma) - budgets
        return risk if limits is None else torch.cat([risk, limits.residuals(x)], -1)

    def slot(self, x: Tensor, xi: Tensor | None) -> tuple[Tensor, Tensor]:
        if xi is None:
            return self.objective(x), self.constraints(x)
        return -(x * xi.to(x.dtype)).sum(-1), self.constraints(x)

    def lagrangian_grad(
        self, z: Tensor, lam: Tensor, xi: Tensor | None = None, objective_weight: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        _, sigma, budgets, limits = self._moments(z)
        x = torch.softmax(z, -1)
        lam_b = lam[..., : self.latent_dim]
        if lam_b.numel() == self.latent_dim:
            # Shared λ: xᵀΛΣx = xᵀQx with Q = (ΛΣ + ΣΛ)/2 needs one product instead of two.
            row = lam_b.reshape(-1)
            grad = x @ (sigma * (row.unsqueeze(-1) + row))
            value = 0.5 * (x * grad).sum(-1)
        else:
            risk = x @ sigma
            grad = (lam_b * x) @ sigma
            value = (grad * x).sum(-1)
            grad.addcmul_(lam_b.expand_as(x), risk)
        value = value - (lam_b * budgets).sum(-1)
        if limits is not None:
            extra, extra_grad = limits.lagrangian_grad(x, lam[..., self.latent_dim :])
            value, grad = value + extra, grad + extra_grad
        if objective_weight != 0.0:
            mean_return = objective_weight * self._mean_return(x, xi)
            value = value - x @ mean_return
            grad.sub_(mean_return)
        # The softmax's Jacobian: ∇_z = x ∘ (g − gᵀx).
        grad.mul_(x)
        grad.addcmul_(x, grad.sum(-1, keepdim=True), value=-1)
        return value, grad

    @cached_property
    def units(self) -> Units:
        """A mean return per asset, and the multipliers that make the mean budget cost as much."""
        size, budget = float(self.mu.abs().mean()) / self.latent_dim, float(self.budgets.mean())
        return Units(size, size / budget)

    @cached_property
    def _market(self) -> Market:
        return Market.of(*self._single)

    def _market_of(self, x: Tensor) -> Market:
        return self._market if x.dtype == torch.float32 else Market.of(*self._moments(x))

    def proximal(self, x: Tensor, lam: Tensor, kappa: float) -> Tensor:
        """A damped mirror step on the simplex: see `mirror_step`."""
        return mirror_step(self._market_of(x), x, lam, kappa)

    def features(self, x: Tensor, lam: Tensor) -> Tensor:
        """(..., N, 5) parts of the mirror step: see `mirror_features`."""
        return mirror_features(self._market_of(x), x, lam)

    def _mean_return(self, x: Tensor, xi: Tensor | None) -> Tensor:
        return self._moments(x).mu if xi is None else xi.to(x.dtype).mean(0)

    @cached_property
    def asset_features(self) -> Tensor:
        """(N, 3) μ_j, Σ_jj and b_j, each over its mean size."""
        features = torch.stack([self.mu, self.sigma.diagonal(), self.budgets], 1)
        return (features / features.abs().mean(0)).float()

    @cached_property
    def graph(self) -> Graph:
        """Each asset's 20 strongest |correlations|, weights over the adjacency's largest eigenvalue."""
        deviation = self.sigma.diagonal().sqrt()
        strength = (self.sigma / torch.outer(deviation, deviation)).abs().fill_diagonal_(0)
        k = min(NEIGHBOURS, self.latent_dim - 1)
        weight, neighbour = strength.topk(k, dim=1)
        asset = torch.arange(self.latent_dim).unsqueeze(1).expand_as(neighbour)
        adjacency = torch.zeros_like(strength).scatter_(1, neighbour, weight)
        radius = torch.linalg.eigvals(adjacency).abs().max()
        edges = torch.stack([neighbour.flatten(), asset.flatten()])
        return Graph(self.asset_features, edges, (weight.flatten() / radius).float())

    def metrics(self, x: Tensor, weights: Tensor, residuals: Tensor) -> dict[str, float]:
        """Mean return, mean effective number of assets, and entropy and size of the argmax histogram."""
        w = weights.double()
        mass = torch.zeros(self.latent_dim, dtype=torch.float64).index_add_(0, x.argmax(-1), w)
        return {
            "mean_return": float(w @ (x.double() @ self.mu)),
            "n_eff": float((w * effective_number(x.double())).sum()),
            "top1_entropy": float(torch.special.entr(mass / mass.sum()).sum()),
            "top1_count": float((mass > 0).sum()),
        }


def _centre(log_x: Tensor) -> Tensor:
    return log_x - log_x.mean(-1, keepdim=True)
