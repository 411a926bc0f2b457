"""What a graph network sees of a problem."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Graph:
    """Node features (N, F), directed edges (2, E) as rows of sources and targets, weights (E,)."""

    node_features: Tensor
    edge_index: Tensor
    edge_weight: Tensor
