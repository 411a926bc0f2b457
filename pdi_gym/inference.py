"""Primal-dual inference as a set of options describes it: what agents and training share."""

from __future__ import annotations

import torch

from pdi_gym.duals import FROZEN_AT_ZERO, Ascent, DualRule
from pdi_gym.options import DenoisingOptions, DiffusionOptions
from pdi_gym.problem import Problem
from pdi_gym.samplers import Callback, Correction, Reverse, Samples, pdi
from pdi_gym.schedules import Schedule
from pdi_gym.scores import ExactScore, HasTiltedLaw, MonteCarloScore, ScoreField


def training_free_score(problem: Problem, options: DenoisingOptions, schedule: Schedule) -> ScoreField:
    """The Monte-Carlo score field, or the exact one if the options ask for it."""
    if options.score == "exact":
        if not isinstance(problem, HasTiltedLaw):
            raise ValueError(
                f"score='exact' needs a closed form, {type(problem).__name__} has none: use 'mc'"
            )
        return ExactScore(problem, schedule, options.beta)
    return monte_carlo_score(problem, options, schedule)


def monte_carlo_score(problem: Problem, options: DenoisingOptions, schedule: Schedule) -> MonteCarloScore:
    return MonteCarloScore(
        problem, schedule, options.beta, options.n_candidates, options.candidates, options.alpha_min
    )


def dual_rule(options: DenoisingOptions, schedule: Schedule) -> Ascent:
    """The ascent that the options describe; options without multipliers leave λ at zero."""
    if not isinstance(options, DiffusionOptions):
        return FROZEN_AT_ZERO
    step, ramp = options.dual_step, schedule.alpha.double() ** options.dual_ramp
    return Ascent(
        step=lambda t: step * float(ramp[schedule.T - t]),
        init=options.dual_init,
        most=options.dual_max,
        decay=options.dual_decay,
        margin=options.margin,
    )


def infer(
    problem: Problem,
    score: ScoreField,
    schedule: Schedule,
    options: DenoisingOptions,
    *,
    n: int,
    groups: int,
    generator: torch.Generator,
    duals: DualRule | None = None,
    correct: Correction | None = None,
    callback: Callback | None = None,
) -> Samples:
    """Algorithm 2 with everything but the score, the schedule and the counts taken from the options."""
    tweedie = options.tweedie if isinstance(options, DiffusionOptions) else "current"
    return pdi(
        problem,
        score,
        schedule,
        n=n,
        generator=generator,
        groups=groups,
        duals=dual_rule(options, schedule) if duals is None else duals,
        reverse=Reverse(options.kernel, options.alpha_min, options.n_draws, tweedie),
        correct=correct,
        callback=callback,
    )


def divisor_at_most(n: int, most: int) -> int:
    """The largest divisor of n that is at most `most`: how preset groups adapt to any n."""
    return max(g for g in range(1, min(n, most) + 1) if n % g == 0)
