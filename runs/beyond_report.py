"""Statistics, tables and figures of `beyond_table.py`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from pdi_gym import drawing
from pdi_gym.evaluation import Row
from pdi_gym.experiments.run import logarithmic
from pdi_gym.files import write_text
from pdi_gym.metrics import value
from pdi_gym.report import tables
from pdi_gym.report.figures import style as agent_style


def paired_difference(
    rows: list[Row], base: list[Row], name: str, resamples: int = 10_000
) -> tuple[float, float, float, int]:
    """Mean of row − base over the instances of both, its 95 % bootstrap interval, and their number."""
    other = {(r.get("case"), r["instance"]): value(r, name) for r in base}
    pairs = [(r.get("case"), r["instance"]) for r in rows]
    values = np.array(
        [value(r, name) - other[k] for r, k in zip(rows, pairs, strict=True) if k in other], dtype=float
    )
    if len(values) < 2:
        return float(values.mean()), math.nan, math.nan, len(values)
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(resamples, len(values)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(values.mean()), float(low), float(high), len(values)


def table(rows: list[Row], names: tuple[str, ...]) -> str:
    """Mean ± standard deviation over instances, one line per agent."""
    lines = ["| agent | instances | " + " | ".join(names) + " | seconds |", "|---" * (len(names) + 3) + "|"]
    for agent, own in tables.by_agent(rows).items():
        found = [tables.mean_std(own, c) for c in (*names, "seconds")]
        cells = [tables.cell(mean, 0.0 if std < 1e-12 * abs(mean) else std) for mean, std in found]
        lines.append(f"| {agent} | {len(own)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def paired_table(rows: list[Row], base: str, names: tuple[str, ...]) -> str:
    """Differences to the base agent on the same instances, with 95 % intervals."""
    groups = tables.by_agent(rows)
    lines = ["| agent − " + base + " | pairs | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for agent, own in groups.items():
        if agent == base:
            continue
        found = [paired_difference(own, groups[base], c) for c in names]
        cells = [f"{mean:+.4g} [{low:+.4g}, {high:+.4g}]" for mean, low, high, _ in found]
        lines.append(f"| {agent} | {found[0][3]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def pareto(rows: list[Row], quality: str, label: str, name: str) -> Any:
    """Quality against violation and against seconds; a hollow mark is the same pool, reweighted."""
    fig, (left, right) = drawing.figure(10.5, 4.6, ncols=2, sharey=True)
    groups = tables.by_agent(rows)
    bases = list(dict.fromkeys(agent.removesuffix(" + weights") for agent in groups))
    seconds: dict[str, float] = {}
    violations = {agent: tables.mean_std(own, "mean_violation")[0] for agent, own in groups.items()}
    least = 1e-6 * max(violations.values())  # below it, rounding
    violations = {agent: v if v > least else 0.0 for agent, v in violations.items()}
    for agent, own in groups.items():
        style = agent_style(bases.index(agent.removesuffix(" + weights")))
        style |= {"ms": 8, "ls": "", "clip_on": False, "zorder": 3}
        if agent not in bases:
            style |= {"markerfacecolor": "none", "markeredgewidth": 1.5}
        y = tables.mean_std(own, quality)[0]
        left.plot([violations[agent]], [y], label=agent if agent in bases else None, **style)
        if agent != "reference":  # it uses what all the others found
            seconds[agent] = tables.mean_std(own, "seconds")[0]
            right.plot([seconds[agent]], [y], **style)
    logarithmic(left, list(violations.values()))
    left.set(xlabel="mean violation of the average constraints", ylabel=label)
    logarithmic(right, list(seconds.values()))
    right.set(xlabel="seconds for one instance, one thread")
    for ax in (left, right):
        ax.grid(alpha=0.3)
        ax.margins(0.08)
    title = "hollow: the same pool,\nreweighted" if len(groups) > len(bases) else None
    fig.legend(fontsize=8, loc="outside right center", title=title)
    fig.suptitle(f"{name}: up and left is better")
    return fig


def write(folder: Path, name: str, rows: list[Row], text: str, settings: dict[str, Any]) -> None:
    """<name>.json with every row, <name>.md for the eye."""
    content = {
        "command": tables.command(),
        "versions": tables.versions(),
        "settings": settings,
        "rows": rows,
    }
    write_text(folder / f"{name}.json", json.dumps(content, indent=1, default=str))
    write_text(folder / f"{name}.md", f"`{tables.command()}`\n\n{text}")
