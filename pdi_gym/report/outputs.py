"""Everything that a comparison writes beside its rows and policies."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from pdi_gym.files import check_own_folder, read_object, whole_folder
from pdi_gym.problem import Problem
from pdi_gym.processes import in_processes
from pdi_gym.report import events, figures, page, tables
from pdi_gym.store import Row, Store, slug

_REPORT = (page.PAGE, "results.md", "results.csv", "tradeoff.png", "residuals.png", "denoising.png")
"""Files of a report beside results.json."""


def write_outputs(
    folder: Path,
    rows: list[Row],
    settings: dict[str, Any],
    problem: Problem,
    baseline: str | None = None,
    workers: int = 1,
    store: Store | None = None,
) -> Path:
    """Tables, report page, figures and TensorBoard events; returns the page's path.

    rows are `compare`'s and settings its own (`env`, `horizon`, `trials`, `seed`, …); the rows' policies
    are in `store`, this folder when left out. problem is the first instance, baseline the agent that the
    page compares the others with. Drawing takes seconds, so the workers share it.
    """
    store = store or Store(folder)
    tables.write_results(folder, rows, settings)
    groups = tables.by_agent(rows)
    hparams = {agent: events.run_hparams(store, own) for agent, own in groups.items()}
    policies = {a: store.policy(own[0])[0] for a, own in groups.items()}
    running = tables.running_averages(policies, problem, settings["horizon"], settings["seed"])
    with whole_folder(folder / "tensorboard") as runs:
        calls: list[Any] = [
            (page.write_report, (folder, rows, settings, problem, baseline, store)),
            (_write_pictures, (runs / "comparison", folder, rows, hparams, problem, store)),
        ]
        calls += [
            (events.write_run, (runs / slug(agent), store, own, running[agent], problem, hparams[agent]))
            for agent, own in groups.items()
        ]
        for _ in in_processes(workers, calls):
            pass
    return folder / page.PAGE


def report_folder(store: Path, settings: dict[str, Any], agents: tuple[str, ...]) -> Path:
    """Where the report of a comparison goes: the store's folder, or one below it if that has another's.

    A report is replaced only by one of the same agents and settings, so that no comparison loses its own.
    """
    asked = json.loads(json.dumps({"agents": list(agents), **settings}))
    candidates = (store if k == 1 else store / f"comparison-{k}" for k in itertools.count(1))
    folder = next(f for f in candidates if _asked(f) in (None, asked))
    check_own_folder(folder / "tensorboard")
    return folder


def _asked(folder: Path) -> dict[str, Any] | None:
    """The agents and settings of the report in a folder, None if it has none, {} if it is not ours.

    A comparison writes results.json first: what lies there without it is somebody else's.
    """
    path = folder / "results.json"
    if not path.exists():
        return {} if any((folder / name).exists() for name in _REPORT) else None
    try:
        content = read_object(path)
        agents = list(dict.fromkeys(row["agent"] for row in content["rows"]))
        return {"agents": agents, **content["settings"]}
    except (ValueError, KeyError, TypeError):
        return {}


def _write_pictures(
    run: Path,
    folder: Path,
    rows: list[Row],
    hparams: dict[str, dict[str, Any]],
    problem: Problem,
    store: Store,
) -> None:
    """The main figures as PNG files, and the events that compare the agents with these."""
    first = min(row["instance"] for row in rows)
    stored = {row["agent"]: store.policy(row) for row in rows if row["instance"] == first}
    traces = {agent: p.info["trace"] for agent, (p, _) in stored.items() if "trace" in p.info}
    with figures.theme():
        pictures = [
            figures.tradeoff(*tables.points_of(tables.by_agent(rows))),
            figures.residual_curves({agent: r for agent, (_, r) in stored.items()}, problem, first),
        ]
        if traces:
            pictures.append(figures.along_the_sampler(traces, first))
        paths = {picture.name: folder / f"{picture.name}.png" for picture in pictures}
        for picture in pictures:
            figures.write_png(picture, paths[picture.name])
    events.write_comparison(run, rows, hparams, paths)
