"""A graph U-Net: graph blocks at several resolutions, with skip connections between equal ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor, nn

from pdi_gym.graph import Adjacency, Graph
from pdi_gym.networks.gnn import node_inputs
from pdi_gym.networks.graph_layers import GraphBlock
from pdi_gym.networks.layers import NoiseEmbedding


@dataclass(frozen=True, eq=False)
class Level:
    """One resolution: which nodes of the finer level it keeps, and its adjacency."""

    kept: Tensor
    adjacency: Adjacency


@lru_cache(maxsize=512)
def pyramid(graph: Graph, levels: int) -> tuple[Level, ...]:
    """Levels from fine to coarse; each keeps the half of the nodes with the largest total weight.

    Two kept nodes are adjacent when a path of at most two edges joined them; weights are scaled to
    spectral norm 1.
    """
    dense = graph.adjacency.forward.to_dense()
    out = [Level(torch.arange(len(dense)), graph.adjacency)]
    for _ in range(levels - 1):
        n = max(1, len(dense) // 2)
        strength = dense.sum(0) + dense.sum(1)
        kept = strength.topk(n).indices.sort().values
        dense = (dense + dense @ dense)[kept][:, kept]
        dense = dense / torch.linalg.matrix_norm(dense, 2).clamp(min=1e-12)
        out.append(Level(kept, Adjacency.of(dense)))
    return tuple(out)


class GraphUNet(nn.Module):
    """Encoder, decoder and skips over `levels` resolutions, `depth` blocks on each side of each."""

    def __init__(self, columns: int, width: int, depth: int, messages: int, hops: int, levels: int):
        super().__init__()
        self.embed = NoiseEmbedding(width)
        self.first = nn.Linear(columns, width)

        def stack() -> nn.ModuleList:
            return nn.ModuleList(GraphBlock(width, messages, hops, width) for _ in range(depth))

        self.encoder = nn.ModuleList(stack() for _ in range(levels))
        self.decoder = nn.ModuleList(stack() for _ in range(levels - 1))
        self.joins = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(levels - 1))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, columns: list[Tensor], u: Tensor, graph: Graph) -> Tensor:
        embedding = self.embed(u)
        levels = pyramid(graph, len(self.encoder))
        adjacencies = [level.adjacency.to(u.device) for level in levels]
        h = self.first(node_inputs(columns, graph))
        skips = []
        for i, (level, blocks) in enumerate(zip(levels, self.encoder, strict=True)):
            if i > 0:
                skips.append(h)
                h = h[level.kept.to(h.device)]
            for block in cast(nn.ModuleList, blocks):
                h = block(h, embedding, adjacencies[i])
        for i in reversed(range(len(self.decoder))):
            fine = torch.zeros_like(skips[i]).index_copy(0, levels[i + 1].kept.to(h.device), h)
            h = self.joins[i](torch.cat([skips[i], fine], -1))
            for block in cast(nn.ModuleList, self.decoder[i]):
                h = block(h, embedding, adjacencies[i])
        out: Tensor = self.last(h).squeeze(-1).T
        return out
