"""Training and validation instances by environment id."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium as gym

from pdi_gym.problem import Problem
from pdi_gym.validation import suggest


def load_instances(env_id: str, split: str, count: int, **kwargs: Any) -> list[Problem]:
    """The first `count` instances of a split; an environment without splits has its one problem."""
    import pdi_gym.envs  # noqa: F401  (registers the ids)

    if env_id not in gym.registry:
        ours = [name for name in gym.registry if str(gym.registry[name].entry_point).startswith("pdi_gym")]
        raise ValueError(
            f"unknown environment {env_id!r}{suggest(env_id, ours)}; there are {', '.join(ours)}"
        )
    entry = gym.envs.registration.load_env_creator(str(gym.registry[env_id].entry_point))
    if "split" in inspect.signature(entry).parameters:
        kwargs["split"] = split
    env: Any = gym.make(env_id, **kwargs).unwrapped
    if not hasattr(env, "make_problem"):
        raise ValueError(f"{env_id} is not an environment of this package: it has no instances to train on")
    return [env.make_problem(i) for i in range(min(count, env.n_instances))]
