"""What a graph network sees of a problem."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Graph:
    """Node features (N, F), directed edges (2, E) as rows of sources and targets, weights (E,)."""

    node_features: Tensor
    edge_index: Tensor
    edge_weight: Tensor

    @cached_property
    def adjacency(self) -> Adjacency:
        n = len(self.node_features)
        source, target = self.edge_index
        dense = torch.zeros(n, n).index_put((target, source), self.edge_weight, accumulate=True)
        return Adjacency.of(dense)


@dataclass(frozen=True, eq=False)
class Adjacency:
    """A sparse matrix (N, N) [target, source] and its transpose, both by rows."""

    forward: Tensor
    backward: Tensor

    @staticmethod
    def of(dense: Tensor) -> Adjacency:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support", category=UserWarning)
            return Adjacency(dense.to_sparse_csr(), dense.T.contiguous().to_sparse_csr())

    @property
    def reversed(self) -> Adjacency:
        return Adjacency(self.backward, self.forward)

    def to(self, device: torch.device) -> Adjacency:
        return Adjacency(self.forward.to(device), self.backward.to(device))

    def __matmul__(self, h: Tensor) -> Tensor:
        """A h for features (N, …): the samples of one problem are columns of one sparse product."""
        product: Tensor = _Product.apply(h.flatten(1), self.forward, self.backward)  # type: ignore[no-untyped-call]
        return product.view_as(h)


class _Product(torch.autograd.Function):
    """Sparse times dense, whose gradient is again a product by rows."""

    @staticmethod
    def forward(ctx, h, forward, backward):  # type: ignore[no-untyped-def]
        ctx.adjoint = backward
        return forward @ h

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return ctx.adjoint @ grad, None, None
