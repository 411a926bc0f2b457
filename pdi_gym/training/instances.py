"""Training and validation instances: by environment id or as given, and what tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pdi_gym import presets
from pdi_gym.digests import content_digest
from pdi_gym.problem import Problem, check_problem


def listed(name: str, problems: Sequence[Problem]) -> list[Problem]:
    """The problems of an argument, each checked to be one."""
    if not isinstance(problems, Iterable):
        raise TypeError(
            f"{name} must be a sequence of problems, got one {type(problems).__name__}: put it in a list"
        )
    found = list(problems)
    if not found:
        raise ValueError(f"{name} must hold at least one problem, got none")
    for problem in found:
        check_problem(problem)
    return found


def check_alike(problems: Sequence[Problem]) -> None:
    """Refuse problems of more than one kind or size."""
    first = problems[0]
    for i, problem in enumerate(problems):
        if _size(problem) != _size(first):
            raise ValueError(
                f"training problems must be of one kind and size: the first is {words(first)}, number {i} is "
                f"{words(problem)}; train on each apart"
            )


def _size(problem: Problem) -> tuple[str, int, int]:
    return presets.kind(problem), problem.latent_dim, problem.n_constraints


def words(problem: Problem) -> str:
    name, d, m = type(problem).__name__, problem.latent_dim, problem.n_constraints
    return f"a {name} of {d} coordinates and {m} constraints"


def describe(problems: Sequence[Problem]) -> str:
    """The number of problems and a digest that tells them from others."""
    return f"{len(problems)} with digest {content_digest(*problems)[:16]}"
