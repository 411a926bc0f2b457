"""Small instances of every problem, and a user's own class, for the conformance tables."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pdi_gym import Problem
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower


class Sensors(Problem):
    """A user's own problem: three sensors spend energy |x|² to see at least one target on average.

    The signal of sensor i in a slot is ξ_i x_i with ξ exponential of mean 1, so E f = 1 − Σ x_i.
    """

    latent_dim = 3
    n_constraints = 1
    bound = 2.0
    exact = False

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return x.square().sum(-1)

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        signal = x if xi is None else x * xi.mean(0)
        return 1 - signal.sum(-1, keepdim=True)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        return -torch.log1p(-torch.rand((n, 3), generator=generator))


class Unbounded(Problem):
    """No box, nothing random: minimise |x|² subject to x_0 ≥ 1."""

    latent_dim = 2
    n_constraints = 1

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return x.square().sum(-1)

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return 1 - x[..., :1]


def gaussian(bound: float = math.inf) -> MixtureOfGaussians:
    """One Gaussian in three dimensions under one half-space."""
    return MixtureOfGaussians([[0.0, 0, 0]], [[0.5, 1, 2]], [1.0], [[0.6, -0.64, 0.48]], [0.9], bound)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "mixture": lambda: MixtureOfGaussians.instance(dim=5, n_modes=3, n_constraints=4, seed=3),
    "plane": MixtureOfGaussians.toy,
    "gaussian": gaussian,
    "wireless": lambda: WirelessPower.instance(0, "validation", n_users=8),
    "portfolio": lambda: Portfolio.instance(0, n_assets=12, n_sectors=4, split="validation"),
    "portfolio-enriched": lambda: Portfolio.instance(
        0, n_assets=12, n_sectors=4, split="validation", constraints="enriched"
    ),
    "own": Sensors,
    "own-unbounded": Unbounded,
}
