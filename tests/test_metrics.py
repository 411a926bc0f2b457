"""The table of metrics covers what evaluations return, and says how each is shown and judged."""

from __future__ import annotations

import pytest

from pdi_gym import Problem
from pdi_gym.agents import make_agent
from pdi_gym.evaluation import evaluate
from pdi_gym.metrics import METRICS, axis_label, columns, metric, value
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower
from tests.cases import Sensors


@pytest.mark.parametrize(
    "problem",
    [
        WirelessPower.instance(0, n_users=4),
        Portfolio.instance(0, n_assets=10),
        MixtureOfGaussians.toy(),
        Sensors(),
    ],
    ids=lambda p: type(p).__name__,
)
def test_every_metric_of_an_evaluation_is_in_the_table(problem: Problem) -> None:
    found = evaluate(make_agent("random").sample(problem, n=4), problem, horizon=3, trials=4, paths=2)
    assert set(found) <= set(METRICS)


def test_what_is_good_has_a_direction() -> None:
    assert metric("mean_rate").direction == metric("feasible").direction == 1
    assert (
        metric("objective").direction
        == metric("mean_violation").direction
        == metric("seconds").direction
        == -1
    )
    assert metric("n_eff").direction == metric("energy_used").direction == 0


def test_tables_show_what_is_meant_for_them_and_the_users_own() -> None:
    row = {
        "metrics": {"objective": 1.0, "objective_se": 0.1, "energy_used": 3.0, "worst_residual": 0.2},
        "seconds": 2,
    }
    assert columns([row]) == ["objective", "energy_used", "seconds"]
    assert [value(row, name) for name in columns([row])] == [1.0, 3.0, 2.0]
    assert metric("energy_used").label == "energy used"


def test_axis_labels_have_the_unit_of_the_problem() -> None:
    wireless = [{"metrics": {"mean_rate": 1.0, "mean_violation": 0.0}, "seconds": 1.0}]
    assert axis_label("mean_rate") == "mean rate (bit/s/Hz)"
    assert axis_label("mean_violation", wireless) == "mean violation (bit/s/Hz)"
    assert axis_label("mean_violation") == "mean violation"
