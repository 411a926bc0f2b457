"""The graph network of the paper: residual blocks of graph convolutions, modulated by the noise level."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pdi_gym.networks.layers import GraphBlock, NoiseEmbedding
from pdi_gym.problems.graph import Graph


def node_inputs(z: Tensor, duals: Tensor | None, graph: Graph) -> Tensor:
    """(N, S, 1 + F, or 2 + F with multipliers): the sample, its multipliers and the node's own data."""
    features = graph.node_features.to(z.device).unsqueeze(1).expand(-1, len(z), -1)
    columns = [z.T.unsqueeze(-1)] + ([] if duals is None else [duals.T.unsqueeze(-1)])
    return torch.cat([*columns, features], -1)


class GraphNetwork(nn.Module):
    """S samples (S, N) on one graph, their multipliers one per node → (S, N).

    Messages have fewer channels than nodes: propagation is what costs, and it is linear in them.
    """

    def __init__(self, node_features: int, dual: bool, width: int, depth: int, messages: int, hops: int):
        super().__init__()
        self.embed = NoiseEmbedding(width)
        self.first = nn.Linear(1 + dual + node_features, width)
        self.blocks = nn.ModuleList(GraphBlock(width, messages, hops, width) for _ in range(depth))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, z: Tensor, u: Tensor, duals: Tensor | None, graph: Graph) -> Tensor:
        embedding = self.embed(u)
        adjacency = graph.adjacency.to(z.device)
        h = self.first(node_inputs(z, duals, graph))
        for block in self.blocks:
            h = block(h, embedding, adjacency)
        out: Tensor = self.last(h).squeeze(-1).T
        return out
