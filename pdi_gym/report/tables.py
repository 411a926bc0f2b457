"""What a comparison leaves behind for people and programs: tables and figures."""

from __future__ import annotations

import json
import math
import platform
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pdi_gym import seeding
from pdi_gym.files import write_text
from pdi_gym.labels import code_span, in_markdown, printable
from pdi_gym.metrics import columns, value
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.store import Row
from pdi_gym.time_sharing import violations

_PACKAGES = ("pdi-gym", "torch", "gymnasium", "numpy", "scipy")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a number."""
    return {"python": platform.python_version(), **{p: version(p) for p in _PACKAGES}}


def command() -> str:
    """The command line as a reader would type it: `pdi-gym …` or `python runs/….py …`."""
    script = Path(sys.argv[0])
    call = f"python {Path(script.parent.name) / script.name}" if script.suffix == ".py" else script.name
    return shlex.join([*call.split(), *sys.argv[1:]])


def print_row(row: Row) -> None:
    """One line of progress: agent, instance, objective, feasible fraction and seconds."""
    figures = row["metrics"]
    print(
        f"{printable(row['agent'])} on {row['instance']}: objective {figures['objective']:.4g}, "
        f"feasible {figures['feasible']:.3f}, {row['seconds']:.0f} s",
        flush=True,
    )


def by_agent(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["agent"]].append(row)
    return dict(groups)


def mean_std(rows: list[Row], column: str) -> tuple[float, float]:
    """Mean and standard deviation over instances; the latter NaN for one instance."""
    values = np.array([value(row, column) for row in rows])
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else math.nan


Points = dict[str, tuple[float, float]]


def points_of(groups: Mapping[str, list[Row]]) -> tuple[Points, Points]:
    """(mean violation, objective) of every agent, and their standard deviations over instances."""
    pairs = {a: [mean_std(own, c) for c in ("mean_violation", "objective")] for a, own in groups.items()}
    means, spread = ({a: (v[k], o[k]) for a, (v, o) in pairs.items()} for k in (0, 1))
    return means, spread


def cell(mean: float, std: float) -> str:
    """Four significant digits, ± the spread over instances where there is one."""
    return f"{mean:.4g}" if math.isnan(std) else f"{mean:.4g} ± {std:.2g}"


def markdown_table(rows: list[Row]) -> str:
    """One line per agent: mean ± standard deviation over instances."""
    names = columns(rows)
    lines = ["| agent | " + " | ".join(map(in_markdown, names)) + " |", "|---" * (len(names) + 1) + "|"]
    for agent, own in by_agent(rows).items():
        cells = [in_markdown(agent), *(cell(*mean_std(own, c)) for c in names)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write_results(folder: Path, rows: list[Row], settings: dict[str, Any]) -> None:
    """results.json and results.md with the command, versions and settings that gave them."""
    content = {"command": command(), "versions": versions(), "settings": settings, "rows": rows}
    write_text(folder / "results.json", json.dumps(content, indent=1))
    head = f"{code_span(command())}\n\nMean ± standard deviation over instances.\n\n"
    unmet = "".join(f"\n{in_markdown(note)}\n" for note in violations.notes(rows))
    write_text(folder / "results.md", head + markdown_table(rows) + unmet)


@dataclass(frozen=True)
class Running:
    """What one horizon's averages are after each of its slots, (horizon,) each."""

    objective: np.ndarray
    violation: np.ndarray
    feasible: np.ndarray


@torch.no_grad()
def running_averages(
    policies: Mapping[str, TimeSharingPolicy], problem: Problem, horizon: int, seed: int
) -> dict[str, Running]:
    """Averages over the slots so far, per agent.

    It is the first of `evaluate`'s trials, so the last values are what that horizon's user has seen.
    """
    atoms = [p.schedule(horizon, seeding.rng(seed, seeding.TRIALS, 0)) for p in policies.values()]
    actions = [torch.as_tensor(p.actions, dtype=torch.float32) for p in policies.values()]
    cost = torch.zeros(len(actions), dtype=torch.float64)
    total = torch.zeros(len(actions), problem.n_constraints, dtype=torch.float64)
    curves, slot = np.empty((3, len(actions), horizon)), 0
    for chunk in problem.path(horizon, seeding.generator(seed, seeding.SLOTS)):
        draws = [None] * (horizon - slot) if chunk is None else torch.split(chunk, 1)
        for xi in draws:
            x = torch.stack([a[k[slot]] for a, k in zip(actions, atoms, strict=True)])
            value, residual = problem.values(x, xi)
            cost += value.double()
            total += residual.double()
            average = total / (slot + 1)
            curves[0, :, slot] = cost / (slot + 1)
            curves[1, :, slot] = average.clamp(min=0).mean(-1)
            curves[2, :, slot] = (average <= problem.tolerance).double().mean(-1)
            slot += 1
        if slot == horizon:
            break
    return {agent: Running(*curves[:, i]) for i, agent in enumerate(policies)}
