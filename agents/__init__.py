"""Agents that answer a problem with a time-sharing policy."""

from __future__ import annotations

from typing import Any

from pdi_gym.agents.adaptive import Adaptive
from pdi_gym.agents.base import Agent
from pdi_gym.agents.column_generation import ColumnGeneration
from pdi_gym.agents.convex import Markowitz, RiskBudget
from pdi_gym.agents.dps import DPS
from pdi_gym.agents.dual_training import DualTraining, DualTrainingPlus
from pdi_gym.agents.expert import Expert
from pdi_gym.agents.fixed import EqualWeight, FullPower, Random
from pdi_gym.agents.learned import PDINet, PDINetWarm, Supervised
from pdi_gym.agents.pdi import PDI, FrozenLast, FrozenMean, FrozenTail, Unconstrained
from pdi_gym.agents.pdl import PDL
from pdi_gym.agents.pdm import PDM
from pdi_gym.agents.ppo import PPO
from pdi_gym.agents.prox import Prox
from pdi_gym.problem import Problem
from pdi_gym.validation import suggest

__all__ = ["Agent", "list_agents", "make_agent"]

AGENTS: dict[str, type[Agent]] = {
    cls.name: cls
    for cls in (
        PDI,
        Unconstrained,
        FrozenLast,
        FrozenMean,
        FrozenTail,
        PDL,
        PDM,
        DPS,
        Expert,
        FullPower,
        EqualWeight,
        Random,
        Markowitz,
        RiskBudget,
        ColumnGeneration,
        Adaptive,
        PDINet,
        PDINetWarm,
        DualTraining,
        DualTrainingPlus,
        Supervised,
        Prox,
        PPO,
    )
}


def list_agents(problem: Problem | None = None) -> list[str]:
    """All agent names, or those that can answer `problem` as installed.

    An agent that must be trained first is listed for a problem only if weights for it are shipped.
    """
    return [name for name, cls in AGENTS.items() if problem is None or cls.ready(problem)]


def make_agent(name: str, preset: str = "fast", **options: Any) -> Agent:
    """The agent of that name; options override the preset of whatever problem it will meet."""
    if name not in AGENTS:
        raise ValueError(f"unknown agent {name!r}{suggest(name, AGENTS)}; there are {', '.join(AGENTS)}")
    return AGENTS[name](preset=preset, **options)
