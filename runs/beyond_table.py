"""What optimal time sharing, column generation and better dynamics add to the paper's sampler.

python runs/beyond_table.py wireless     # 64 test networks, after runs/wireless_table.py
python runs/beyond_table.py portfolio    # 20 test instances, after runs/portfolio_table.py
python runs/beyond_table.py mixture      # d = 30, eight seeds, certified bounds
python runs/beyond_table.py ablation     # what each part gives, on validation networks

Agents run through `compare`; then every stored pool is reweighted and joins the pool of the reference
solution, and both are judged by the same `evaluate` under the same seed. Trained agents join as soon as
the paper's tables have their rows. A killed run continues where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from beyond_derived import Derivation, reference_row, reweighted_rows
from beyond_report import paired_table, pareto, table, write

from pdi_gym.agents import Agent, make_agent
from pdi_gym.envs import make_env
from pdi_gym.evaluation import compare
from pdi_gym.processes import in_processes
from pdi_gym.report import tables
from pdi_gym.store import Row, Store, slug

WIRELESS = ("mean_rate", "p5_rate", "p1_rate", "mean_violation", "feasible", "support")
PORTFOLIO = ("mean_return", "mean_violation", "feasible", "n_eff", "top1_count", "support")
LEARNED = ("pdi-net", "pdi-net-warm", "st", "dt", "dt-plus")
MIXTURE = ("objective", "mean_violation", "feasible", "modes", "support")
SECONDS = (
    "Seconds are CPU seconds of the sampler, means of two validation networks in one run; those of "
    "weighing a pool are left out."
)
OFF = {"heat": 1.0, "cool": 1.0, "momentum": 0.0, "margin": 0.0}
ISSUE = {"first": "pdi", "pool": 100, "fresh_from": "diffusion", "warm": 0, "fresh": 50, "price_steps": 0}
LONG = {"preset": "paper"}
ABLATION: dict[str, tuple[str, dict[str, Any]]] = {
    "pdi-mc": ("pdi-mc", {}),
    "cg: cold diffusion makes pool and columns": ("pdi-cg", LONG | ISSUE),
    "cg: the same, columns polished by descent": ("pdi-cg", LONG | ISSUE | {"price_steps": 100}),
    "cg: diffusion pool, descent from random": ("pdi-cg", LONG | {"first": "pdi"}),
    "cg: program over the dual method, no rounds": ("pdi-cg", LONG | {"rounds": 0}),
    "cg: no smoothing": ("pdi-cg", LONG | {"smoothing": 0.0}),
    "cg: no margin": ("pdi-cg", LONG | {"margin": 0.0}),
    "cg: margin .02": ("pdi-cg", LONG | {"margin": 0.02}),
    "pdi-cg@paper": ("pdi-cg", LONG),
    "pdi-cg": ("pdi-cg", {}),
    "adaptive: annealing only": ("pdi-adaptive", OFF | {"heat": 4.0, "cool": 0.25}),
    "adaptive: momentum only": ("pdi-adaptive", OFF | {"momentum": 0.8}),
    "adaptive: margin only": ("pdi-adaptive", OFF | {"margin": 0.2}),
    "pdi-adaptive": ("pdi-adaptive", {}),
}


@dataclass
class Args:
    part: Annotated[str, tyro.conf.Positional] = "wireless"
    """wireless, portfolio, mixture or ablation."""
    instances: int | None = None
    """Instances; 64 networks, 20 portfolios, 8 mixtures, 6 networks for the ablation."""
    derived_instances: int | None = None
    """Instances on which pools are reweighted; all when left out."""
    reference_instances: int | None = None
    """Instances, among these, with a reference solution; all when left out."""
    effort: int = 2
    """Of the reference solutions."""
    n: int | None = None
    """Decisions per policy; 256 for portfolios and the preset's number for others when left out."""
    workers: int = 1
    """Processes, one thread each."""
    seed: int = 0
    """Seed of inference and, by independent streams, of evaluation."""
    logs: Path = Path("runs/logs/beyond_table")
    """Finished rows and policies."""
    out: Path = Path("runs/results/beyond_table")
    """Folder of the tables and figures."""


@dataclass(frozen=True)
class Study:
    """One comparison: agents by label on instances of one environment."""

    env_id: str
    kwargs: dict[str, Any]
    agents: dict[str, Agent]
    instances: int
    margin: float = 0.0
    case: str | None = None
    shared: tuple[str, ...] = ()
    """Rows that another table's run left in `shared_logs`."""
    shared_logs: Path = Path()


def agents_of(*labels: str) -> dict[str, Agent]:
    return {
        label: make_agent(*label.partition("@")[::2]) if "@" in label else make_agent(label)
        for label in labels
    }


def run_agents(args: Args, study: Study, n: int | None) -> list[Row]:
    """The agents' own rows."""
    rows = compare(
        study.agents,
        study.env_id,
        study.instances,
        seed=args.seed,
        workers=args.workers,
        out=folder_of(args, study),
        n=n,
        env_kwargs=study.kwargs,
        on_row=lambda row: print(study.case or "", row["agent"], row["instance"], flush=True),
    )
    for label in study.shared:
        rows += shared_rows(study, label)
    for row in rows:
        policy, _ = store_of(args, study, row).policy(row)
        row["metrics"]["support"] = float((policy.weights > 0).sum())
    return [row | {"case": study.case} for row in rows]


def shared_rows(study: Study, label: str) -> list[Row]:
    """The other table's rows of that label, as far as it has them."""
    paths = sorted(
        (study.shared_logs / "rows").glob(f"{slug(label)}-*.json"), key=lambda p: p.stat().st_mtime
    )
    newest = {row["instance"]: row for row in (json.loads(p.read_text())["row"] for p in paths)}
    rows = [newest[i] for i in range(study.instances) if i in newest and newest[i]["agent"] == label]
    if not rows:
        where = study.shared_logs / "rows"
        raise SystemExit(f"{where} has no row of {label}: run the paper's table of {study.env_id} first")
    return rows


def store_of(args: Args, study: Study, row: Row) -> Store:
    return Store(study.shared_logs if row["agent"] in study.shared else folder_of(args, study))


def folder_of(args: Args, study: Study) -> Path:
    return args.logs / (study.case or study.env_id)


def run_derived(args: Args, study: Study, rows: list[Row]) -> list[Row]:
    """Every agent's pool reweighted, and the reference solution over all of them."""
    derived = study.instances if args.derived_instances is None else args.derived_instances
    references = derived if args.reference_instances is None else args.reference_instances
    calls = [
        (derive, (args, study, i, [r for r in rows if r["instance"] == i], i < references))
        for i in range(min(study.instances, derived))
    ]
    found: list[Row] = []
    for own in in_processes(args.workers, calls):
        print(study.case or "", "derived", own[0]["instance"], flush=True)
        found += own
    return sorted(found, key=lambda row: row["instance"])


def derive(args: Args, study: Study, instance: int, rows: list[Row], reference: bool) -> list[Row]:
    problem = make_env(study.env_id, study.kwargs).make_problem(instance)
    policies = {r["agent"]: store_of(args, study, r).policy(r)[0] for r in rows}
    how = Derivation(study.margin, args.seed, args.effort, folder_of(args, study), args.logs / "reference")
    found = reweighted_rows(how, problem, policies, [r for r in rows if r["agent"] != "pdi-cg"])
    if reference:
        found.append(reference_row(how, problem, instance, policies))
    return [row | {"case": study.case} for row in found]


def study_rows(args: Args, study: Study, n: int | None) -> list[Row]:
    rows = run_agents(args, study, n)
    return rows + run_derived(args, study, rows)


def with_learned(study: Study) -> Study:
    """The study with those trained agents of which the paper's table has rows."""
    stored = [name for name in LEARNED if any((study.shared_logs / "rows").glob(f"{name}-[0-9]*.json"))]
    return replace(study, shared=(*study.shared, *stored))


def timed(args: Args, rows: list[Row], env_kwargs: dict[str, Any]) -> list[Row]:
    """The rows with their sampler's CPU seconds on two other networks, all measured in the same way.

    Rows of the paper's table come from many runs, the older ones timed by the clock of a busy machine.
    """
    samplers = {label: "pdl@paper" if label == "pdl" else label for label in tables.by_agent(rows)}
    agents = {k: v for k, v in samplers.items() if k != "reference" and not k.endswith(" + weights")}
    found = compare(
        list(agents.values()),
        "WirelessPower-v0",
        2,
        seed=args.seed,
        workers=args.workers,
        out=args.logs / "seconds",
        n=200,
        trials=2,
        env_kwargs=env_kwargs,
    )
    seconds = {label: tables.mean_std(own, "seconds")[0] for label, own in tables.by_agent(found).items()}

    def own(row: Row) -> float:
        sampler = agents.get(row["agent"].removesuffix(" + weights"))
        return float(row["seconds"] if sampler is None else seconds[sampler])

    return [row | {"seconds": own(row)} for row in rows]


def wireless(args: Args) -> None:
    study = with_learned(
        Study(
            "WirelessPower-v0",
            {"split": "test"},
            agents_of("pdi-adaptive", "pdi-cg"),
            args.instances or 64,
            margin=0.05,
            shared=("unconstrained", "pdi-mc", "pdl", "dps", "expert", "pdi-mc@paper"),
            shared_logs=Path("runs/logs/wireless_table"),
        )
    )
    rows = timed(args, study_rows(args, study, args.n), {"split": "validation"})
    text = table(rows, WIRELESS) + f"\n{SECONDS}\n\n" + paired_table(rows, "pdi-mc", WIRELESS)
    finish(args, "wireless", rows, text, "mean_rate", "mean rate in bit/s/Hz")


def portfolio(args: Args) -> None:
    study = with_learned(
        Study(
            "Portfolio-v0",
            {"split": "test"},
            agents_of("pdi-adaptive", "pdi-cg"),
            args.instances or 20,
            shared=("unconstrained", "pdi-mc", "pdl", "dps", "expert"),
            shared_logs=Path("runs/logs/portfolio_table"),
        )
    )
    rows = study_rows(args, study, args.n or 256)
    text = table(rows, PORTFOLIO) + "\n" + paired_table(rows, "pdi-mc", PORTFOLIO)
    finish(args, "portfolio", rows, text, "mean_return", "mean return")


def mixture(args: Args) -> None:
    rows: list[Row] = []
    for seed in range(args.instances or 8):
        agents = agents_of("pdi-mc", "pdl", "pdi-adaptive", "pdi-cg")
        study = Study("MixtureOfGaussians-v0", {"seed": seed}, agents, 1, case=f"mixture {seed}")
        rows += study_rows(args, study, args.n)
    for row in rows:
        row["metrics"]["log_density"] = -row["metrics"]["objective"]
    first = [row for row in rows if row["case"] == "mixture 0"]
    gaps = [r["metrics"]["value"] - r["metrics"]["bound"] for r in rows if r["agent"] == "reference"]
    text = (
        f"Seed 0, the paper's instance:\n\n{table(first, MIXTURE)}\nAll seeds:\n\n{table(rows, MIXTURE)}\n"
        f"{paired_table(rows, 'pdi-mc', MIXTURE)}\n"
        f"Reference minus its certified lower bound: mean {np.mean(gaps):.4f}, largest {np.max(gaps):.4f}.\n"
    )
    finish(args, "mixture", rows, text, "log_density", "mean log density")


def ablation(args: Args) -> None:
    agents = {label: make_agent(name, **options) for label, (name, options) in ABLATION.items()}
    study = Study("WirelessPower-v0", {"split": "validation"}, agents, args.instances or 6, case="ablation")
    rows = run_agents(args, study, args.n)
    text = table(rows, WIRELESS) + "\n" + paired_table(rows, "pdi-mc", WIRELESS)
    finish(args, "ablation", rows, text, "mean_rate", "mean rate in bit/s/Hz")


def settings_of(args: Args) -> dict[str, Any]:
    return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(args).items()}


def finish(args: Args, name: str, rows: list[Row], text: str, quality: str, label: str) -> None:
    write(args.out, name, rows, text, settings_of(args))
    pareto(rows, quality, label, name.capitalize()).savefig(args.out / f"{name}.png", dpi=110)


PARTS = {f.__name__: f for f in (wireless, portfolio, mixture, ablation)}


def main(parts: dict[str, Callable[[Args], None]]) -> None:
    given = tyro.cli(Args)
    if given.part not in parts:
        raise SystemExit(f"part must be one of {', '.join(parts)}; got {given.part}")
    torch.set_num_threads(1)  # two threads on a busy core are slower than one
    parts[given.part](given)


if __name__ == "__main__":
    main(PARTS)
