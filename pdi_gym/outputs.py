"""Everything that a comparison writes beside its rows and policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pdi_gym import events, report, tracking
from pdi_gym.evaluation import Row, load_policy, slug
from pdi_gym.files import whole_folder
from pdi_gym.problem import Problem
from pdi_gym.processes import in_processes


def write_outputs(
    folder: Path,
    rows: list[Row],
    settings: dict[str, Any],
    problem: Problem,
    baseline: str | None = None,
    workers: int = 1,
) -> Path:
    """Tables, report page, figures and TensorBoard events; returns the page's path.

    rows and folder are `compare`'s, settings its own (`env`, `horizon`, `trials`, `seed`, …), problem
    its first instance, baseline the agent that the page compares the others with. Drawing takes
    seconds, so the workers share it.
    """
    tracking.write_results(folder, rows, settings)
    groups = tracking.by_agent(rows)
    hparams = {agent: events.run_hparams(folder, own) for agent, own in groups.items()}
    policies = {a: load_policy(tracking.policy_path(folder, own[0]))[0] for a, own in groups.items()}
    running = tracking.running_averages(policies, problem, settings["horizon"], settings["seed"])
    with whole_folder(folder / "tensorboard") as runs:
        calls: list[Any] = [
            (report.write_report, (folder, rows, settings, problem, baseline)),
            (_write_pictures, (runs / "comparison", folder, rows, hparams)),
        ]
        calls += [
            (events.write_run, (runs / slug(agent), folder, own, running[agent], problem, hparams[agent]))
            for agent, own in groups.items()
        ]
        for _ in in_processes(workers, calls):
            pass
    return folder / report.PAGE


def _write_pictures(run: Path, folder: Path, rows: list[Row], hparams: dict[str, dict[str, Any]]) -> None:
    events.write_comparison(run, rows, hparams, tracking.write_figures(folder, rows))
