"""The conformance table of problems: every one keeps every promise of the protocol."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pdi_gym import Problem
from pdi_gym.problem import autograd_lagrangian_grad, check_problem, lagrangian
from tests.cases import PROBLEMS, Sensors, Unbounded


@pytest.fixture(params=PROBLEMS)
def problem(request: pytest.FixtureRequest) -> Problem:
    return PROBLEMS[request.param]()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def latents(problem: Problem, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return problem.project(0.4 * torch.randn((*shape, problem.latent_dim), generator=generator))


def shape(problem: Problem) -> tuple[type, int, int]:
    return type(problem), problem.latent_dim, problem.n_constraints


def test_fits_the_protocol(problem: Problem) -> None:
    assert isinstance(problem, Problem)
    check_problem(problem)
    assert len(problem.constraint_names) == len(problem.constraint_limits) == problem.n_constraints


def test_any_leading_axes_agree_with_one_by_one(problem: Problem, generator: torch.Generator) -> None:
    xi = problem.draw(3, generator)
    x = problem.decode(latents(problem, (2, 3, 4), generator))
    objective, constraints = problem.objective(x, xi), problem.constraints(x, xi)
    assert objective.shape == (2, 3, 4) and constraints.shape == (2, 3, 4, problem.n_constraints)
    torch.testing.assert_close(problem.values(x, xi), (objective, constraints))
    for index in ((0, 0, 0), (1, 2, 3)):
        torch.testing.assert_close(objective[index], problem.objective(x[index], xi), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            constraints[index], problem.constraints(x[index], xi), rtol=1e-4, atol=1e-6
        )


def test_averages_over_draws(problem: Problem, generator: torch.Generator) -> None:
    xi = problem.draw(4, generator)
    if xi is None:
        pytest.skip("nothing is random")
    x = problem.decode(latents(problem, (5,), generator))
    one_by_one = torch.stack([problem.constraints(x, xi[r : r + 1]) for r in range(4)]).mean(0)
    torch.testing.assert_close(problem.constraints(x, xi), one_by_one, rtol=1e-4, atol=1e-6)
    one_by_one = torch.stack([problem.objective(x, xi[r : r + 1]) for r in range(4)]).mean(0)
    torch.testing.assert_close(problem.objective(x, xi), one_by_one, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_gradient_equals_autograd(problem: Problem, weight: float, generator: torch.Generator) -> None:
    xi = problem.draw(3, generator)
    z = 0.9 * latents(problem, (2, 3, 4), generator)
    lam = 3 * torch.rand((3, 1, problem.n_constraints), generator=generator)
    value, grad = problem.lagrangian_grad(z, lam, xi, weight)
    expected_value, expected_grad = autograd_lagrangian_grad(problem, z, lam, xi, weight)
    torch.testing.assert_close(value, expected_value, rtol=1e-4, atol=1e-5)
    scale = expected_grad.abs().max().item()
    torch.testing.assert_close(grad, expected_grad, rtol=1e-4, atol=1e-5 * scale)
    direct = lagrangian(problem, problem.decode(z), lam, xi, weight)
    torch.testing.assert_close(value, direct, rtol=1e-4, atol=1e-5)


def test_projection_is_idempotent_and_decodes(problem: Problem, generator: torch.Generator) -> None:
    z = problem.project(3 * torch.randn((50, problem.latent_dim), generator=generator))
    torch.testing.assert_close(problem.project(z), z, rtol=1e-5, atol=1e-5)
    x = problem.decode(z)
    torch.testing.assert_close(problem.decode(problem.encode(x)), x, rtol=1e-4, atol=1e-6)


def test_actions_round_trip(problem: Problem, generator: torch.Generator) -> None:
    action = 1.8 * torch.rand((50, problem.latent_dim), generator=generator) - 0.9
    x = problem.to_decision(action)
    back = problem.to_action(x)
    assert back.abs().max() <= 1
    torch.testing.assert_close(problem.to_decision(back), x, rtol=2e-3, atol=1e-6)


def test_slot_pairs_rows_with_realisations(problem: Problem, generator: torch.Generator) -> None:
    chunks = list(problem.path(7, generator))
    x = problem.decode(latents(problem, (7,), generator))
    if chunks[0] is None:
        objective, residuals = problem.slot(x, None)
        torch.testing.assert_close(objective, problem.objective(x))
        return
    xi = torch.cat(chunks)
    assert len(xi) == 7
    objective, residuals = problem.slot(x, xi)
    for b in range(7):
        torch.testing.assert_close(objective[b], problem.objective(x[b], xi[b : b + 1]), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            residuals[b], problem.constraints(x[b], xi[b : b + 1]), rtol=1e-4, atol=1e-6
        )


def test_slot_batch_mixes_problems(problem: Problem, generator: torch.Generator) -> None:
    x = problem.decode(latents(problem, (3,), generator))
    drawn = next(iter(problem.path(3, generator)))
    again = next(p for make in PROBLEMS.values() if shape(p := make()) == shape(problem))
    problems = [problem, again, problem]
    value, residuals = type(problem).slot_batch(problems, x, None if drawn is None else drawn.split(1))
    for b, own in enumerate(problems):
        v, r = own.slot(x[b : b + 1], None if drawn is None else drawn[b : b + 1])
        torch.testing.assert_close(value[b], v[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(residuals[b], r[0], rtol=1e-4, atol=1e-6)


def test_metrics_are_floats(problem: Problem, generator: torch.Generator) -> None:
    x = problem.decode(latents(problem, (6,), generator))
    metrics = problem.metrics(x, torch.full((6,), 1 / 6), torch.zeros(2, problem.n_constraints))
    assert all(isinstance(v, float) and np.isfinite(v) for v in metrics.values())


def test_check_problem_names_what_is_wrong() -> None:
    class NoConstraints(Sensors):
        n_constraints = 0

    class Wrong(Sensors):
        def constraints(self, x, xi=None):  # type: ignore[no-untyped-def]
            return super().constraints(x, xi).squeeze(-1)

    with pytest.raises(ValueError, match="n_constraints must be an int ≥ 1, got 0"):
        check_problem(NoConstraints())
    with pytest.raises(ValueError, match=r"Wrong.constraints must map decisions \(3, 3\) to \(3, 1\)"):
        check_problem(Wrong())

    class OneWay(Unbounded):
        def decode(self, z):  # type: ignore[no-untyped-def]
            return 3 * z

    with pytest.raises(ValueError, match="OneWay.encode must undo decode"):
        check_problem(OneWay())
    lacking = "Bare lacks action_scale, bound, .* slot, slot_batch, to_action, .*: subclass pdi_gym.Problem"
    with pytest.raises(TypeError, match=lacking):
        check_problem(type("Bare", (), {"latent_dim": 1, "n_constraints": 1})())
