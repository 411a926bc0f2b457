"""What the scripts under runs/ share: settings, resumable comparisons, results with their provenance."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pdi_gym import drawing
from pdi_gym.agents import AGENTS, Agent
from pdi_gym.envs import make_env
from pdi_gym.evaluation import compare, named_agent
from pdi_gym.experiments.claims import Claim, by_instance
from pdi_gym.files import whole_file, write_text
from pdi_gym.metrics import axis_label
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.report import tables
from pdi_gym.report.statistics import bootstrap
from pdi_gym.store import Row, Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS, LOGS = Path("runs/results"), Path("runs/logs")

FAST_WIRELESS = (
    "Preset fast (T = 100, Monte-Carlo score with 2 candidates) instead of T = 500 and a trained network."
)
FAST_PORTFOLIO = (
    "Preset fast (T = 200, Monte-Carlo score with 4 candidates) instead of T = 500 and a trained network, "
    "and fewer than 1024 portfolios."
)
WIRELESS = ("mean_rate", "p5_rate", "p1_rate", "mean_violation", "sum_violation", "feasible")
PORTFOLIO = ("mean_return", "feasible", "mean_violation", "n_eff", "top1_entropy", "top1_count")


@dataclass(kw_only=True)
class Common:
    """Settings that every experiment has."""

    seed: int = 0
    """Seed of inference and, by independent streams, of evaluation."""
    workers: int = 1
    """Processes, one thread each; rows are the same for any number."""
    out: Path | None = None
    """Folder of the results; runs/results/NAME when left out."""
    logs: Path | None = None
    """Folder of finished rows, from which a killed run goes on; shared by the scripts of one problem."""


def sample_of(args: Any) -> str:
    """Over what the ± of a table is, from the settings of its script."""
    if hasattr(args, "networks"):
        return f"{args.networks} test networks, {args.n} decisions per policy, seed {args.seed}."
    return f"{args.instances} test instances, {args.n} portfolios per policy, seed {args.seed}."


def available(problem: Problem, *names: str) -> list[str]:
    """Those of the agents that have all they need for the problem, trained weights included."""
    return [name for name in names if AGENTS[name.partition("@")[0]].ready(problem)]


class Run:
    """One run of one experiment: computes rows, keeps figures, and writes what a reader needs."""

    def __init__(self, name: str, args: Common, logs: str | None = None):
        self.name, self.args = name, args
        changed = {k for k, v in settings_of(type(args)()).items() if v != settings_of(args)[k]}
        if changed and args.out is None:
            raise SystemExit(
                f"{', '.join(sorted(changed))} differ from the settings of the committed results in "
                f"{RESULTS / name}: give --out FOLDER"
            )
        self.out = args.out or RESULTS / name
        self.logs = args.logs or (self.out / "logs" if changed else LOGS / (logs or name))
        self.started = time.perf_counter()
        self.agents: dict[str, Any] = {}
        self.figures: dict[str, str] = {}

    def compare(
        self,
        agents: Mapping[str, str | Agent] | Sequence[str],
        env_id: str,
        instances: int,
        *,
        n: int | None = None,
        env_kwargs: dict[str, Any] | None = None,
        seed: int | None = None,
        folder: str = "",
        **budget: Any,
    ) -> list[Row]:
        """`evaluation.compare` with a progress bar, going on from the rows in the folder of logs."""
        labelled = agents if isinstance(agents, Mapping) else {a: a for a in agents}
        made = {label: named_agent(a) if isinstance(a, str) else a for label, a in labelled.items()}
        if not made:
            return []
        problem = make_env(env_id, env_kwargs or {}).make_problem(0)
        self.agents |= {label: agent.config(problem) for label, agent in made.items()}
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns) as progress:
            bar = progress.add_task(self.name, total=len(made) * instances)

            def advance(row: Row) -> None:
                progress.update(bar, advance=1, description=f"{self.name}: {row['agent']}")

            return compare(
                made,
                env_id,
                instances,
                seed=self.args.seed if seed is None else seed,
                workers=self.args.workers,
                out=self.logs / folder,
                n=n,
                env_kwargs=env_kwargs,
                on_row=advance,
                **budget,
            )

    def command(self) -> str:
        """The command line of this experiment alone, even when it was run with others."""
        words = tables.command().split()
        if words[:2] != ["pdi-gym", "reproduce"]:
            return tables.command()
        return " ".join(["pdi-gym", "reproduce", self.name, *(w for w in words if w == "--quick")])

    def policy(self, row: Row, folder: str = "") -> tuple[TimeSharingPolicy, np.ndarray]:
        """The policy behind a row of `compare` and its average residuals (m,)."""
        return Store(self.logs / folder).policy(row)

    def figure(self, stem: str, fig: Figure, caption: str) -> None:
        """Keep a figure as `stem`.png under its caption."""
        with whole_file(self.out / f"{stem}.png") as temporary:
            fig.savefig(temporary, dpi=110, format="png")
        self.figures[f"{stem}.png"] = caption

    def write(
        self,
        rows: Sequence[Mapping[str, Any]],
        claims: Sequence[Claim],
        table: str,
        *,
        sample: str,
        reduced: str,
        notes: str = "",
    ) -> None:
        """results.json and results.md; `sample` says what ± is over, `reduced` what the paper had more of."""
        content = {
            "name": self.name,
            "command": self.command(),
            "versions": tables.versions(),
            "seconds": round(time.perf_counter() - self.started, 1),
            "row_seconds": round(sum(row.get("seconds", 0.0) for row in rows), 1),
            "settings": settings_of(self.args),
            "sample": sample,
            "reduced": reduced,
            "agents": self.agents,
            "claims": [asdict(c) for c in claims],
            "figures": self.figures,
            "rows": list(rows),
        }
        write_text(self.out / "results.json", json.dumps(content, indent=1, default=str) + "\n")
        lines = [f"# {self.name}\n", f"`{self.command()}`\n", f"{sample} {reduced}{_rule(rows)}\n"]
        lines += [table, claims_table(claims)]
        lines += [f"![{caption}]({file})\n\n*{caption}*\n" for file, caption in self.figures.items()]
        if notes:
            lines.append(notes)
        write_text(self.out / "results.md", "\n".join(lines).rstrip() + "\n")
        print(f"{self.name}: {content['seconds']} s, written to {self.out}", flush=True)


def _rule(rows: Sequence[Mapping[str, Any]]) -> str:
    """How the rows' slots were played, where any were."""
    played = any("worst_residual_se" in row.get("metrics", {}) for row in rows)
    return " Trials are spread over ten independent paths of realisations." if played else ""


def settings_of(args: Common) -> dict[str, Any]:
    """What decides the results: all settings but those of where and in how many processes."""
    values = {f.name: getattr(args, f.name) for f in fields(args)}
    return {k: _portable(v) for k, v in values.items() if k not in ("out", "logs", "workers")}


def _portable(value: Any) -> Any:
    """A path inside the repository without the part that differs between machines."""
    root = Path(__file__).resolve().parents[2]
    inside = isinstance(value, Path) and value.resolve().is_relative_to(root)
    return str(value.resolve().relative_to(root)) if inside else value


def claims_table(claims: Sequence[Claim] | Sequence[Mapping[str, str]]) -> str:
    """One line per claim."""
    if not claims:
        return ""
    lines = ["| claim | paper | ours | verdict | why |", "|---|---|---|---|---|"]
    for claim in claims:
        c = claim if isinstance(claim, Mapping) else asdict(claim)
        lines.append(f"| {c['claim']} | {c['paper']} | {c['ours']} | **{c['verdict']}** | {c['reason']} |")
    return "\n".join(lines) + "\n"


def table(
    rows: Sequence[Row], metrics: Sequence[str], paper: Mapping[str, Mapping[str, float]] | None = None
) -> str:
    """One line per agent: mean ± standard deviation over instances, the paper's figure in brackets."""
    names = [m.replace("_", " ") for m in (*metrics, "seconds")]
    lines = [f"| agent | n | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for agent, own in tables.by_agent(rows).items():
        cells = []
        for metric in (*metrics, "seconds"):
            said = (paper or {}).get(agent, {}).get(metric)
            text = tables.cell(*tables.mean_std(own, metric))
            cells.append(text if said is None else f"{text} [{said:g}]")
        lines.append(f"| {agent} | {len(own)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def panels(
    rows: Sequence[Row],
    metrics: Sequence[str],
    title: str,
    *,
    first: str | None = None,
    marks: Mapping[str, float] | None = None,
    log_scaled: Sequence[str] = (),
) -> Figure:
    """A panel per metric, a line per agent: every instance a dot, the mean with its 95 % interval.

    The agent `first` stands out; `marks` draws vertical lines, such as a required rate.
    """
    agents = list(tables.by_agent(rows))
    fig, axes = drawing.figure(
        3.1 * len(metrics) + 1.2, 1.1 + 0.42 * len(agents), ncols=len(metrics), sharey=True, squeeze=False
    )
    for ax, metric in zip(axes[0], metrics, strict=True):
        for y, agent in enumerate(agents):
            values = values_of(rows, agent, metric)
            colour = drawing.MISSED if agent == first else drawing.MET
            ax.scatter(values, np.full(len(values), y), s=9, color=colour, alpha=0.3, linewidths=0)
            if interval := bootstrap(values):
                ax.plot([interval.low, interval.high], [y, y], color=colour, lw=2.5, solid_capstyle="butt")
            ax.plot(values.mean(), y, "D" if agent == first else "o", color=colour, ms=7, mec="white")
        if metric in (marks or {}):
            ax.axvline((marks or {})[metric], color="black", lw=0.9, ls="--")
        if metric in log_scaled:
            logarithmic(ax, [row["metrics"][metric] for row in rows])
        ax.set_xlabel(axis_label(metric, rows))
        ax.grid(alpha=0.3)
    axes[0, 0].set_yticks(range(len(agents)), agents)
    axes[0, 0].set_ylim(len(agents) - 0.5, -0.5)
    fig.suptitle(title, fontsize=11)
    return fig


def band(
    ax: Any,
    x: Sequence[float],
    rows: Sequence[Row],
    agents: Sequence[str],
    metric: str,
    *,
    against: str | None = None,
    **style: Any,
) -> None:
    """A line through the means of one agent per x, less `against`, with the band of their 95 % intervals."""
    values = [values_of(rows, agent, metric, against) for agent in agents]
    ax.set_ylabel(axis_label(metric, rows))
    (line,) = ax.plot(x, [v.mean() for v in values], **style)
    ends = [e for v in values if (e := bootstrap(v)) is not None]
    if len(ends) == len(values):
        low, high = [e.low for e in ends], [e.high for e in ends]
        ax.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def values_of(rows: Sequence[Row], agent: str, metric: str, against: str | None = None) -> np.ndarray:
    """One agent's metric over instances, less that of another on the same ones."""
    own = by_instance(rows, agent, metric)
    other = dict.fromkeys(own, 0.0) if against is None else by_instance(rows, against, metric)
    return np.array([own[i] - other[i] for i in sorted(own.keys() & other.keys())])


def logarithmic(ax: Any, values: Sequence[float]) -> None:
    """A logarithmic axis, with a place for zeros where there are any, and few enough labels to read."""
    positive = [v for v in values if v > 0]
    if not positive:
        return
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    if len(positive) < len(values):
        ax.set_xscale("symlog", linthresh=10.0**low)
        ax.set_xticks([0.0, *(10.0**k for k in range(low, high + 1, max(1, (high - low + 2) // 4)))])
        return
    ax.set_xscale("log")
    if high - low <= 2:
        marks = [m * 10.0**k for k in range(low, high) for m in (1, 2, 5)]
        marks = [m for m in marks if 0.8 * min(positive) <= m <= 1.2 * max(positive)]
        ax.set_xticks(marks, [f"{m:g}" for m in marks])
        ax.minorticks_off()
