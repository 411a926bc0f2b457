"""The estimators that only the ablation has, by quadrature; and derived rows that nothing beats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.integrate import trapezoid
from torch import Tensor

from pdi_gym.agents import make_agent
from pdi_gym.problem import Problem
from pdi_gym.problems import WirelessPower
from pdi_gym.schedules import make_schedule

RUNS = Path(__file__).parents[1] / "runs"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RUNS))


class Slope(Problem):
    """E(x) = 3x − 4x² + λ·x on [−½, ½]: mass at both ends of the box."""

    latent_dim, n_constraints, bound = 1, 1, 0.5

    def objective(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return (3 * x - 4 * x.square()).squeeze(-1)

    def constraints(self, x: Tensor, xi: Tensor | None = None) -> Tensor:
        return x


def quadrature(z: float, sigma: float, scale: float, clip: bool) -> float:
    """d/dz log ∫ exp(−E(x)) N(z; s·x, σ²) dx over the box, or over all x with E at the clipped x."""

    def log_mass(z: float) -> float:
        x = np.linspace(-0.5, 0.5, 20_001) if not clip else np.linspace(-12, 12, 200_001)
        inside = np.clip(x, -0.5, 0.5)
        energy = 3 * inside - 4 * inside**2 + 2 * inside
        return float(np.log(trapezoid(np.exp(-energy - (z - scale * x) ** 2 / (2 * sigma**2)), x)))

    return (log_mass(z + 1e-4) - log_mass(z - 1e-4)) / 2e-4


@pytest.mark.parametrize("candidates", ["unscaled", "lemma"])
@pytest.mark.parametrize(("name", "clip"), [("TruncatedScore", False), ("BothScore", True)])
@pytest.mark.parametrize("tau", [10, 30])
def test_scores_of_the_ablation(name: str, clip: bool, candidates: str, tau: int) -> None:
    import beyond_ablation

    problem, schedule = Slope(), make_schedule("cosine", 40)
    score = getattr(beyond_ablation, name)(problem, schedule, 1.0, 400_000, candidates)
    sigma = float(schedule.sigma[tau])
    scale = float(schedule.alpha[tau]) if candidates == "lemma" else 1.0
    lam = torch.full((1, 1, 1), 2.0)
    for z in (-0.7, 0.1, 0.4):
        found = score(torch.full((1, 1, 1), z), tau, lam, None, torch.Generator().manual_seed(0)).value
        assert float(found) == pytest.approx(
            quadrature(z, sigma, scale, clip), abs=0.1
        )  # four standard errors


def test_nothing_beats_the_reference_and_rows_are_kept(tmp_path: Path) -> None:
    from beyond_derived import Derivation, reference_row, reweighted_rows

    problem = WirelessPower.instance(0, "validation", n_users=10)
    policies = {name: make_agent(name).sample(problem, n=20) for name in ("pdi-mc", "pdi-cg")}
    rows = [{"agent": name, "instance": 0, "metrics": {}, "seconds": 1.0} for name in policies]
    how = Derivation(0.05, 0, 1, tmp_path, tmp_path / "references")
    weighted = reweighted_rows(how, problem, policies, rows)
    reference = reference_row(how, problem, 0, policies)
    best = max(row["metrics"]["mean_rate"] for row in weighted)
    assert reference["metrics"]["mean_rate"] > best - 0.02  # noise of the draws
    assert all(row["metrics"]["mean_violation"] < 1e-3 for row in weighted if row["metrics"]["mix_feasible"])
    assert [row["agent"] for row in weighted] == ["pdi-mc + weights", "pdi-cg + weights"]
    assert reweighted_rows(how, problem, policies, rows) == weighted
    assert reference_row(how, problem, 0, policies) == reference
