"""One table of all figures of merit: what each is called, means, is measured in, and which way is better."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Metric:
    """How a figure of merit is shown and judged."""

    label: str
    meaning: str
    direction: int = 0
    """+1 where larger is better, −1 where smaller is, 0 where it only describes."""
    unit: str = ""
    """Its unit; RESIDUAL stands for the unit of the problem's constraints."""
    shown: bool = True
    """Whether tables have a column for it; rows hold it anyway."""


RESIDUAL = "residual"
_RATE = "bit/s/Hz"

METRICS = {
    "objective": Metric("objective (minimised)", "E f0, minimised", -1),
    "mean_violation": Metric(
        "mean violation",
        "mean over constraints of the positive part of the average residual",
        -1,
        RESIDUAL,
    ),
    "feasible": Metric("feasible fraction", "share of constraints met by averages over all horizons", 1),
    "worst_residual": Metric("worst residual", "largest average residual", -1, RESIDUAL, shown=False),
    "feasible_single": Metric(
        "feasible fraction of one horizon",
        "share of constraints met within one horizon, what a user lives through",
        1,
    ),
    "objective_se": Metric("", "standard error of the objective over paths", shown=False),
    "worst_residual_se": Metric("", "standard error of the worst residual over paths", shown=False),
    "mean_rate": Metric("mean rate", "average rate of a user, bit/s/Hz", 1, _RATE),
    "p5_rate": Metric("5 % rate", "rate that 95 % of the users exceed", 1, _RATE),
    "p1_rate": Metric("1 % rate", "rate that 99 % of the users exceed", 1, _RATE),
    "sum_violation": Metric(
        "sum of violations", "total rate that users fall short of the requirement", -1, RESIDUAL
    ),
    "mean_return": Metric("mean return", "average return of a slot", 1),
    "n_eff": Metric(
        "effective number of assets", "effective number of assets in a portfolio, exp of its entropy"
    ),
    "top1_entropy": Metric(
        "entropy of top assets",
        "entropy of the largest holding over the portfolios, nats",
        unit="nats",
    ),
    "top1_count": Metric("distinct top assets", "number of assets that are some portfolio's largest holding"),
    "modes": Metric("modes visited", "modes that the policy visits"),
    "mode_entropy": Metric("entropy of modes", "entropy of the visits to modes, nats", unit="nats"),
    "seconds": Metric("processor seconds", "processor time to sample the policy on one thread", -1),
}
"""By name, in the order in which tables have them."""

_RESIDUAL_UNITS = {"mean_rate": _RATE, "mean_return": "variance", "modes": "standard deviations"}
"""The unit of a problem's residuals, by a metric that only this problem has."""


def metric(name: str) -> Metric:
    """The entry of a name; a user's own metric is shown by its name and judged in no direction."""
    return METRICS.get(name) or Metric(name.replace("_", " "), "a figure of the problem itself")


def value(row: Mapping[str, Any], name: str) -> float:
    """A row's figure; the seconds are one like any other."""
    return float(row["seconds"] if name == "seconds" else row["metrics"][name])


def columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The metrics that a table of these rows shows, in the order of their first appearance, seconds last."""
    names = dict.fromkeys(name for row in rows for name in row["metrics"])
    return [*(name for name in names if metric(name).shown), "seconds"]


def axis_label(name: str, rows: Iterable[Mapping[str, Any]] = ()) -> str:
    """Name and unit, violations in the unit of the rows' problem."""
    unit = metric(name).unit
    if unit == RESIDUAL:
        names = {key for row in rows for key in row["metrics"]}
        unit = next((u for own, u in _RESIDUAL_UNITS.items() if own in names), "")
    return metric(name).label + (f" ({unit})" if unit else "")
