"""A network that sees how a decision fares at every block: one body for problems of any size.

Coordinates share all weights and learn of each other through `Problem.features` alone, so the network
is equivariant under permutations and as cheap as a few gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pdi_gym.networks.layers import NoiseEmbedding

ACTIVATIONS = {"silu": nn.functional.silu, "relu": nn.functional.relu}
Observe = Callable[[Tensor], Tensor]
"""Places in the box p (S, N) → features (k, S, N)."""


class FeatureNetwork(nn.Module):
    """An unrolled descent: blocks that look at p = sigmoid(w·h + ℓ) and correct h.

    h ← h + W₂ act(FiLM_u(W₁ [h; features(p)])) on channels first, (C, S·N), with ℓ the logit of the
    linear estimate. At first p is that estimate, as w is zero.
    """

    def __init__(
        self, columns: tuple[int, int, int], features: int, width: int, hidden: int, depth: int, act: str
    ):
        """`columns` counts the numbers per coordinate and sample, per coordinate, and per sample."""
        super().__init__()
        each, static, sample = columns
        self.act = ACTIVATIONS[act]
        self._folds: tuple[Any, tuple[Tensor, Tensor]] | None = None
        self.embed = NoiseEmbedding(hidden)
        self.film = nn.Linear(hidden, 2 * depth * hidden)
        nn.init.zeros_(self.film.weight), nn.init.zeros_(self.film.bias)
        self.each = nn.Linear(each + sample, width)
        self.static = nn.Linear(static, width, bias=False) if static else None
        self.gates = nn.Parameter(torch.zeros(depth + 1, width))
        self.into, self.into_bias = _linear(depth, hidden, width + features)
        self.out, self.out_bias = _linear(depth, width, hidden)

    def forward(
        self, each: Tensor, static: Tensor | None, sample: Tensor, start: Tensor, u: Tensor, observe: Observe
    ) -> Tensor:
        """Places in the box (S, N) in (0, 1).

        each (k, S, N), static (N, F) or None, sample (l, S), start (S, N) the estimate to improve,
        and noise levels u (S,), or (1,) where all samples share it.
        """
        _, s, n = each.shape
        h = self._start(each, static, sample)
        logit = torch.logit(start.clamp(0.02, 0.98)).reshape(-1)
        if len(u) == 1 and not torch.is_grad_enabled():
            h = self._folded(h, logit, self._fold(u), (s, n), observe)
        else:
            h = self._blocks(h, logit, self._film(u), (s, n), observe)
        return _place(h, self.gates[-1], logit).view(s, n)

    def _start(self, each: Tensor, static: Tensor | None, sample: Tensor) -> Tensor:
        k, s, n = each.shape
        weight = self.each.weight
        h = torch.addmm(self.each.bias.unsqueeze(1), weight[:, :k], each.reshape(k, -1)).view(-1, s, n)
        shift = (weight[:, k:] @ sample).unsqueeze(2)
        if self.static is not None and static is not None:
            shift = shift + self.static(static).mT.unsqueeze(1)
        return (h + shift).reshape(-1, s * n)

    def _film(self, u: Tensor) -> Tensor:
        """Scales and shifts (depth, 2, hidden, S, 1)."""
        film: Tensor = self.film(self.embed(u)).view(len(u), len(self.into), 2, -1)
        return film.permute(1, 2, 3, 0).contiguous().unsqueeze(-1)

    def _fold(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """W₁ and its bias with FiLM in them, kept until the noise level or the weights change."""
        versions = tuple(p._version for p in self.parameters())
        key = (float(u), id(self.into), *versions)
        if self._folds is None or self._folds[0] != key:
            scale, shift = self._film(u)[..., 0, 0].unbind(1)
            scale = 1 + scale
            weights = self.into * scale.unsqueeze(-1)
            biases = torch.addcmul(shift, self.into_bias, scale).unsqueeze(-1)
            self._folds = key, (weights, biases)
        return self._folds[1]

    def _blocks(
        self, h: Tensor, logit: Tensor, film: Tensor, shape: tuple[int, int], observe: Observe
    ) -> Tensor:
        for i, gate in enumerate(self.gates[:-1]):
            seen = observe(_place(h, gate, logit).view(shape)).reshape(-1, h.shape[1])
            y = torch.addmm(self.into_bias[i].unsqueeze(1), self.into[i], torch.cat([h, seen]))
            scale, shift = film[i]
            y = self.act(torch.addcmul(shift, y.view(-1, *shape), 1 + scale)).reshape(len(y), -1)
            h = h + torch.addmm(self.out_bias[i].unsqueeze(1), self.out[i], y)
        return h

    def _folded(
        self,
        h: Tensor,
        logit: Tensor,
        folded: tuple[Tensor, Tensor],
        shape: tuple[int, int],
        observe: Observe,
    ) -> Tensor:
        """The same blocks where all samples share the noise level, with h in place."""
        weights, biases = folded
        width = len(h)
        both = torch.empty(self.into.shape[2], h.shape[1])
        both[:width] = h
        h, seen = both[:width], both[width:]
        y = torch.empty(self.into.shape[1], h.shape[1])
        inplace = self.act is nn.functional.relu
        for i, gate in enumerate(self.gates[:-1]):
            seen.copy_(observe(_place(h, gate, logit).view(shape)).reshape(-1, h.shape[1]))
            torch.addmm(biases[i], weights[i], both, out=y)
            nn.functional.relu_(y) if inplace else nn.functional.silu(y, inplace=True)
            h.addmm_(self.out[i], y).add_(self.out_bias[i].unsqueeze(1))
        return h


def _place(h: Tensor, gate: Tensor, logit: Tensor) -> Tensor:
    return torch.addmv(logit, h.mT, gate).sigmoid()


def _linear(depth: int, rows: int, columns: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Weights (depth, rows, columns) and biases of `depth` linear maps, drawn as torch draws its own."""
    size = 1 / math.sqrt(columns)
    weight = torch.empty(depth, rows, columns).uniform_(-size, size)
    return nn.Parameter(weight), nn.Parameter(torch.empty(depth, rows).uniform_(-size, size))
