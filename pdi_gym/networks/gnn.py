"""The graph network of the paper: residual blocks of graph convolutions, modulated by the noise level."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pdi_gym.graph import Graph
from pdi_gym.networks.graph_layers import GraphBlock
from pdi_gym.networks.layers import NoiseEmbedding


def node_inputs(columns: list[Tensor], graph: Graph) -> Tensor:
    """(N, S, k + F): k numbers per node and sample, each given as (S, N), and the node's own data."""
    own = torch.stack([c.T for c in columns], -1)
    features = graph.node_features.to(own.device).unsqueeze(1).expand(-1, own.shape[1], -1)
    return torch.cat([own, features], -1)


class GraphNetwork(nn.Module):
    """Numbers per sample and node, each (S, N), on one graph → (S, N).

    Messages have fewer channels than nodes: propagation is what costs, and it is linear in them.
    """

    def __init__(self, columns: int, width: int, depth: int, messages: int, hops: int):
        super().__init__()
        self.embed = NoiseEmbedding(width)
        self.first = nn.Linear(columns, width)
        self.blocks = nn.ModuleList(GraphBlock(width, messages, hops, width) for _ in range(depth))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, columns: list[Tensor], u: Tensor, graph: Graph) -> Tensor:
        embedding = self.embed(u)
        adjacency = graph.adjacency.to(u.device)
        h = self.first(node_inputs(columns, graph))
        for block in self.blocks:
            h = block(h, embedding, adjacency)
        out: Tensor = self.last(h).squeeze(-1).T
        return out
