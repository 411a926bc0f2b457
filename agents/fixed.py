"""Policies that need no sampler: the yardsticks of every table."""

from __future__ import annotations

from typing import Any

import torch

from pdi_gym.agents.base import Agent, Observer
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem


class Random(Agent):
    """Decisions of uniformly random actions: what an untrained agent plays."""

    name = "random"
    summary = "uniformly random actions"

    def _sample(
        self, problem: Problem, options: Any, n: int, generator: torch.Generator, callback: Observer | None
    ) -> TimeSharingPolicy:
        action = 2 * torch.rand((n, problem.latent_dim), generator=generator) - 1
        return TimeSharingPolicy(problem.to_decision(action).numpy())
