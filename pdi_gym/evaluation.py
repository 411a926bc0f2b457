"""Judging time-sharing policies over ergodic horizons."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pdi_gym import seeding
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.validation import check_int


def evaluate(
    policy: TimeSharingPolicy, problem: Problem, horizon: int = 500, trials: int = 50, seed: int = 0
) -> dict[str, float]:
    """What a policy achieves on average.

    Always `objective` (E f0, minimised), `mean_violation` (mean positive part of the average
    residuals) and `feasible` (fraction of constraints within the problem's tolerance), then the
    problem's own metrics. A problem with exact expectations is averaged over the atoms, weighted.
    Otherwise `trials` horizons are played over one path of realisations, each slot an atom drawn by
    its weight: averages over slots and trials decide, and `feasible_single` is the mean feasible
    fraction of *one* horizon, what a user lives through.
    """
    check_int("horizon", horizon, 1), check_int("trials", trials, 1)
    x = torch.as_tensor(policy.actions)
    if x.shape[1:] != (problem.latent_dim,):
        raise ValueError(f"policy.actions must have {problem.latent_dim} columns, got {x.shape[1]}")
    weights = torch.as_tensor(policy.weights, dtype=torch.float64)
    with torch.no_grad():
        if problem.exact:
            objective = float(weights @ problem.objective(x).double())
            residuals = (weights @ problem.constraints(x).double()).unsqueeze(0)
        else:
            objective, residuals = _play(policy, problem, horizon, trials, seed)
        average = residuals.mean(0)
        metrics = {
            "objective": objective,
            "mean_violation": float(average.clamp(min=0).mean()),
            "feasible": float((average <= problem.tolerance).double().mean()),
        }
        if not problem.exact:
            metrics["feasible_single"] = float((residuals <= problem.tolerance).double().mean())
        return metrics | problem.metrics(x, weights, residuals)


def _play(
    policy: TimeSharingPolicy, problem: Problem, horizon: int, trials: int, seed: int
) -> tuple[float, Tensor]:
    """Average objective, and average residuals (trials, m) of horizons over one path of slots."""
    atoms = np.stack([policy.schedule(horizon, seeding.rng(seed, seeding.TRIALS, k)) for k in range(trials)])
    actions = torch.as_tensor(policy.actions)
    objective = torch.zeros((), dtype=torch.float64)
    residuals = torch.zeros(trials, problem.n_constraints, dtype=torch.float64)
    slot = 0
    for chunk in problem.path(horizon, seeding.generator(seed, seeding.SLOTS)):
        if chunk is None:
            raise ValueError(
                f"{type(problem).__name__}.exact is False but its draw gives None: set exact = True"
            )
        for xi in chunk.split(1):
            x = actions[atoms[:, slot]]
            objective += problem.objective(x, xi).double().mean()
            residuals += problem.constraints(x, xi).double()
            slot += 1
    return float(objective / horizon), residuals / horizon
