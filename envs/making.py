"""Environments and their instances by id."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium as gym

from pdi_gym.problem import Problem
from pdi_gym.validation import suggest


def make_env(env_id: str, kwargs: dict[str, Any]) -> Any:
    """The bare environment of that id, with the close matches named when there is none."""
    env: Any = gym.make(_known(env_id), disable_env_checker=True, **kwargs).unwrapped
    if not hasattr(env, "make_problem"):
        raise ValueError(f"{env_id} is not an environment of this package: it has no problem to solve")
    return env


def load_instances(env_id: str, split: str, count: int, **kwargs: Any) -> list[Problem]:
    """The first `count` instances of a split; an environment without splits has its one problem."""
    entry = gym.envs.registration.load_env_creator(str(gym.registry[_known(env_id)].entry_point))
    if "split" in inspect.signature(entry).parameters:
        kwargs["split"] = split
    env = make_env(env_id, kwargs)
    return [env.make_problem(i) for i in range(min(count, env.n_instances))]


def _known(env_id: str) -> str:
    if env_id not in gym.registry:
        known = [i for i, s in gym.registry.items() if str(s.entry_point).startswith("pdi_gym.")]
        raise ValueError(
            f"unknown environment {env_id!r}{suggest(env_id, known)}; there are {', '.join(known)}"
        )
    return env_id
