"""Policies that need no sampler: the yardsticks of every table."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pdi_gym.agents.base import Agent, Observer
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.problems.portfolio import Portfolio
from pdi_gym.problems.wireless import WirelessPower


class Random(Agent):
    """Decisions of uniformly random actions: what an untrained agent plays."""

    name = "random"
    summary = "uniformly random actions"
    aims_at_constraints = False

    def _sample(
        self, problem: Problem, options: Any, n: int, generator: torch.Generator, callback: Observer | None
    ) -> TimeSharingPolicy:
        action = 2 * torch.rand((n, problem.latent_dim), generator=generator) - 1
        return TimeSharingPolicy(problem.to_decision(action).numpy())


class EqualWeight(Agent):
    """The same share of every asset: the portfolio that needs no data."""

    name = "equal-weight"
    summary = "the same share of every asset"

    @classmethod
    def applies(cls, problem: Problem) -> bool:
        return isinstance(problem, Portfolio)

    def _sample(
        self, problem: Problem, options: Any, n: int, generator: torch.Generator, callback: Observer | None
    ) -> TimeSharingPolicy:
        share = np.full((n, problem.latent_dim), 1 / problem.latent_dim, dtype=np.float32)
        return TimeSharingPolicy(share)


class FullPower(Agent):
    """Every transmitter at P_max in every slot: what a network does without control."""

    name = "full-power"
    summary = "every transmitter at its largest power"

    @classmethod
    def applies(cls, problem: Problem) -> bool:
        return isinstance(problem, WirelessPower)

    def _sample(
        self, problem: Problem, options: Any, n: int, generator: torch.Generator, callback: Observer | None
    ) -> TimeSharingPolicy:
        return TimeSharingPolicy(problem.decode(torch.full((n, problem.latent_dim), problem.bound)).numpy())
