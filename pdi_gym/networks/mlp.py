"""A perceptron for problems without a graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pdi_gym.graph import Graph
from pdi_gym.networks.layers import FiLM, NoiseEmbedding


class FiLMMLP(nn.Module):
    """Residual blocks over z and `others` further inputs, modulated by the noise level; → (S, d)."""

    def __init__(self, latent_dim: int, others: int, width: int, depth: int):
        super().__init__()
        self.embed = NoiseEmbedding(width)
        self.first = nn.Linear(latent_dim + others, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.films = nn.ModuleList(FiLM(width, width) for _ in range(depth))
        self.last = nn.Linear(width, latent_dim)

    def forward(self, columns: list[Tensor], u: Tensor, graph: Graph | None) -> Tensor:
        embedding = self.embed(u)
        h = self.first(torch.cat(columns, -1))
        for block, norm, film in zip(self.blocks, self.norms, self.films, strict=True):
            h = h + nn.functional.silu(film(norm(block(h)), embedding))
        out: Tensor = self.last(nn.functional.silu(h))
        return out
