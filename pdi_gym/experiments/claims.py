"""Claims judged by their confidence intervals: one rule for "better", one for "equal"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pdi_gym import metrics
from pdi_gym.report.statistics import Interval, Paired, paired
from pdi_gym.store import Row

HOLDS, WEAKER, FAILS, UNKNOWN = "holds", "holds weaker", "does not hold", "cannot be told"

RULE = """\
A figure is oriented so that the claim makes it positive; its 95 % bootstrap interval is taken over instances,
paired where two methods saw the same ones. *Needed* is half of the paper's own difference, or zero where the
paper gives none.

* **holds**: the interval is above zero and the mean reaches what is needed;
* **holds weaker**: the interval is above zero, the mean is below what is needed;
* **does not hold**: the interval is below zero, or below what is needed;
* **cannot be told**: anything else, fewer than two instances, or a method that was not run.

A figure that is exact, or of the one training that there is, decides alone; its line says so.

A bootstrap over a handful of instances is too narrow: verdicts with n below eight are provisional.

A claim that two methods are *equal* comes with a margin: it holds when the interval is within it, holds
weaker within twice of it, does not hold when the interval is outside of it, and cannot be told otherwise.
Several claims together hold when each does, fail when each fails, and hold weaker when some do; those that
cannot be told are left out of that count.\
"""


@dataclass(frozen=True)
class Claim:
    """What the paper says, its figure, ours, and what follows."""

    claim: str
    paper: str
    ours: str
    verdict: str
    reason: str


def judge(interval: Interval | None, needed: float = 0.0) -> str:
    """The verdict on a figure that the claim makes positive (see `RULE`)."""
    if interval is None:
        return UNKNOWN
    if interval.low > 0:
        return HOLDS if interval.mean >= needed else WEAKER
    return FAILS if interval.high <= max(needed, 0.0) else UNKNOWN


def judge_equal(interval: Interval | None, margin: float) -> str:
    """The verdict on a difference that the claim makes at most `margin` in size."""
    if interval is None:
        return UNKNOWN
    size = max(abs(interval.low), abs(interval.high))
    if size <= 2 * margin:
        return HOLDS if size <= margin else WEAKER
    return FAILS if interval.low > margin or interval.high < -margin else UNKNOWN


def overall(verdicts: Iterable[str]) -> str:
    """One verdict for several claims (see `RULE`)."""
    told = {v for v in verdicts if v != UNKNOWN}
    if not told:
        return UNKNOWN
    return told.pop() if len(told) == 1 else WEAKER


def by_instance(rows: Iterable[Row], agent: str, metric: str) -> dict[int, float]:
    """{instance: value} of one agent."""
    return {row["instance"]: metrics.value(row, metric) for row in rows if row["agent"] == agent}


def beats(
    rows: Iterable[Row],
    own: str,
    other: str,
    metric: str,
    claim: str,
    *,
    paper: tuple[float, float] | None = None,
    unit: str = "networks",
    note: str = "",
    direction: int | None = None,
) -> Claim:
    """`own` is better than `other` in a metric; `paper` has both of the paper's figures.

    `direction` is +1 where larger is better and −1 where smaller is; the metric's own when left out.
    """
    rows = list(rows)
    values = {name: by_instance(rows, name, metric) for name in (own, other)}
    said = "no figure given" if paper is None else f"{paper[0]:g} against {paper[1]:g}"
    if missing := [name for name, v in values.items() if not v]:
        return Claim(claim, said, "not measured", UNKNOWN, f"not run: {', '.join(missing)}")
    direction = metrics.metric(metric).direction if direction is None else direction
    needed = 0.0 if paper is None else max(direction * (paper[0] - paper[1]) / 2, 0.0)
    pair = paired(values[own], values[other], direction)
    verdict = judge(oriented(pair.interval, direction), needed)
    reason = f"{own} is better on {pair.better} of {pair.n} {unit}"
    if verdict == WEAKER:
        reason += ", by less than half of the paper's difference"
    if verdict == FAILS:
        reason += f", worse on {pair.worse}"
    if verdict == UNKNOWN:
        reason = f"the interval over {pair.n} {unit} leaves it open"
    return Claim(claim, said, _figures(values, own, other, metric, pair), verdict, _with(reason, note))


def equals(
    rows: Iterable[Row],
    own: str,
    other: str,
    metric: str,
    margin: float,
    claim: str,
    *,
    paper: str = "no figure given",
    unit: str = "networks",
    note: str = "",
) -> Claim:
    """`own` and `other` differ by at most `margin` in a metric."""
    rows = list(rows)
    values = {name: by_instance(rows, name, metric) for name in (own, other)}
    if missing := [name for name, v in values.items() if not v]:
        return Claim(claim, paper, "not measured", UNKNOWN, f"not run: {', '.join(missing)}")
    pair = paired(values[own], values[other])
    verdict = judge_equal(pair.interval, margin)
    reason = f"margin ±{margin:g}, {pair.n} {unit}"
    return Claim(claim, paper, _figures(values, own, other, metric, pair), verdict, _with(reason, note))


def oriented(interval: Interval | None, direction: int) -> Interval | None:
    """The interval of the figure times ±1."""
    if interval is None or direction > 0:
        return interval
    return Interval(-interval.mean, -interval.high, -interval.low)


def shown(interval: Interval | None, mean: float | None = None) -> str:
    """`+0.12 [+0.1, +0.14]`, or the mean alone where there is no interval."""
    if interval is None:
        return f"{mean:+.3g} (no interval)" if mean is not None else "no interval"
    mean, low, high = (round(v, 12) for v in (interval.mean, interval.low, interval.high))  # no −5e-18
    return f"{mean:+.3g} [{low:+.3g}, {high:+.3g}]"


def _figures(
    values: Mapping[str, Mapping[int, float]], own: str, other: str, metric: str, pair: Paired
) -> str:
    common = sorted(values[own].keys() & values[other].keys())
    means = [sum(values[name][i] for i in common) / len(common) for name in (own, other)]
    name = metric.replace("_", " ")
    return (
        f"{name} {means[0]:.4g} against {means[1]:.4g}: {shown(pair.interval, pair.mean)}, n = {len(common)}"
    )


def _with(reason: str, note: str) -> str:
    return f"{reason}; {note}" if note else reason
