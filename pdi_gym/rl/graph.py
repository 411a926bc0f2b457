"""Graph observations, features and policies for Stable-Baselines3, which knows no graph spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import MultiInputActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from torch import Tensor, nn

GRAPH_KEYS = ("nodes", "edge_index", "edge_weight")


class GraphObservation(VecEnvWrapper):
    """Puts `problem.graph` into dict observations, in place of `features`, as arrays of fixed size.

    `nodes` (N, F), `edge_index` (2, E) from source to target, `edge_weight` (E,). Wants
    observation="dict" and problems that have graphs of one size, as all networks of N users do.
    """

    def __init__(self, venv: VecEnv):
        space = venv.observation_space
        (problem,) = venv.get_attr("problem", indices=[0])
        if not isinstance(space, spaces.Dict) or problem.graph is None:
            raise ValueError(
                f'GraphObservation needs observation="dict" and a problem with a graph, got {space} of '
                f"{type(problem).__name__}"
            )
        self._graphs = _arrays(problem.graph, venv.num_envs)
        self._instances: list[str | None] = [None] * venv.num_envs
        n = self._graphs["nodes"].shape[1]
        parts = {k: v for k, v in space.spaces.items() if k != "features"}
        shapes = {k: v.shape[1:] for k, v in self._graphs.items()}
        parts["nodes"] = spaces.Box(-np.inf, np.inf, shapes["nodes"], np.float32)
        parts["edge_index"] = spaces.Box(0, n - 1, shapes["edge_index"], np.int64)
        parts["edge_weight"] = spaces.Box(-np.inf, np.inf, shapes["edge_weight"], np.float32)
        super().__init__(venv, spaces.Dict(parts))

    def reset(self) -> Any:
        observation: Any = self.venv.reset()
        self._follow(range(self.num_envs))
        return self._with(observation, {k: v.copy() for k, v in self._graphs.items()})

    def step_wait(self) -> Any:
        observation: Any
        observation, rewards, dones, infos = self.venv.step_wait()
        if dones.any():
            ended = np.flatnonzero(dones)
            for i in ended:
                last = infos[i]["terminal_observation"]
                own = {k: v[i].copy() for k, v in self._graphs.items()}
                infos[i]["terminal_observation"] = self._with(last, own)
            self._follow(ended)
        graphs = {k: v.copy() for k, v in self._graphs.items()}
        return self._with(observation, graphs), rewards, dones, infos

    def _follow(self, rows: Any) -> None:
        instances = self.venv.get_attr("instance_token")
        new = [i for i in rows if instances[i] != self._instances[i]]
        for i, problem in zip(new, self.venv.get_attr("problem", indices=new) if new else [], strict=True):
            self._instances[i] = instances[i]
            for key, value in _arrays(problem.graph, 1).items():
                self._graphs[key][i] = value[0]

    @staticmethod
    def _with(observation: dict[str, np.ndarray], graphs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {k: v for k, v in observation.items() if k != "features"} | graphs


def _arrays(graph: Any, rows: int) -> dict[str, np.ndarray]:
    one = {
        "nodes": graph.node_features.numpy().astype(np.float32),
        "edge_index": graph.edge_index.numpy().astype(np.int64),
        "edge_weight": graph.edge_weight.numpy().astype(np.float32),
    }
    return {k: np.repeat(v[None], rows, 0) for k, v in one.items()}


class GraphExtractor(BaseFeaturesExtractor):
    """Features of every node from its own inputs and its neighbours', both ways along the edges.

    h ← relu(W h + V A h + U Aᵀ h) for `layers` layers, A the weighted adjacency: harm travels along
    the edges and its remedy against them. A node's inputs are its features and, of every vector in
    the observation with at least N entries (`residuals`, `duals`), the entry of its own; what is
    left over (`time`, constraints on the whole) goes to all nodes. Output (B, N·channels), node by
    node: permuting the nodes permutes the blocks.
    """

    def __init__(self, observation_space: spaces.Dict, channels: int = 32, layers: int = 2):
        parts = observation_space.spaces
        if not set(GRAPH_KEYS) <= set(parts):
            raise ValueError(
                f"observation must have {', '.join(GRAPH_KEYS)}, got {', '.join(parts)}: wrap the "
                "environment in pdi_gym.sb3.GraphObservation"
            )
        shape = parts["nodes"].shape
        assert shape is not None
        self.n_nodes, width = shape
        self.vectors = sorted(set(parts) - set(GRAPH_KEYS))
        for key in self.vectors:
            length = int(np.prod(parts[key].shape or ()))
            own = length >= self.n_nodes
            width += own + (length - self.n_nodes if own else length)
        super().__init__(observation_space, self.n_nodes * channels)
        self.channels = channels
        self.first = nn.Linear(width, channels)
        self.mix = nn.ModuleList(nn.Linear(3 * channels, channels) for _ in range(layers))

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        nodes = observations["nodes"]
        batch, n = len(nodes), self.n_nodes
        inputs = [nodes]
        for key in self.vectors:
            value = observations[key].flatten(1)
            shared = value
            if value.shape[1] >= n:
                inputs.append(value[:, :n, None])
                shared = value[:, n:]
            inputs.append(shared[:, None].expand(batch, n, -1))
        source, target = observations["edge_index"].long().unbind(1)
        # Dense: a product with N×N is faster than scattering messages, and lives for one call only.
        adjacency = nodes.new_zeros(batch, n * n)
        adjacency.scatter_add_(1, target * n + source, observations["edge_weight"])
        adjacency = adjacency.view(batch, n, n)
        h = torch.relu(self.first(torch.cat(inputs, -1)))
        for layer in self.mix:
            h = h + torch.relu(layer(torch.cat([h, adjacency @ h, adjacency.mT @ h], -1)))
        return h.flatten(1)


class _NodeHeads(nn.Module):
    """In the place of SB3's `MlpExtractor`: nodes for the actor, their mean for the critic."""

    def __init__(self, n_nodes: int, channels: int):
        super().__init__()
        self.n_nodes, self.latent_dim_pi, self.latent_dim_vf = n_nodes, n_nodes * channels, channels

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        return features

    def forward_critic(self, features: Tensor) -> Tensor:
        return features.view(len(features), self.n_nodes, -1).mean(1)


class _NodeAction(nn.Module):
    """The mean action of every node by one map for all: (B, N·channels) → (B, N)."""

    def __init__(self, n_nodes: int, channels: int):
        super().__init__()
        self.n_nodes = n_nodes
        self.map = nn.Linear(channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        action: Tensor = self.map(features.view(len(features), self.n_nodes, -1))
        return action.squeeze(-1)


class GraphPolicy(MultiInputActorCriticPolicy):
    """An actor and a critic that treat all nodes alike: one action per node, one value for all.

    Permuting the nodes permutes the actions and leaves the value: what is learnt about one user
    serves every other, on every network. Only for problems with a decision per node.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{"features_extractor_class": GraphExtractor, **kwargs})

    def _build_mlp_extractor(self) -> None:
        extractor = self.features_extractor
        assert isinstance(extractor, GraphExtractor) and isinstance(self.action_space, spaces.Box)
        if self.action_space.shape != (extractor.n_nodes,):
            raise ValueError(
                f"GraphPolicy needs one action per node, got {self.action_space.shape} for "
                f"{extractor.n_nodes} nodes: use MultiInputPolicy with GraphExtractor"
            )
        self.mlp_extractor: Any = _NodeHeads(extractor.n_nodes, extractor.channels)

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        extractor = self.features_extractor
        assert isinstance(extractor, GraphExtractor)
        self.action_net = _NodeAction(extractor.n_nodes, extractor.channels)
        self.init_weights(self.action_net.map, gain=0.01)
        # One spread for all nodes, too: it says nothing of any of them.
        self.log_std = nn.Parameter(torch.full((1,), self.log_std_init))
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]
