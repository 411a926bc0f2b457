"""Graph convolution over folded samples, and the residual block made of it.

torch-geometric takes as long to import as torch: only a graph network that is built imports this module.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import TAGConv

from pdi_gym.graph import Adjacency
from pdi_gym.networks.layers import FiLM


class FoldedTAGConv(TAGConv):  # type: ignore[misc]
    """torch-geometric's TAGConv, Σ_k A^k h W_k, for features (N, S, C) of S samples on one graph.

    The samples are columns of one sparse product, so no edge is copied per sample.
    """

    def __init__(self, width_in: int, width_out: int, hops: int):
        super().__init__(width_in, width_out, K=hops, bias=False, normalize=False)

    @property
    def weight(self) -> Tensor:
        """(width_out, (hops + 1)·width_in): the W_k side by side."""
        return torch.cat([lin.weight for lin in self.lins], 1)

    def powers(self, h: Tensor, adjacency: Adjacency) -> list[Tensor]:
        """[h, A h, A² h, …]."""
        out = [h]
        for _ in range(self.K):
            out.append(adjacency @ out[-1])
        return out

    def forward(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        return nn.functional.linear(torch.cat(self.powers(h, adjacency), -1), self.weight)


class GraphBlock(nn.Module):
    """h + FiLM(SiLU(LayerNorm(W h + TAGConv along the edges + TAGConv against them + mean over nodes))).

    The convolutions see `messages` channels of h; all linear maps are one matrix product.
    """

    def __init__(self, width: int, messages: int, hops: int, embedding: int):
        super().__init__()
        self.down = nn.Linear(width, messages)
        self.along = FoldedTAGConv(messages, width, hops)
        self.against = FoldedTAGConv(messages, width, hops)
        self.everyone = nn.Linear(messages, width, bias=False)
        self.own = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.film = FiLM(embedding, width)

    def forward(self, h: Tensor, embedding: Tensor, adjacency: Adjacency) -> Tensor:
        m = self.down(h)
        along = self.along.powers(m, adjacency)
        against = self.against.powers(m, adjacency.reversed)
        weight = torch.cat([self.own.weight, self.along.weight, self.against.weight], 1)
        y = nn.functional.linear(torch.cat([h, *along, *against], -1), weight, self.own.bias)
        y = y + self.everyone(m.mean(0))
        out: Tensor = h + self.film(nn.functional.silu(self.norm(y)), embedding)
        return out
