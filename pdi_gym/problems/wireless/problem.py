"""Power control in a wireless network whose users are promised a minimum ergodic rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from pdi_gym.features import Units
from pdi_gym.graph import Graph
from pdi_gym.problem import Problem, accelerates
from pdi_gym.problems.wireless.channels import LIGHT_SPEED, deploy, ergodic_rate, noise_power, rayleigh_path
from pdi_gym.validation import check_choice, check_int, check_number, check_tensor

CARRIER = 2.4e9
SPLITS = {"train": (0, 160), "validation": (160, 32), "test": (192, 64)}
"""First network index and number of networks of each split."""
_FIRST_SEED = 42
_BLOCK_COLUMNS = 256
_SMALL = 64
_FLOOR = 1e-4
"""Keeps the logarithms of features finite: parts of the gradient below it are nothing."""
_CACHED = 80_000
"""Numbers in each work array of the gradient: a few such arrays fit the second-level cache."""


@dataclass(frozen=True, eq=False)
class WirelessPower(Problem):
    """Maximise E Σ_j r_j subject to E r_j ≥ r_min, powers x in [0, P_max]^N watts.

    r_j = log2(1 + x_j h_jj / (noise + Σ_{i≠j} x_i h_ij)) bit/s/Hz with Rayleigh fading around the
    mean power gains (N, N) [transmitter, receiver]. A realisation ξ (N, N) holds the received
    powers of one slot at full power over the noise; `draw` makes independent ones, `path` those of
    consecutive slots. Without ξ, rates are exact expectations over the fading.
    """

    gains: Tensor
    r_min: float
    noise: float
    p_max: float
    positions: tuple[np.ndarray, np.ndarray] | None = None
    """Transmitters and receivers (N, 2) in metres, for drawing the map."""
    slot_seconds: float = 0.05
    speed: float = 1.0
    """Of the users in m/s: the Doppler that correlates consecutive slots."""

    bound = 0.5
    tolerance = 0.01
    exact = False

    def __post_init__(self) -> None:
        gains = check_tensor("gains", self.gains, (None, None))
        n = len(gains)
        if gains.shape != (n, n) or n == 0:
            raise ValueError(f"gains must be square [transmitter, receiver], got {tuple(gains.shape)}")
        if (gains < 0).any():
            raise ValueError(f"gains must be ≥ 0, got {gains.min().item():g}: pass power gains, not decibels")
        if (gains.diagonal() == 0).any():
            user = int((gains.diagonal() == 0).nonzero()[0])
            raise ValueError(f"gains must be positive on the diagonal, got 0 for user {user}: drop that pair")
        object.__setattr__(self, "gains", gains)
        if self.positions is not None:
            transmitters, receivers = (np.asarray(ends).copy() for ends in self.positions)
            object.__setattr__(self, "positions", (transmitters, receivers))
        object.__setattr__(self, "r_min", check_number("r_min", self.r_min, 0))
        for name in ("noise", "p_max", "slot_seconds"):
            object.__setattr__(self, name, check_number(name, getattr(self, name), 0, above=True))
        check_number("speed", self.speed, 0)

    @classmethod
    def from_gains(cls, gains: Any, *, r_min: float, noise: float, p_max: float) -> WirelessPower:
        """A network of the user's own: mean power gains (N, N) [transmitter, receiver]; watts."""
        return cls(gains, r_min, noise, p_max)

    @classmethod
    def instance(
        cls,
        index: int = 0,
        split: str = "test",
        n_users: int = 200,
        r_min: float = 0.6,
        deployment_range: float | None = None,
        bandwidth: float = 40e6,
        p_max: float = 0.01,
        slot: float = 0.05,
        speed: float = 1.0,
    ) -> WirelessPower:
        """Random network `index` of a split: side in metres, bandwidth in hertz, slot in seconds."""
        check_choice("split", split, SPLITS)
        check_number("bandwidth", bandwidth, 0, above=True)
        n_users = check_int("n_users", n_users, 1)
        first, count = SPLITS[split]
        if check_int("index", index, 0) >= count:
            raise ValueError(f"index must be < {count} in the {split} split, got {index}")
        network = deploy(n_users, _FIRST_SEED + first + index, deployment_range)
        positions = (network.transmitters, network.receivers)
        return cls(torch.tensor(network.gains), r_min, noise_power(bandwidth), p_max, positions, slot, speed)

    @property
    def latent_dim(self) -> int:  # type: ignore[override]
        return len(self.gains)

    @property
    def n_constraints(self) -> int:  # type: ignore[override]
        return len(self.gains)

    @property
    def constraint_names(self) -> tuple[str, ...]:
        return tuple(f"user {j}" for j in range(self.n_constraints))

    @property
    def constraint_limits(self) -> np.ndarray:
        return np.full(self.n_constraints, self.r_min, dtype=np.float32)

    @cached_property
    def snr(self) -> Tensor:
        """(N, N) mean received power at full power over the noise; of order 1, whatever the units."""
        return (self.gains.double() * (self.p_max / self.noise)).float()

    def decode(self, z: Tensor) -> Tensor:
        return (z + 0.5) * self.p_max

    def encode(self, x: Tensor) -> Tensor:
        return x / self.p_max - 0.5

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        # SFC64 and a logarithm make exponentials five times as fast as torch's own generator.
        seed = int(torch.randint(2**62, (), generator=generator))
        uniform = np.random.Generator(np.random.SFC64(seed)).random((n, *self.snr.shape), dtype=np.float32)
        return torch.from_numpy(uniform).add_(2**-25).log_().mul_(-self.snr)

    def path(self, horizon: int, generator: torch.Generator) -> Iterator[Tensor]:
        phase_step = 2 * math.pi * CARRIER * self.speed / LIGHT_SPEED * self.slot_seconds
        n = self.latent_dim
        for powers in rayleigh_path(self.snr.flatten(), horizon, phase_step, generator):
            yield powers.view(-1, n, n)

    def rates(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        """Rates averaged over the draws in ξ (R, N, N), or over all fading: (..., N) → (..., N)."""
        u = (x / self.p_max).reshape(-1, self.latent_dim)
        if xi is None:
            return torch.cat([self._ergodic_rates(row) for row in torch.split(u, 8)]).view(x.shape)
        return (_log_sum(u, *_blocks(xi)) / (-len(xi) * math.log(2))).view(x.shape)

    def _ergodic_rates(self, u: Tensor) -> Tensor:
        """Powers over P_max (n, N) → exact ergodic rates (n, N)."""
        received = u.double().unsqueeze(-1) * self.snr.double()
        own = received.diagonal(dim1=-2, dim2=-1)
        return ergodic_rate(own, received - torch.diag_embed(own)).to(u.dtype)

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return -self.rates(x, xi).sum(-1)

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return self.r_min - self.rates(x, xi)

    def values(self, x: Tensor, xi: Tensor | None = None) -> tuple[Tensor, Tensor]:
        rates = self.rates(x, xi)
        return -rates.sum(-1), self.r_min - rates

    @accelerates("rates")
    def slot(self, x: Tensor, xi: Tensor | None) -> tuple[Tensor, Tensor]:
        if xi is None:
            return super().slot(x, xi)
        u = x / self.p_max
        diagonal = xi.diagonal(dim1=1, dim2=2)
        own = diagonal.clone()
        diagonal.zero_()  # a strong own signal would cost the interference its precision
        noise = torch.bmm(u.unsqueeze(1), xi).squeeze(1).add_(1)
        diagonal.copy_(own)
        rates = own.mul_(u).div_(noise).log1p_().div_(math.log(2))
        return -rates.sum(-1), self.r_min - rates

    @classmethod
    @accelerates("rates")
    def slot_batch(
        cls, problems: Sequence[Problem], x: Tensor, xi: Sequence[Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        first = cast(WirelessPower, problems[0])
        alike = all(
            type(p) is type(first) and (p.r_min, p.p_max) == (first.r_min, first.p_max) for p in problems
        )
        if xi is None or not alike:
            return super().slot_batch(problems, x, xi)
        # Alike but for ξ. Small networks are one product; large ones are not worth a copy.
        if first.latent_dim <= _SMALL:
            return first.slot(x, torch.cat(list(xi)))
        rows = [first.slot(x[b : b + 1], xi[b]) for b in range(len(x))]
        value, residuals = (torch.cat(part) for part in zip(*rows, strict=True))
        return value, residuals

    @accelerates("rates")
    def lagrangian_grad(
        self, z: Tensor, lam: Tensor, xi: Tensor | None = None, objective_weight: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Analytic for draws ξ: with noise-plus-interference n, own signal s and weight c = w + λ,

        −c log(1 + s/n) has derivative −c d/(n + s) in the own power and c (1/n − 1/(n + s)) in n.
        One matrix product carries powers to n and one carries derivatives back; the pieces between
        stay in the cache.
        """
        if xi is None:
            return super().lagrangian_grad(z, lam, xi, objective_weight)
        u = (z + 0.5).reshape(-1, self.latent_dim)
        c = (lam + objective_weight).expand(z.shape).reshape(u.shape)
        own, cross = _blocks(xi)
        rows = max(1, _CACHED // cross.shape[-1])
        parts = [
            _descend(*p, own, cross) for p in zip(torch.split(u, rows), torch.split(c, rows), strict=True)
        ]
        log_sum, grad = (torch.cat(p) for p in zip(*parts, strict=True))
        scale = 1 / (len(xi) * math.log(2))
        value = self.r_min * lam.sum(-1) + scale * (c * log_sum).sum(-1).view(z.shape[:-1])
        return value, grad.mul_(scale).view(z.shape)

    @cached_property
    def units(self) -> Units:
        """A full power moves a rate by the order of one bit/s/Hz, whatever the gains."""
        return Units(1.0, 1.0)

    @cached_property
    def _mean_links(self) -> tuple[Tensor, Tensor]:
        """Own mean SNR (N,) and interference-to-noise ratios (N, N) with a zero diagonal."""
        own = self.snr.diagonal().clone()
        return own, self.snr - torch.diag(own)

    @accelerates("rates")
    def features(self, x: Tensor, lam: Tensor) -> Tensor:
        """(..., N, 5) on mean gains: noise plus interference n, own SINR, the parts of the gradient.

        With s the own signal and c = 1 + λ, the own part is c d/(n + s) and the harm done to others
        Σ_k a_jk c_k (1/n_k − 1/(n_k + s_k)): ln n, ln(1 + s/n), the logarithms of both parts, and
        asinh of their difference, all scaled by 0.3.
        """
        direct, cross = self._mean_links
        p, c = x / self.p_max, lam + 1
        noise = p @ cross + 1
        inverse = noise.reciprocal()
        total = torch.addcmul(noise, p, direct).reciprocal()
        own = c * direct * total
        harm = (c * (inverse - total)) @ cross.mT
        parts = [noise.log(), (p * direct * inverse).log1p(), (own + _FLOOR).log(), (harm + _FLOOR).log()]
        # Channels lie apart in memory: a network works on one after the other.
        return torch.stack([*parts, (own - harm).asinh()]).mul(0.3).movedim(0, -1)

    @cached_property
    def graph(self) -> Graph:
        """Self loops and the ten strongest interferers of every receiver, transmitter → receiver.

        Harm travels along the edges and its remedy against them: use both directions. Node
        features (N, 3) are own, incoming and outgoing log2(1 + SNR) over 10; edge weights
        log2(1 + SNR), scaled so that the adjacency matrix has spectral norm 1.
        """
        n = self.latent_dim
        cross = self.snr - torch.diag(self.snr.diagonal())
        features = [self.snr.diagonal(), cross.sum(0), cross.sum(1)]
        nodes = [torch.log2(1 + f) / 10 for f in features]
        strongest = cross.topk(min(10, n - 1), dim=0).indices
        transmitters = torch.cat([torch.arange(n).unsqueeze(0), strongest])
        receivers = torch.arange(n).expand_as(transmitters)
        edges = torch.stack([transmitters.flatten(), receivers.flatten()])
        weights = torch.log2(1 + self.snr[edges[0], edges[1]])
        adjacency = torch.zeros(n, n).index_put((edges[0], edges[1]), weights)
        return Graph(torch.stack(nodes, -1), edges, weights / torch.linalg.matrix_norm(adjacency, 2))

    @accelerates("constraints")
    def metrics(self, x: Tensor, weights: Tensor, residuals: Tensor) -> dict[str, float]:
        """Rates, read off the residuals: constraints of another form say nothing about them."""
        residual = residuals.double().mean(0)
        rates = self.r_min - residual
        return {
            "mean_rate": float(rates.mean()),
            "p5_rate": float(torch.quantile(rates, 0.05)),
            "p1_rate": float(torch.quantile(rates, 0.01)),
            "sum_violation": float(residual.clamp(min=0).sum()),
        }


def _blocks(xi: Tensor) -> tuple[Tensor, Tensor]:
    """Own signals (R/b, b, N) and interference matrices (R/b, N, b·N) of the draws ξ (R, N, N).

    The own signals leave the matrix: subtracting them from the total later would cost a strong
    user its precision. b draws side by side give a small network's matrix product enough columns.
    """
    draws, n, _ = xi.shape
    b = max(k for k in range(1, max(1, min(draws, _BLOCK_COLUMNS // n)) + 1) if draws % k == 0)
    cross = xi.view(-1, b, n, n).transpose(1, 2).clone(memory_format=torch.contiguous_format)
    cross.diagonal(dim1=1, dim2=3).zero_()
    own = xi.diagonal(dim1=1, dim2=2).contiguous().view(-1, b, n)
    return own, cross.view(len(own), n, b * n)


def _period(own: Tensor) -> int:
    """How many ratios n/(n+s) can be multiplied without underflow: one logarithm serves them all."""
    return max(1, min(8, int(36 / math.log10(1.0 + float(own.max()) + 1e-3))))


def _log_sum(u: Tensor, own: Tensor, cross: Tensor) -> Tensor:
    """Σ over draws of log(n/(n+s)) for powers u (S, N), open to autograd."""
    one, period = u.new_ones(()), _period(own)
    log_sum, product = torch.zeros_like(u), u.new_ones(())
    for k, (d, matrix) in enumerate(zip(own, cross, strict=True), 1):
        noise = torch.addmm(one, u, matrix).view(len(u), *d.shape)
        product = product * (noise / torch.addcmul(noise, u.unsqueeze(1), d))
        if k % period == 0 or k == len(own):
            log_sum = log_sum + product.log().sum(1)
            product = one
    return log_sum


def _descend(u: Tensor, c: Tensor, own: Tensor, cross: Tensor) -> tuple[Tensor, Tensor]:
    """Σ over draws of log(n/(n+s)) and of the gradient of −c log(1 + s/n), for u and c (S, N)."""
    shape = (len(u), *own.shape[1:])
    noise, total = torch.empty((2, *shape)).unbind()
    product, own_grad = torch.ones(shape), torch.zeros(shape)
    log_sum, grad = torch.zeros_like(u), torch.zeros_like(u)
    period = _period(own)
    for k, (d, matrix) in enumerate(zip(own, cross, strict=True), 1):
        noise.fill_(1).view(len(u), -1).addmm_(u, matrix)
        torch.addcmul(noise, u.unsqueeze(1), d, out=total)
        inverse = total.reciprocal_()
        product.mul_(noise).mul_(inverse)
        if k % period == 0 or k == len(own):
            log_sum.add_(product.log_().sum(1))
            product.fill_(1)
        own_grad.addcmul_(d, inverse)
        noise.reciprocal_().sub_(inverse).mul_(c.unsqueeze(1))
        grad.addmm_(noise.view(len(u), -1), matrix.mT)
    return log_sum, grad.addcmul_(c, own_grad.sum(1), value=-1)
