"""Primal-dual inference with better dynamics: falling temperature and dual steps with momentum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pdi_gym.agents.pdi import DiffusionAgent
from pdi_gym.inference import dual_rule, monte_carlo_score
from pdi_gym.options import AdaptiveOptions
from pdi_gym.problem import Problem
from pdi_gym.schedules import Schedule
from pdi_gym.scores import Estimate, MonteCarloScore, ScoreField


@dataclass(frozen=True)
class AnnealedScore:
    """A Monte-Carlo score whose temperature falls geometrically from `heat`·β to `cool`·β."""

    score: MonteCarloScore
    heat: float
    cool: float

    def at(self, tau: int) -> MonteCarloScore:
        """The score field at the temperature of time τ."""
        share = tau / self.score.schedule.T
        return replace(self.score, beta=self.score.beta * self.cool * (self.heat / self.cool) ** share)

    def __call__(
        self, z: Tensor, tau: int, lam: Tensor, xi: Tensor | None, generator: torch.Generator
    ) -> Estimate:
        return self.at(tau)(z, tau, lam, xi, generator)


class Adaptive(DiffusionAgent):
    """Algorithm 2 that starts hot and ends cold, with heavy-ball dual steps towards a margin.

    The cold end gives better decisions; momentum lets the multipliers of the worst served rise in
    time for it; the margin pays back what the cold end takes from the constraints.
    """

    name = "pdi-adaptive"
    summary = "primal-dual inference with falling temperature and dual momentum"
    options_type = AdaptiveOptions

    def _score(self, problem: Problem, options: Any, schedule: Schedule) -> ScoreField:
        return AnnealedScore(monte_carlo_score(problem, options, schedule), options.heat, options.cool)

    def _variant(
        self, problem: Problem, options: Any, schedule: Schedule, score: ScoreField
    ) -> dict[str, Any]:
        return {"duals": replace(dual_rule(options, schedule), momentum=options.momentum)}
