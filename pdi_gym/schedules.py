"""Noise schedules: y_τ = α_τ y_0 + σ_τ ε for τ = 0 … T, with y_0 clean and y_T nearly Gaussian."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pdi_gym.validation import check_choice, check_int

_STEP_NOISE_MAX = 0.999


@dataclass(frozen=True)
class Schedule:
    """All tensors have T + 1 entries, indexed by the forward time τ; entry 0 is the clean end.

    y_τ = √a_τ y_{τ-1} + √b_τ ε, so α_τ² = Π a_s and σ_τ² = 1 − α_τ² (variance preserving).
    """

    name: str
    a: Tensor
    b: Tensor
    alpha: Tensor
    sigma: Tensor

    @property
    def T(self) -> int:
        return len(self.alpha) - 1

    @property
    def snr(self) -> Tensor:
        return (self.alpha / self.sigma) ** 2


def cosine(T: int, offset: float = 0.008) -> Tensor:
    """ᾱ_τ ∝ cos²((τ/T + s)/(1 + s)·π/2)."""
    u = torch.arange(T + 1, dtype=torch.float64) / T
    f = torch.cos((u + offset) / (1 + offset) * math.pi / 2) ** 2
    return f / f[0]


def linear(T: int) -> Tensor:
    """DDPM's b from 1e-4 to .02 over the paper's 500 steps; other T keep the same total noise."""
    b = torch.linspace(1e-4, 0.02, T, dtype=torch.float64) * (500 / T)
    return torch.cat([torch.ones(1, dtype=torch.float64), torch.cumprod(1 - b.clamp(max=_STEP_NOISE_MAX), 0)])


def linear_snr(T: int) -> Tensor:
    """SNR rises linearly from 1e-3 to 1e3 in reverse time."""
    return _from_snr(T, power=1)


def polynomial_snr(T: int) -> Tensor:
    """SNR rises quadratically from 1e-3 to 1e3 in reverse time."""
    return _from_snr(T, power=2)


def _from_snr(T: int, power: int, low: float = 1e-3, high: float = 1e3) -> Tensor:
    u = (T - torch.arange(1, T + 1, dtype=torch.float64)) / max(T - 1, 1)
    snr = low + (high - low) * u**power
    return torch.cat([torch.ones(1, dtype=torch.float64), snr / (1 + snr)])


SCHEDULES: dict[str, Callable[[int], Tensor]] = {
    "cosine": cosine,
    "linear": linear,
    "linear-snr": linear_snr,
    "polynomial-snr": polynomial_snr,
}


def make_schedule(name: str, T: int) -> Schedule:
    """The schedule of that name with T steps, computed in float64 and kept in float32."""
    check_choice("schedule", name, SCHEDULES)
    check_int("T", T, 1)
    alpha_bar = SCHEDULES[name](T)
    # A step may not wipe out everything: the last cosine step would otherwise divide by zero.
    a = (alpha_bar[1:] / alpha_bar[:-1]).clamp(min=1 - _STEP_NOISE_MAX)
    alpha_bar = torch.cat([alpha_bar[:1], torch.cumprod(a, 0)])
    a = torch.cat([torch.ones(1, dtype=torch.float64), a])
    tensors = (a, 1 - a, alpha_bar.sqrt(), (1 - alpha_bar).sqrt())
    return Schedule(name, *(t.float() for t in tensors))
