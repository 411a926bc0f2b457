"""What a comparison leaves behind: tables, TensorBoard events and figures."""

from __future__ import annotations

import json
import math
import platform
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pdi_gym import plots
from pdi_gym.evaluation import Row, load_policy, slug
from pdi_gym.files import write_text

_PACKAGES = ("pdi-gym", "torch", "gymnasium", "numpy", "scipy")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a number."""
    return {"python": platform.python_version(), **{p: version(p) for p in _PACKAGES}}


def command() -> str:
    """The command line as a reader would type it: `pdi-gym …` or `python runs/….py …`."""
    script = Path(sys.argv[0])
    call = f"python {script.parent.name}/{script.name}" if script.suffix == ".py" else script.name
    return shlex.join([*call.split(), *sys.argv[1:]])


def print_row(row: Row) -> None:
    """One line of progress: agent, instance, objective, feasible fraction and seconds."""
    figures = row["metrics"]
    print(
        f"{row['agent']} on {row['instance']}: objective {figures['objective']:.4g}, "
        f"feasible {figures['feasible']:.3f}, {row['seconds']:.0f} s",
        flush=True,
    )


def by_agent(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["agent"]].append(row)
    return dict(groups)


def columns(rows: list[Row]) -> list[str]:
    """Metric names in the order of their first appearance, then the seconds."""
    return [*dict.fromkeys(name for row in rows for name in row["metrics"]), "seconds"]


def mean_std(rows: list[Row], column: str) -> tuple[float, float]:
    """Mean and standard deviation over instances; the latter NaN for one instance."""
    values = np.array([row["seconds"] if column == "seconds" else row["metrics"][column] for row in rows])
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else math.nan


def cell(mean: float, std: float) -> str:
    """Four significant digits, ± the spread over instances where there is one."""
    return f"{mean:.4g}" if math.isnan(std) else f"{mean:.4g} ± {std:.2g}"


def markdown_table(rows: list[Row]) -> str:
    """One line per agent: mean ± standard deviation over instances."""
    names = columns(rows)
    lines = ["| agent | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for agent, own in by_agent(rows).items():
        lines.append(f"| {agent} | " + " | ".join(cell(*mean_std(own, c)) for c in names) + " |")
    return "\n".join(lines) + "\n"


def write_results(folder: Path, rows: list[Row], settings: dict[str, Any]) -> None:
    """results.json and results.md with the command, versions and settings that gave them."""
    content = {"command": command(), "versions": versions(), "settings": settings, "rows": rows}
    write_text(folder / "results.json", json.dumps(content, indent=1))
    head = f"`{command()}`\n\nMean ± standard deviation over instances.\n\n"
    write_text(folder / "results.md", head + markdown_table(rows))


def write_tensorboard(folder: Path, rows: list[Row]) -> None:
    """One run per agent: metrics over instances; λ histograms and residuals over denoising steps."""
    from torch.utils.tensorboard import SummaryWriter

    shutil.rmtree(folder / "tensorboard", ignore_errors=True)  # events only ever append
    for agent, own in by_agent(rows).items():
        with SummaryWriter(str(folder / "tensorboard" / agent)) as writer:
            for row in own:
                for name, value in row["metrics"].items():
                    writer.add_scalar(f"metrics/{name}", value, row["instance"])
                writer.add_scalar("metrics/seconds", row["seconds"], row["instance"])
                policy, residuals = load_policy(policy_path(folder, row))
                writer.add_histogram("residuals", residuals, row["instance"])
                trace = policy.info.get("trace")
                if trace is None:
                    continue
                tag = f"instance {row['instance']}"
                for step, lam, residual in zip(
                    trace["step"], trace["duals"], trace["residuals"], strict=True
                ):
                    writer.add_histogram(f"duals/{tag}", lam, int(step))
                    writer.add_scalar(f"denoising/largest residual, {tag}", residual.max(), int(step))


def write_figures(folder: Path, rows: list[Row]) -> list[Path]:
    """PNG figures of a comparison: the trade-off, who is served, and the multipliers' paths."""
    first = min(row["instance"] for row in rows)
    stored = {row["agent"]: load_policy(policy_path(folder, row)) for row in rows if row["instance"] == first}
    traces = {agent: p.info["trace"] for agent, (p, _) in stored.items() if "trace" in p.info}
    points = {
        agent: (mean_std(own, "mean_violation")[0], mean_std(own, "objective")[0])
        for agent, own in by_agent(rows).items()
    }
    figures = {
        "tradeoff": plots.tradeoff(points),
        "residuals": plots.residual_curves({agent: r for agent, (_, r) in stored.items()}, first),
    }
    if traces:
        figures["denoising"] = plots.denoising(traces, first)
    paths = []
    for name, fig in figures.items():
        paths.append(folder / f"{name}.png")
        fig.savefig(paths[-1], dpi=120)
    return paths


def policy_path(folder: Path, row: Row) -> Path:
    return folder / "policies" / f"{slug(row['agent'])}-{row['instance']}.npz"
