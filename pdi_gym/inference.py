"""Primal-dual inference as a set of options describes it: what agents and training share."""

from __future__ import annotations

import torch
from torch import Tensor

from pdi_gym.options import DenoisingOptions, DiffusionOptions
from pdi_gym.problem import Problem
from pdi_gym.samplers import Callback, Correction, DualUpdate, Samples, pdi
from pdi_gym.schedules import Schedule, make_schedule
from pdi_gym.scores import ExactScore, HasTiltedLaw, MonteCarloScore, ScoreField

_NO_DUALS = DiffusionOptions(dual_step=0.0, dual_init=0.0)


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


def infer(
    problem: Problem,
    score: ScoreField,
    options: DenoisingOptions,
    *,
    n: int,
    groups: int,
    generator: torch.Generator,
    callback: Callback | None = None,
    dual_step: float | None = None,
    dual_init: float | Tensor | None = None,
    correct: Correction | None = None,
    dual_update: DualUpdate | None = None,
) -> Samples:
    """Algorithm 2 with everything but the score and the counts taken from the options.

    Options without multipliers leave λ at zero.
    """
    schedule = make_schedule(options.schedule, options.T)
    duals = options if isinstance(options, DiffusionOptions) else _NO_DUALS
    eta = duals.dual_step if dual_step is None else dual_step
    ramp = schedule.alpha.double() ** duals.dual_ramp
    return pdi(
        problem,
        score,
        schedule,
        n=n,
        generator=generator,
        groups=groups,
        dual_step=lambda t: eta * float(ramp[schedule.T - t]),
        dual_init=duals.dual_init if dual_init is None else dual_init,
        dual_max=duals.dual_max,
        dual_decay=duals.dual_decay,
        n_draws=options.n_draws,
        kernel=options.kernel,
        alpha_min=options.alpha_min,
        tweedie_at=duals.tweedie,
        correct=correct,
        dual_update=dual_update,
        callback=callback,
    )


def divisor_at_most(n: int, most: int) -> int:
    """The largest divisor of n that is at most `most`: how preset groups adapt to any n."""
    return max(g for g in range(1, min(n, most) + 1) if n % g == 0)
