"""Pieces shared by all networks: noise-level embedding and FiLM."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_FREQUENCIES = 32


class NoiseEmbedding(nn.Module):
    """Sinusoids of the noise angle u in [0, 1], then a two-layer perceptron: (S,) → (S, size)."""

    def __init__(self, size: int):
        super().__init__()
        scale = torch.exp(torch.linspace(0, math.log(200), _FREQUENCIES))
        self.scale: Tensor
        self.register_buffer("scale", scale, persistent=False)
        self.mlp = nn.Sequential(
            nn.Linear(2 * _FREQUENCIES, size), nn.SiLU(), nn.Linear(size, size), nn.SiLU()
        )

    def forward(self, u: Tensor) -> Tensor:
        phase = u.unsqueeze(-1) * self.scale
        out: Tensor = self.mlp(torch.cat([phase.sin(), phase.cos()], -1))
        return out


class FiLM(nn.Module):
    """Feature-wise scale and shift by an embedding, the identity at first."""

    def __init__(self, size: int, width: int):
        super().__init__()
        self.linear = nn.Linear(size, 2 * width)
        nn.init.zeros_(self.linear.weight), nn.init.zeros_(self.linear.bias)

    def forward(self, h: Tensor, embedding: Tensor) -> Tensor:
        scale, shift = self.linear(embedding).chunk(2, -1)
        return torch.addcmul(shift, h, 1 + scale)
