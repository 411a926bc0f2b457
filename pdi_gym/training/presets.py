"""Sizes of networks and settings of their training, per agent and kind of problem.

`paper` has the paper's width and depth; `cpu`, the default, is what trains in a quarter to half an hour on
one core. The cards of the shipped weights tell how near its validation figures come.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pdi_gym import presets
from pdi_gym.networks import NetworkConfig, columns_for
from pdi_gym.problem import Problem
from pdi_gym.training.options import TrainingOptions
from pdi_gym.validation import check_choice, suggest

SIZES = ("cpu", "paper")

# The score in the logits is sparse, x_j (g_j − xᵀg): the noise is what a network can learn of it.
_SIMPLEX = {"predicts": "noise", "simplex": True}
_NETWORKS: dict[str, dict[str, dict[str, Any]]] = {
    "cpu": {
        "wireless": {"body": "gnn", "width": 32, "depth": 4, "messages": 16, "data_scale": 0.4},
        "portfolio": {"body": "gnn", "width": 32, "depth": 4, "messages": 16, "data_scale": 4.0, **_SIMPLEX},
        "mixture": {"body": "mlp", "width": 128, "depth": 4},
        "mixture-plane": {"body": "mlp", "width": 64, "depth": 3},
    },
    "paper": {
        "wireless": {"body": "gnn", "width": 256, "depth": 8, "messages": 256, "data_scale": 0.4},
        "portfolio": {
            "body": "gnn",
            "width": 256,
            "depth": 8,
            "messages": 256,
            "data_scale": 4.0,
            **_SIMPLEX,
        },
        "mixture": {"body": "mlp", "width": 512, "depth": 8},
        "mixture-plane": {"body": "mlp", "width": 512, "depth": 8},
    },
}
_UNETS = {
    "cpu": {"body": "ugnn", "width": 32, "depth": 1, "messages": 16, "levels": 3},
    "paper": {"body": "ugnn", "width": 64, "depth": 2, "messages": 64, "levels": 4},
}

_FEATURES = {"body": "features", "width": 16, "hidden": 32, "depth": 8, "data_scale": 0.4}
"""Of the networks that answer in a problem's natural units, whatever the problem."""

_WIRELESS = {"steps": 3000, "instances": 128, "seed_rollouts": 128, "capacity": 256}
_PORTFOLIO = {
    "steps": 1500, "instances": 48, "seed_rollouts": 48, "capacity": 96, "chains": 32, "groups": 1,
    "rollouts": 1, "prior_low": 0.5, "prior_high": 3.0, "noise_norm": 20.0, "validation_instances": 2,
    "validation_n": 128,
}  # fmt: skip
_MIXTURE = {
    "steps": 6000, "rate": 1e-3,
    "instances": 1, "seed_rollouts": 8, "capacity": 64, "problems": 8, "pairs": 64,
    "chains": 128, "groups": 1, "keep": 1000, "inner": 50, "rollouts": 1, "prior_low": 0.1,
    "prior_high": 19.9, "validation_instances": 1, "validation_n": 512,
}  # fmt: skip
_PROXIMAL = {
    "steps": 3000, "rate": 4e-3, "instances": 128, "seed_rollouts": 8, "capacity": 200,
    "validation_n": 100, "validate_every": 250,
}  # fmt: skip
_NATURAL = {"prior_low": 0.5, "prior_high": 2.0}
"""Of multipliers in natural units; those of many users, of whom few are hard to serve, reach further."""
# fmt: off
_TRAINING: dict[tuple[str, str], dict[str, Any]] = {
    ("", "wireless"): _WIRELESS,
    ("", "portfolio"): _PORTFOLIO,
    ("", "mixture"): _MIXTURE,
    ("", "mixture-plane"): _MIXTURE,
    # With some 27 dual steps of 1 per instance the multipliers can travel as far as in PDI's 50 steps.
    ("dt", "wireless"): {
        "instances": 64, "inner": 27, "rollouts": 16, "chains": 20, "groups": 1, "keep": 100,
        "capacity": 128, "dual_step": 1.0,
    },
    ("dt-plus", "wireless"): {
        "steps": 1500, "rate": 1e-3, "instances": 64, "inner": 27, "rollouts": 4, "chains": 20, "groups": 1,
        "keep": 100, "capacity": 128,
    },
    # Nineteen dual steps per instance: four of the sampler's each go about as far as its hundred.
    ("dt", "portfolio"): {"instances": 16, "chains": 16, "rollouts": 4, "capacity": 64},
    ("dt", "mixture"): {"dual_step": 1.0},
    ("dt", "mixture-plane"): {"dual_step": 1.0},
    ("st", "wireless"): {"steps": 4000, "expert_margin": 0.45},
    **{("pdi-prox", row): _PROXIMAL | _NATURAL for row in presets.KINDS},
    ("pdi-prox", "wireless"): _PROXIMAL,
}
# fmt: on
"""What differs from the defaults, for all agents ("") and for one."""

_DERIVED = {"alpha_min", "dual", "inputs", "n_duals", "features", "proximal"}
"""Settings of a network that follow from the agent, its sampler and the problem."""

_BLOCK = {"hidden", "activation"}
_FOREIGN = {
    "mlp": {"messages", "hops", "levels"} | _BLOCK,
    "gnn": {"levels"} | _BLOCK,
    "ugnn": _BLOCK,
    "features": {"messages", "hops", "levels", "predicts", "simplex"},
}
"""Settings that a network's body does not have."""


def setup(
    agent: str,
    problem: Problem,
    size: str,
    given: dict[str, Any],
    alpha_min: float,
    unread: frozenset[str] = frozenset(),
    proximal: bool = False,
) -> tuple[NetworkConfig, TrainingOptions]:
    """The network and the training of that agent on that problem, with the given values on top.

    A network of the noise has the sampler's floor `alpha_min`: the targets are clean estimates made with it.
    Options that the agent's training (`unread`) or the network's body would ignore are refused. A
    `proximal` network has one size and body.
    """
    check_choice("size", size, SIZES)
    row = presets.kind(problem)
    if proximal and size != "cpu":
        raise ValueError(f"size must be 'cpu' for {agent}, got {size!r}: set width, hidden or depth instead")
    network = dict(_NETWORKS[size].get(row, {"body": "mlp", "width": 128, "depth": 4}))
    if proximal:
        network = dict(_FEATURES)
    if agent == "st" and network["body"] == "gnn":
        network |= _UNETS[size]
    training = _TRAINING.get(("", row), {}) | _TRAINING.get((agent, row), {})
    ignored = _DERIVED | unread | _FOREIGN.get(str(given.get("body", network["body"])), set())
    if proximal:
        ignored = ignored | {"body"}
    names = [{f.name for f in fields(cls)} - ignored for cls in (NetworkConfig, TrainingOptions)]
    _check_names(agent, given, names[0] | names[1])
    network |= {k: v for k, v in given.items() if k in names[0]}
    training = training | {k: v for k, v in given.items() if k in names[1]}
    network["dual"] = agent.startswith("pdi-net")
    if network.get("predicts") == "noise":
        network["alpha_min"] = alpha_min
    if network["body"] == "features":
        network |= columns_for(problem) | {"proximal": proximal}
    elif network["body"] == "mlp":
        network |= {"inputs": problem.latent_dim, "n_duals": problem.n_constraints}
    else:
        network |= {"inputs": problem.graph.node_features.shape[1] if problem.graph is not None else 1}
    config = NetworkConfig(**network)
    config.check(problem)
    return config, TrainingOptions(**training)


def _check_names(agent: str, given: dict[str, Any], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise TypeError(
                f"training of {agent} has no option {name!r}{suggest(name, known)}; it takes "
                f"{', '.join(sorted(known))}"
            )
