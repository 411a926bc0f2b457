"""Judging time-sharing policies over ergodic horizons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pdi_gym import seeding
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem, check_problem
from pdi_gym.processes import one_thread
from pdi_gym.validation import check_int


@one_thread()
def evaluate(
    policy: TimeSharingPolicy,
    problem: Problem,
    horizon: int = 500,
    trials: int = 50,
    paths: int = 10,
    seed: int = 0,
) -> dict[str, float]:
    """What a policy achieves on average.

    Its decisions must lie in the problem's set (`Problem.contains`): others are refused.

    Always `objective` (E f0, minimised), `mean_violation` (mean positive part of the average
    residuals), `feasible` (fraction of constraints within the problem's tolerance) and
    `worst_residual` (the largest average residual), then the problem's own metrics. A problem with
    exact expectations is averaged over the atoms, weighted.

    Otherwise `trials` horizons are played, each slot an atom drawn by its weight. They are spread
    evenly over `paths` independent paths of realisations (the paper plays all of them over one).
    Averages over slots, trials and paths decide; `feasible_single` is the mean feasible fraction of
    *one* horizon, what a user lives through. With two or more paths, `objective_se` and
    `worst_residual_se` are the standard errors of these two averages over the paths.
    """
    return summarise(policy, problem, averages(policy, problem, horizon, trials, paths, seed))


@dataclass(frozen=True)
class Averages:
    """What horizons of a policy gave: objectives (trials,) and residuals (trials, m), float64.

    Trial k was played over path k mod `paths`; exact expectations are one trial over no path.
    """

    objective: Tensor
    residuals: Tensor
    paths: int

    def by_path(self, values: Tensor) -> Tensor:
        """The mean of every path's trials: (trials, …) → (paths, …)."""
        return torch.stack([values[p :: self.paths].mean(0) for p in range(self.paths)])


@one_thread()
@torch.no_grad()
def averages(
    policy: TimeSharingPolicy,
    problem: Problem,
    horizon: int = 500,
    trials: int = 50,
    paths: int = 10,
    seed: int = 0,
) -> Averages:
    """The averages of every trial; of one, exact, where the problem's expectations are."""
    for name, value in (("horizon", horizon), ("trials", trials), ("paths", paths)):
        check_int(name, value, 1)
    check_problem(problem)
    policy.check(problem)
    if problem.exact:
        played = _expect(policy, problem)
    else:
        played = _play(policy, problem, horizon, trials, min(paths, trials), seed)
    if played.objective.isnan().any() or played.residuals.isnan().any():
        raise FloatingPointError(
            f"{type(problem).__name__} gives values that are not a number to this policy"
        )
    return played


def _expect(policy: TimeSharingPolicy, problem: Problem) -> Averages:
    """The averages over the atoms, weighted."""
    x = torch.as_tensor(policy.actions, dtype=torch.float32)
    weights = torch.as_tensor(policy.weights, dtype=torch.float64)
    residuals = weights @ problem.constraints(x).double()
    objective = weights @ problem.objective(x).double()
    return Averages(objective.unsqueeze(0), residuals.unsqueeze(0), 0)


def summarise(policy: TimeSharingPolicy, problem: Problem, played: Averages) -> dict[str, float]:
    """The metrics of `evaluate` from the averages of a policy."""
    average = played.residuals.mean(0)
    worst = int(average.argmax())
    metrics = {
        "objective": float(played.objective.mean()),
        "mean_violation": float(average.clamp(min=0).mean()),
        "feasible": float((average <= problem.tolerance).double().mean()),
        "worst_residual": float(average[worst]),
    }
    if played.paths:
        metrics["feasible_single"] = float((played.residuals <= problem.tolerance).double().mean())
    if played.paths > 1:
        metrics["objective_se"] = _standard_error(played.by_path(played.objective))
        metrics["worst_residual_se"] = _standard_error(played.by_path(played.residuals[:, worst]))
    return metrics | problem.metrics(
        torch.as_tensor(policy.actions, dtype=torch.float32),
        torch.as_tensor(policy.weights),
        played.residuals,
    )


def _standard_error(values: Tensor) -> float:
    return float(values.std() / len(values) ** 0.5)


def _play(
    policy: TimeSharingPolicy, problem: Problem, horizon: int, trials: int, paths: int, seed: int
) -> Averages:
    """`trials` horizons over paths of slots that environments seeded by `path_seed` go through too."""
    atoms = np.stack([policy.schedule(horizon, seeding.rng(seed, seeding.TRIALS, k)) for k in range(trials)])
    actions = torch.as_tensor(policy.actions, dtype=torch.float32)
    objective = torch.zeros(trials, dtype=torch.float64)
    residuals = torch.zeros(trials, problem.n_constraints, dtype=torch.float64)
    for p in range(paths):
        for slot, xi in enumerate(slots(problem, horizon, seeding.path_seed(seed, p))):
            value, residual = problem.values(actions[atoms[p::paths, slot]], xi)
            objective[p::paths] += value.double()
            residuals[p::paths] += residual.double()
    return Averages(objective / horizon, residuals / horizon, paths)


def slots(problem: Problem, horizon: int, seed: int) -> Iterator[Tensor]:
    """The realisation (1, …) of every slot of an environment's horizon with that seed."""
    for chunk in problem.path(horizon, seeding.generator(seed, seeding.SLOTS)):
        if chunk is None:
            raise ValueError(
                f"{type(problem).__name__}.exact is False but it draws nothing: set exact = True"
            )
        yield from torch.split(chunk, 1)
