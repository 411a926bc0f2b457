"""Instances that no agent satisfies, against least violations that are known in closed form."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from pdi_gym import Problem, TimeSharingPolicy
from pdi_gym.agents import make_agent
from pdi_gym.cli.printing import comparison_table
from pdi_gym.evaluation import compare, evaluate
from pdi_gym.problems import MixtureOfGaussians, Portfolio
from pdi_gym.report.outputs import write_outputs
from pdi_gym.scales import pilot
from pdi_gym.time_sharing.column_generation import Pool, least_violation
from pdi_gym.time_sharing.reference import reference_solution
from pdi_gym.time_sharing.violations import notes, unmet, violation
from tests.cases import Sensors, Unbounded, gaussian


def cornered() -> MixtureOfGaussians:
    """x_0 ≥ 5 is out of the reach of a box of half-width 2 by 3, x_1 ≥ 1 is not."""
    return MixtureOfGaussians([[0.0, 0.0]], [[1.0, 1.0]], [1.0], [[1.0, 0.0], [0.0, 1.0]], [5.0, 1.0], 2.0)


def starved() -> tuple[Portfolio, np.ndarray]:
    """Uncorrelated assets of variance v: Σ_j v_j x_j² is least at x_j ∝ 1/v_j, where asset j has c²/v_j
    with c = 1/Σ 1/v; what that is above the budget of 1e-4 is the least violation, by convexity."""
    v = np.array([0.04, 0.09, 0.16])
    problem = Portfolio.from_moments([0.1, 0.2, 0.3], np.diag(v), 1e-4, names=["a", "b", "c"])
    return problem, (1 / v).sum() ** -2.0 / v - 1e-4


def test_violations_by_hand() -> None:
    problem = cornered()  # tolerance 0.02
    assert violation(problem, np.array([0.02, -1.0])) is None
    found = violation(problem, np.array([0.015, 0.5]))
    assert found == {"total": 0.515, "constraints": 1, "carried_by": {"half-space 1": 0.5}}
    both = violation(problem, np.array([0.25, 0.5]))
    assert both is not None and list(both["carried_by"]) == ["half-space 1", "half-space 0"]
    undefined = violation(problem, np.array([np.nan, -1.0]))
    assert undefined is not None and undefined["constraints"] == 1


def row(agent: str, instance: int, *residuals: float) -> dict[str, Any]:
    found = violation(cornered(), np.array(residuals))
    return {"agent": agent, "instance": instance, "violation": found}


def test_an_instance_is_flagged_when_every_agent_fails_on_it() -> None:
    rows = [row("a", 0, 3, 1), row("b", 0, 3, 0.5), row("a", 1, 3, 1), row("b", 1, 0, 0), row("b", 2, 1, -1)]
    assert {i: r["agent"] for i, r in unmet(rows).items()} == {0: "b", 2: "b"}
    assert notes(rows)[0] == (
        "† No agent met all constraints on instance 0; the least total violation is 3.5, by b, carried by "
        "half-space 0 (3), half-space 1 (0.5)."
    )
    many = notes([row("a", i, 1, 1) for i in range(12)])
    assert len(many) == 6 and many[-1] == "† The same holds for 7 more instances."


def test_column_generation_reports_a_box_that_is_too_small() -> None:
    policy = make_agent("pdi-cg").sample(cornered(), n=20)
    found = policy.info["infeasible"]
    assert found["total"] == pytest.approx(3, rel=1e-4)
    assert found["carried_by"] == {"half-space 0": pytest.approx(3, rel=1e-4)}
    assert policy.info["bound"] is None and "bound" not in policy.info["rounds"]
    assert json.loads(json.dumps(found)) == found
    assert evaluate(policy, cornered())["mean_violation"] == pytest.approx(1.5, rel=1e-4)


def test_column_generation_reports_budgets_that_are_too_small() -> None:
    problem, excess = starved()
    info = make_agent("pdi-cg").sample(problem, n=20).info
    assert info["bound"] is None and info["infeasible"]["constraints"] == 3
    # How the least total is split is flat to first order, so the parts are less exact than their sum.
    assert info["infeasible"]["total"] == pytest.approx(excess.sum(), rel=1e-3)
    for name, part in zip("abc", excess, strict=True):
        assert info["infeasible"]["carried_by"][name] == pytest.approx(part, rel=0.1)


def test_a_feasible_program_keeps_its_bound() -> None:
    info = make_agent("pdi-cg").sample(gaussian(10.0), n=20).info
    assert info["infeasible"] is None and info["bound"] == info["rounds"]["bound"][-1]
    assert info["bound"] <= info["value"] + 1e-4
    none = make_agent("pdi-cg", rounds=0).sample(gaussian(10.0), n=20).info
    assert none["bound"] is None


def test_a_margin_out_of_reach_is_not_an_infeasible_instance() -> None:
    """Σ x ≥ 1 is easy in a box of half-width 2; with six scales s to spare it is short by 6 − 5/s of them."""

    class Still(Sensors):
        exact = True

    scale = pilot(Still()).constraints[0]
    info = make_agent("pdi-cg", margin=6.0).sample(Still(), n=20).info
    assert info["excess"] == pytest.approx(6 - 5 / scale, rel=1e-3)
    assert info["infeasible"] is None and info["bound"] is None


def test_the_tolerance_decides() -> None:
    """Two decisions with f = (0.05, −0.05) and (−0.05, 0.06): equal shares leave 0.005 of the second."""
    pool = Pool(np.zeros((2, 2)), np.zeros(2), np.array([[0.05, -0.05], [-0.05, 0.06]]))

    class Two(Unbounded):
        n_constraints = 2

    problem: Problem = Two()
    found = least_violation(problem, pool)
    # w on the first: 0.05 (2w − 1) and 0.06 − 0.11 w are both positive in between, of sum 0.01 − 0.01 w.
    assert found is not None and found["total"] == pytest.approx(0.01 * (1 - 6 / 11), rel=1e-3)
    problem.tolerance = 0.01
    assert least_violation(problem, pool) is None


def test_a_reference_bounds_no_infeasible_program(tmp_path: Path) -> None:
    for _ in range(2):  # computed, then read
        solution = reference_solution(cornered(), effort=1, cache=tmp_path)
        assert solution.excess == pytest.approx(3, rel=1e-4)
        assert solution.bound is None and solution.estimate is None


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    out = tmp_path_factory.mktemp("compared")
    agents = {"column generation": make_agent("pdi-cg", rounds=5), "random": "random"}
    easy = MixtureOfGaussians([[0.0, 0.0]], [[1.0, 1.0]], [1.0], [[1.0, 0.0], [0.0, 1.0]], [1.0, 1.0], 2.0)
    rows = compare(agents, [easy, cornered()], n=10, horizon=5, trials=1, out=out)
    settings = {"env": "Own", "instances": 2, "horizon": 5, "trials": 1, "n": 10, "seed": 0}
    write_outputs(out, rows, settings, easy)
    return out, rows


NOTE = "† No agent met all constraints on instance 1; the least total violation is 3, by column generation"


def test_rows_say_what_they_violate(compared: tuple[Path, list[dict[str, Any]]]) -> None:
    _, rows = compared
    by = {(r["agent"], r["instance"]): r for r in rows}
    assert by["column generation", 0]["violation"] is None
    worst = by["column generation", 1]["violation"]
    assert worst["carried_by"] == {"half-space 0": pytest.approx(3, rel=1e-4)}
    for r in rows:
        assert (r["violation"] is None) == (r["metrics"]["feasible"] == 1)
        total = 0 if r["violation"] is None else r["violation"]["total"]
        assert total == pytest.approx(2 * r["metrics"]["mean_violation"], abs=0.04)  # the tolerance, twice
    assert json.loads(json.dumps(rows)) == rows


def test_rows_from_before_are_computed_anew(
    compared: tuple[Path, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rows = compared

    def stale(self: Any, label: str, instance: int, key: str) -> dict[str, Any]:
        return {k: v for k, v in rows[2 + instance].items() if k != "violation"}

    monkeypatch.setattr("pdi_gym.store.Store.load", stale)
    again = compare(["random"], cornered(), n=10, horizon=5, trials=1, out=out)
    assert again[0]["violation"] is not None


def test_the_table_the_page_and_the_csv_flag_it(compared: tuple[Path, list[dict[str, Any]]]) -> None:
    out, rows = compared
    shown, page = printed(rows), (out / "report.html").read_text()
    for text in (shown, page, (out / "results.md").read_text()):
        assert NOTE in text and "half-space 0 (3)" in text and "on instance 0;" not in text
    assert "feasible †" in shown and "feasible †" in page
    with (out / "results.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["met_by_an_agent"] for line in lines] == ["yes", "no", "yes", "no"]
    assert [float(line["total_violation"]) for line in lines[:2]] == [0, pytest.approx(3, rel=1e-4)]
    assert lines[0]["carried_by"] == "" and lines[1]["carried_by"].startswith("half-space 0: 3.0")
    assert "†" not in printed([r for r in rows if r["instance"] == 0])


def printed(rows: list[dict[str, Any]]) -> str:
    console = Console(width=300, file=io.StringIO())
    console.print(comparison_table(rows, "Own", 300))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_a_policy_of_the_users_own_is_judged_alike() -> None:
    corner = TimeSharingPolicy(np.array([[2.0, 1.0]]))
    residuals = cornered().constraints(torch.tensor([[2.0, 1.0]]))[0].double().numpy()
    assert violation(cornered(), residuals) == {
        "total": 3.0,
        "constraints": 1,
        "carried_by": {"half-space 0": 3.0},
    }
    assert evaluate(corner, cornered())["worst_residual"] == 3
