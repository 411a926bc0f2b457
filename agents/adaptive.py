"""Primal-dual inference with better dynamics: falling temperature and dual steps with momentum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pdi_gym.agents.pdi import DiffusionAgent
from pdi_gym.options import AdaptiveOptions
from pdi_gym.problem import Problem
from pdi_gym.schedules import Schedule, make_schedule
from pdi_gym.scores import MonteCarloScore, ScoreField


@dataclass
class AnnealedScore:
    """A Monte-Carlo score whose temperature falls geometrically from `heat`·β to `cool`·β."""

    score: MonteCarloScore
    heat: float
    cool: float

    def __post_init__(self) -> None:
        self._beta = self.score.beta

    def __call__(
        self, z: Tensor, tau: int, lam: Tensor, xi: Tensor | None, generator: torch.Generator
    ) -> Tensor:
        self.score.beta = self._beta * self.cool * (self.heat / self.cool) ** (tau / self.score.schedule.T)
        return self.score(z, tau, lam, xi, generator)

    @property
    def effective_sample_size(self) -> float:
        return self.score.effective_sample_size


@dataclass
class MomentumAscent:
    """λ ← [λ + η_t v]₊ with v ← μ v + f + margin: heavy-ball ascent of the dual function."""

    options: AdaptiveOptions
    schedule: Schedule
    _velocity: Tensor | None = field(default=None, init=False)

    def __call__(self, lam: Tensor, residual: Tensor, t: int) -> Tensor:
        o = self.options
        push = residual + o.margin
        self._velocity = push if self._velocity is None else o.momentum * self._velocity + push
        eta = o.dual_step * float(self.schedule.alpha[self.schedule.T - t]) ** o.dual_ramp
        after: Tensor = (1 - o.dual_decay) * lam + eta * self._velocity
        return after.clamp(min=0, max=o.dual_max)


class Adaptive(DiffusionAgent):
    """Algorithm 2 that starts hot and ends cold, with heavy-ball dual steps towards a margin.

    The cold end gives better decisions; momentum lets the multipliers of the worst served rise in
    time for it; the margin pays back what the cold end takes from the constraints.
    """

    name = "pdi-adaptive"
    summary = "primal-dual inference with falling temperature and dual momentum"
    options_type = AdaptiveOptions

    def _score(self, problem: Problem, options: Any, schedule: Schedule) -> ScoreField:
        score = MonteCarloScore(
            problem, schedule, options.beta, options.n_candidates, options.candidates, options.alpha_min
        )
        return AnnealedScore(score, options.heat, options.cool)

    def _variant(self, problem: Problem, options: Any) -> dict[str, Any]:
        return {"dual_update": MomentumAscent(options, make_schedule(options.schedule, options.T))}
