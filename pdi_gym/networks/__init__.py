"""Networks that estimate the clean sample behind a noisy one, given multipliers and the problem's graph."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pdi_gym.networks.features import FeatureNetwork
from pdi_gym.networks.mlp import FiLMMLP
from pdi_gym.problem import Problem
from pdi_gym.validation import check_choice, check_int, check_number, settle

__all__ = ["Denoiser", "NetworkConfig", "columns_for"]

BODIES = ("mlp", "gnn", "ugnn", "features")
_MOST = {
    "width": 4096,
    "depth": 32,
    "hidden": 4096,
    "features": 4096,
    "messages": 4096,
    "hops": 8,
    "levels": 6,
    "inputs": 1_000_000,
    "n_duals": 1_000_000,
}
"""Bounds far beyond any use: a damaged card must not ask for all memory."""


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """All that is needed to build a network again."""

    body: str = "gnn"
    """mlp (one size of problem), gnn or ugnn (any size of graph), features (any size of problem)."""
    width: int = 48
    """Channels of a hidden layer."""
    depth: int = 5
    """Residual blocks; for ugnn, on each side of each level."""
    hidden: int = 32
    """Channels inside a block of a features network."""
    activation: str = "silu"
    """Of a features network: silu, or relu, which is faster."""
    features: int = 4
    """Numbers per coordinate that the problem gives a features network."""
    proximal: bool = False
    """Whether a features network has the weight b of the proximal term as an input."""
    messages: int = 16
    """Channels that travel along edges."""
    hops: int = 2
    """Powers of the adjacency matrix in a block."""
    levels: int = 3
    """Resolutions of a ugnn."""
    dual: bool = True
    """Whether the multipliers are an input."""
    inputs: int = 0
    """Latent coordinates of an mlp, node features of a graph network."""
    n_duals: int = 0
    """Multipliers of an mlp; graph networks take one per node."""
    data_scale: float = 1.0
    """Standard deviation of clean samples, for scaling inputs and outputs."""
    predicts: str = "clean"
    """What the output is closest to: the clean sample, or the noise (for scores that are sparse in z)."""
    alpha_min: float = 0.0
    """Floor of α in clean estimates, for networks that predict the noise."""
    simplex: bool = False
    """Whether decisions are softmax(z): the network then also gets their weights."""

    def __post_init__(self) -> None:
        check_choice("body", self.body, BODIES)
        check_choice("predicts", self.predicts, ("clean", "noise"))
        check_choice("activation", self.activation, ("silu", "relu"))
        check_number("alpha_min", self.alpha_min, 0)
        zero = ("n_duals", "inputs") if self.body == "features" else ("n_duals",)
        for name, most in _MOST.items():
            check_int(name, getattr(self, name), 0 if name in zero else 1, most)
        check_number("data_scale", self.data_scale, 0, above=True)
        settle(self)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the network's weights, found without memory for them."""
        with torch.device("meta"):
            return {name: tuple(tensor.shape) for name, tensor in self.build().state_dict().items()}

    def build(self) -> Denoiser:
        if self.body == "mlp":
            others = self.dual * self.n_duals + 2 * self.simplex * self.inputs
            return Denoiser(self, FiLMMLP(self.inputs, others, self.width, self.depth))
        if self.body == "features":
            sizes = (2 + self.dual, self.inputs, 1 + self.proximal), self.features, self.width, self.hidden
            return Denoiser(self, FeatureNetwork(*sizes, self.depth, self.activation))
        columns = 1 + self.dual + 2 * self.simplex + self.inputs
        if self.body == "gnn":
            from pdi_gym.networks.gnn import GraphNetwork

            graph = GraphNetwork(columns, self.width, self.depth, self.messages, self.hops)
            return Denoiser(self, graph)
        from pdi_gym.networks.ugnn import GraphUNet

        return Denoiser(
            self, GraphUNet(columns, self.width, self.depth, self.messages, self.hops, self.levels)
        )

    def check(self, problem: Problem) -> None:
        """Refuse a problem that this network cannot take."""
        name, graph = type(problem).__name__, problem.graph
        if self.body == "mlp":
            have, want = (problem.latent_dim, problem.n_constraints), (self.inputs, self.n_duals)
            if have != want:
                raise ValueError(
                    f"the network is for {want[0]} coordinates and {want[1]} constraints, {name} has "
                    f"{have[0]} and {have[1]}: train one for it with `pdi-gym train`"
                )
            return
        if self.body == "features":
            found = _columns(problem)
            if found != (self.inputs, self.features) or (self.dual and not _dual_per_node(problem)):
                raise ValueError(
                    f"the network is for {self.inputs} node features and {self.features} features of a "
                    f"decision, {name} has {found[0]} and {found[1]}: train one for it with `pdi-gym train`"
                )
            return
        if graph is None:
            raise ValueError(f"a {self.body} needs a graph, {name} has none: use body='mlp'")
        if graph.node_features.shape[1] != self.inputs:
            raise ValueError(
                f"the network is for {self.inputs} node features, {name} has "
                f"{graph.node_features.shape[1]}: train one for it with `pdi-gym train`"
            )
        if self.dual and problem.n_constraints != problem.latent_dim:
            raise ValueError(
                f"a {self.body} takes one multiplier per node, {name} has {problem.n_constraints} "
                f"constraints on {problem.latent_dim} nodes: use body='mlp'"
            )


def _columns(problem: Problem) -> tuple[int, int]:
    """How many node features a problem has, and features of a decision."""
    x = problem.decode(problem.project(torch.zeros(1, problem.latent_dim)))
    decision = problem.features(x, torch.zeros(1, problem.n_constraints)).shape[-1]
    return 0 if problem.graph is None else problem.graph.node_features.shape[1], decision


def _dual_per_node(problem: Problem) -> bool:
    return problem.graph is not None and problem.n_constraints == problem.latent_dim


def columns_for(problem: Problem) -> dict[str, Any]:
    """The settings of a features network that follow from the problem."""
    inputs, features = _columns(problem)
    return {"inputs": inputs, "features": features, "dual": _dual_per_node(problem)}


class Denoiser(nn.Module):
    """Estimates the clean sample: D = c_skip z + c_out F(c_in z, u, log1p λ, graph).

    The network proper, F, meets inputs and targets of unit size at every noise level. If it
    predicts the noise, F = −ε and D = (z − σ ε)/max(α, α_min); if it predicts the clean sample, c_skip
    and c_out are those that leave least to F, and errors at high noise are not divided by α. The
    noise level enters as the angle u = (2/π) atan(σ/α), so that one network serves every schedule.
    """

    def __init__(self, config: NetworkConfig, body: nn.Module):
        super().__init__()
        self.config, self.body = config, body

    def scales(self, alpha: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """c_in, c_skip, c_out for samples of variance data_scale² noised to α, σ."""
        variance = self.config.data_scale**2
        total = variance * alpha.square() + sigma.square()
        if self.config.predicts == "noise":
            divisor = alpha.clamp(min=self.config.alpha_min)
            return total.rsqrt(), 1 / divisor, sigma / divisor
        return total.rsqrt(), variance * alpha / total, (variance / total).sqrt() * sigma

    def forward(
        self,
        z: Tensor,
        alpha: Tensor,
        sigma: Tensor,
        lam: Tensor | None,
        problem: Problem,
        b: Tensor | None = None,
    ) -> Tensor:
        """Clean estimates (S, d) of z (S, d) at noise levels α, σ (S, 1) and multipliers (S, m).

        Noise levels (1, 1) are shared by all samples. Networks of proximal steps also take the weight b
        of the proximal term, (S, 1) or (1, 1).
        """
        c_in, c_skip, c_out = self.scales(alpha, sigma)
        u = torch.atan2(sigma, alpha).squeeze(-1) * (2 / math.pi)
        if self.config.body == "features":
            return self._decide(c_in * z, c_skip * z, u, lam, problem, b)
        duals = torch.log1p(lam) if self.config.dual and lam is not None else None
        columns = [c_in * z] + ([] if duals is None else [duals])
        if self.config.simplex:
            log_weights = torch.log_softmax(z, -1)
            columns += [log_weights / 10, (log_weights / 2).exp()]
        out: Tensor = c_skip * z + c_out * self.body(columns, u, problem.graph)
        return out

    def _decide(
        self, scaled: Tensor, start: Tensor, u: Tensor, lam: Tensor | None, problem: Problem, b: Tensor | None
    ) -> Tensor:
        """A features network answers in the box ±action_scale, starting from the linear estimate."""
        if lam is None:
            raise ValueError("a features network needs multipliers, got None: use body='gnn' or 'mlp'")
        width = 2 * problem.action_scale
        place = start / width + 0.5
        each = [scaled, place]
        if self.config.dual:
            each.append((lam / problem.units.dual).log1p().mul(0.4).expand_as(scaled))
        sample = [scaled.clamp(-1, 1).mean(-1)]
        if self.config.proximal and b is not None:
            sample.append(0.5 * b.log().squeeze(-1).expand(len(scaled)))
        static = None if problem.graph is None else problem.graph.node_features

        def observe(p: Tensor) -> Tensor:
            x = problem.decode(width * (p - 0.5))
            return problem.features(x, lam).movedim(-1, 0)

        p: Tensor = self.body(torch.stack(each), static, torch.stack(sample), place, u, observe)
        return width * (p - 0.5)
