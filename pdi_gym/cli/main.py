"""The command line: `pdi-gym list | compare | reproduce | render | bench`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pdi_gym.agents import list_agents
from pdi_gym.cli import printing
from pdi_gym.cli.train import Train
from pdi_gym.envs import make_env
from pdi_gym.evaluation import compare, named_agent
from pdi_gym.experiments import bench
from pdi_gym.files import writable_folder, write_text
from pdi_gym.report import animation
from pdi_gym.store import Row, Store
from pdi_gym.validation import check_choice


@dataclass
class List:
    """Show the environments and the agents: what they apply to, which need training."""

    json: Path | None = None
    """Also write both lists to this file."""
    quiet: bool = False
    """Print no tables."""

    def run(self, console: Console) -> None:
        check_json(self.json)
        content = printing.catalogue()
        if self.json is not None:
            write_text(self.json, json.dumps(content, indent=1))
        if not self.quiet:
            console.print(*printing.catalogue_tables(content))


@dataclass
class Compare:
    """Sample a policy with every agent on some instances and judge it over ergodic horizons."""

    env: tyro.conf.Positional[str]
    """Environment id, for example WirelessPower-v0."""
    agents: tuple[str, ...] = ()
    """Agents by name, or name@preset; all that apply, are installed and need no training when left out."""
    instances: int | None = None
    """How many instances of the split; 4 when left out, or all if there are fewer."""
    horizon: int = 500
    """Slots of an ergodic horizon."""
    trials: int = 50
    """Horizons over which slot averages are averaged."""
    paths: int = 10
    """Independent paths of realisations over which the horizons are spread."""
    n: int | None = None
    """Decisions per policy; the problem's preset when left out."""
    seed: int = 0
    """Seed of inference and evaluation (independent streams)."""
    workers: int = 1
    """Processes, one thread each."""
    baseline: str | None = None
    """Agent that the report compares the others with; the first when left out."""
    out: str | None = None
    """Folder for rows, policies, events and figures; runs/logs/<env>-seed<seed> when left out."""
    json: Path | None = None
    """Also write the list of rows to this file."""
    quiet: bool = False
    """Print no progress and no table."""

    def run(self, console: Console) -> None:
        env = make_env(self.env, {})
        names = self.agents or tuple(list_agents(env.problem))
        instances = min(4, env.n_instances) if self.instances is None else self.instances
        if self.baseline is not None:
            check_choice("baseline", self.baseline, names)
        check_json(self.json)
        default = f"runs/logs/{self.env}-seed{self.seed}"
        out = writable_folder("out", default if self.out is None else self.out)
        settings = {
            "env": self.env,
            "instances": instances,
            "horizon": self.horizon,
            "trials": self.trials,
            "paths": self.paths,
            "n": self.n,
            "seed": self.seed,
        }
        from pdi_gym.report.outputs import (  # draws: Matplotlib takes a while to load
            report_folder,
            write_outputs,
        )

        folder = report_folder(out, settings, names)
        if folder != out and not self.quiet:
            console.print(
                f"{out} has the report of another comparison; this one goes to {folder}", soft_wrap=True
            )
        with resumable(out):
            rows = self._rows(console, names, instances, out)
            problem = env.make_problem(0)
            page = write_outputs(folder, rows, settings, problem, self.baseline, self.workers, Store(out))
        if self.json is not None:
            write_text(self.json, json.dumps(rows, indent=1))
        if not self.quiet:
            title = f"{self.env}, {instances} instance{'s' * (instances > 1)}"
            # Rich would cut figures to fit the window: let a line run over its edge instead.
            wide = Console(width=max(console.width, 200))
            wide.print(printing.comparison_table(rows, title, console.width))
            console.print(
                f"Report: {page}\nFigures and table: {folder}\nRows and policies: {out}\n"
                f"TensorBoard: tensorboard --logdir {shlex.quote(str(folder / 'tensorboard'))}\n"
                "  and then http://localhost:6006/#custom_scalars",
                soft_wrap=True,
            )

    def _rows(self, console: Console, names: tuple[str, ...], instances: int, out: Path) -> list[Row]:
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=self.quiet,
        )
        with progress:
            bar = progress.add_task(self.env, total=len(names) * instances)

            def advance(row: Row) -> None:
                progress.update(bar, advance=1, description=f"{self.env}: {row['agent']}")

            return compare(
                names,
                self.env,
                instances,
                self.horizon,
                self.trials,
                self.seed,
                self.workers,
                out,
                paths=self.paths,
                n=self.n,
                on_row=advance,
            )


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Say, when stopped or failing, that nothing finished is lost."""
    advice = f"Finished rows are in {out}: the same command goes on from there."
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(advice) from None
    except (OSError, RuntimeError, FloatingPointError) as error:
        raise RuntimeError(f"{error}\n{advice}") from error


def check_json(path: Path | None) -> None:
    """Refuse, before any work, a file that could not be written after it."""
    if path is not None:
        writable_folder("json", path.parent)
        if path.is_dir():
            raise ValueError(f"json must be a file, got the folder {str(path)!r}")


@dataclass
class Reproduce:
    """Run experiments of the paper by name, from a clone of the repository."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Experiments, or all."""
    list: bool = False
    """Show the names, one per line with a sentence, and run nothing."""
    quick: bool = False
    """About a minute each, into runs/logs/reproduce-quick; the committed results stay as they are."""
    workers: int = 1
    """Processes, one thread each."""

    def run(self, console: Console) -> None:
        from pdi_gym.experiments import registry  # only this command needs it

        if self.list:
            for name, sentence in registry.EXPERIMENTS.items():
                console.print(f"{name:<25}{sentence}", soft_wrap=True, highlight=False)
            return
        failed = []
        names = registry.chosen(self.names)
        for name in names:
            try:
                registry.reproduce(name, quick=self.quick, workers=self.workers)
            except Exception as error:
                if len(names) == 1:
                    raise
                failed.append(name)
                console.print(f"{name}: {error}", style="red", markup=False)
        if failed:
            raise OSError(f"failed: {', '.join(failed)}")


@dataclass
class Render:
    """Play one horizon with an agent and draw it: a still (.png) or an animation (.gif)."""

    env: tyro.conf.Positional[str]
    """Environment id, for example WirelessPower-v0."""
    agent: str = "pdi-mc"
    """Agent by name, or name@preset."""
    slots: int = 100
    """Slots of the horizon; an animation shows at most 50 moments of it."""
    instance: int = 0
    """Which instance of the split."""
    seed: int = 0
    """Seed of the agent and of the slots."""
    out: Path = Path("horizon.png")
    """File to write, .png or .gif."""
    quiet: bool = False
    """Do not say what was written."""

    def run(self, console: Console) -> None:
        animation.render(self.env, named_agent(self.agent), self.slots, self.out, self.instance, self.seed)
        if not self.quiet:
            console.print(f"Written: {self.out}", soft_wrap=True)


@dataclass
class Bench:
    """Measure the speed-critical paths, as ratios within one run on one thread."""

    names: tuple[str, ...] = field(default_factory=tuple)
    """Which benchmarks; all when left out."""
    json: Path | None = None
    """Also write the results to this file."""
    quiet: bool = False
    """Print nothing."""

    def run(self, console: Console) -> None:
        check_json(self.json)
        table = Table("benchmark", "this", "against", "ratio", "target", title="Ratios within this run")
        results = []
        for result in bench.run(self.names):
            results.append(asdict(result) | {"ratio": result.ratio})
            table.add_row(*result.cells())
            if not self.quiet:
                console.print(f"{result.name}: {result.ratio:.2f} (target {result.target})")
        if self.json is not None:
            write_text(self.json, json.dumps(results, indent=1))
        if not self.quiet:
            console.print(table)


Command = (
    Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Render, tyro.conf.subcommand("render")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def main(args: list[str] | None = None) -> None:
    """Entry point. Exit code 2 for bad usage, 1 for a failure or an interruption."""
    console = Console()
    errors = Console(stderr=True)
    chosen = tyro.cli(Command, prog="pdi-gym", args=args)
    try:
        chosen.run(console)
    except (ValueError, TypeError) as error:
        errors.print(f"pdi-gym: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except (OSError, RuntimeError, FloatingPointError) as error:
        errors.print(f"pdi-gym: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt as stop:
        errors.print(f"\nInterrupted. {stop}", markup=False, soft_wrap=True)
        sys.exit(1)
