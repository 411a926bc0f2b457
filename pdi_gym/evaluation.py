"""Judging time-sharing policies over ergodic horizons, and comparing the agents that make them."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from pdi_gym import seeding
from pdi_gym._version import __version__
from pdi_gym.agents import Agent, make_agent
from pdi_gym.files import remove_leftovers, whole_file, writable_folder, write_text
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.processes import in_processes
from pdi_gym.validation import check_int, suggest

Row = dict[str, Any]
"""{"agent", "instance", "metrics", "seconds"}; the seconds are the sampler's CPU seconds."""


def evaluate(
    policy: TimeSharingPolicy, problem: Problem, horizon: int = 500, trials: int = 50, seed: int = 0
) -> dict[str, float]:
    """What a policy achieves on average.

    Always `objective` (E f0, minimised), `mean_violation` (mean positive part of the average
    residuals) and `feasible` (fraction of constraints within the problem's tolerance), then the
    problem's own metrics. A problem with exact expectations is averaged over the atoms, weighted.
    Otherwise `trials` horizons are played over one path of realisations, each slot an atom drawn by
    its weight: averages over slots and trials decide, and `feasible_single` is the mean feasible
    fraction of *one* horizon, what a user lives through.
    """
    objective, residuals = averages(policy, problem, horizon, trials, seed)
    return summarise(policy, problem, objective, residuals)


@torch.no_grad()
def averages(
    policy: TimeSharingPolicy, problem: Problem, horizon: int = 500, trials: int = 50, seed: int = 0
) -> tuple[float, Tensor]:
    """The average objective and the average residuals (trials, m); one trial where they are exact."""
    check_int("horizon", horizon, 1), check_int("trials", trials, 1)
    if policy.actions.shape[1] != problem.latent_dim:
        raise ValueError(
            f"policy.actions must have {problem.latent_dim} columns, got {policy.actions.shape[1]}"
        )
    if not problem.exact:
        return _play(policy, problem, horizon, trials, seed)
    x = torch.as_tensor(policy.actions, dtype=torch.float32)
    weights = torch.as_tensor(policy.weights, dtype=torch.float64)
    residuals = weights @ problem.constraints(x).double()
    return float(weights @ problem.objective(x).double()), residuals.unsqueeze(0)


def summarise(
    policy: TimeSharingPolicy, problem: Problem, objective: float, residuals: Tensor
) -> dict[str, float]:
    """The metrics of `evaluate` from the averages of a policy."""
    average = residuals.mean(0)
    metrics = {
        "objective": objective,
        "mean_violation": float(average.clamp(min=0).mean()),
        "feasible": float((average <= problem.tolerance).double().mean()),
    }
    if not problem.exact:
        metrics["feasible_single"] = float((residuals <= problem.tolerance).double().mean())
    return metrics | problem.metrics(
        torch.as_tensor(policy.actions, dtype=torch.float32), torch.as_tensor(policy.weights), residuals
    )


def _play(
    policy: TimeSharingPolicy, problem: Problem, horizon: int, trials: int, seed: int
) -> tuple[float, Tensor]:
    """`trials` horizons over one path of slots, which environments seeded alike go through too."""
    atoms = np.stack([policy.schedule(horizon, seeding.rng(seed, seeding.TRIALS, k)) for k in range(trials)])
    actions = torch.as_tensor(policy.actions, dtype=torch.float32)
    objective = torch.zeros((), dtype=torch.float64)
    residuals = torch.zeros(trials, problem.n_constraints, dtype=torch.float64)
    slot = 0
    for chunk in problem.path(horizon, seeding.generator(seed, seeding.SLOTS)):
        if chunk is None:
            raise ValueError(
                f"{type(problem).__name__}.exact is False but it draws nothing: set exact = True"
            )
        for xi in torch.split(chunk, 1):
            x = actions[atoms[:, slot]]
            value, residual = problem.values(x, xi)
            objective += value.double().mean()
            residuals += residual.double()
            slot += 1
    return float(objective / horizon), residuals / horizon


@dataclass(frozen=True)
class Task:
    """One agent on one instance."""

    label: str
    agent: Agent
    instance: int
    env_id: str
    env_kwargs: dict[str, Any]
    n: int | None
    horizon: int
    trials: int
    seed: int

    def settings(self, problem: Problem) -> dict[str, Any]:
        """All that decides the result: a stored row is reused only under equal settings."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("label", "agent")}
        return {"version": __version__, **values, **self.agent.config(problem)}


def compare(
    agents: Sequence[str | Agent] | Mapping[str, str | Agent],
    env_id: str,
    instances: int | None = None,
    horizon: int = 500,
    trials: int = 50,
    seed: int = 0,
    workers: int = 1,
    out: str | Path | None = None,
    *,
    n: int | None = None,
    env_kwargs: dict[str, Any] | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Every agent on the first `instances` instances of an environment's split (4, or all if fewer).

    Agents are names, agents, or a mapping from the table's labels to either. Rows are the same for
    any number of workers, each a process with one thread. With `out`, every finished row and its
    policy are kept there as JSON and npz, and a repeated call with equal settings goes on where
    the last one stopped. `on_row` sees each row as it comes.
    """
    check_int("horizon", horizon, 1), check_int("trials", trials, 1), check_int("workers", workers, 1)
    seeding.rng(seed, seeding.POLICY)
    if n is not None:
        check_int("n", n, 1)
    labelled = _labelled(agents)
    kwargs = dict(env_kwargs or {})
    env: Any = make_env(env_id, kwargs)
    instances = min(4, env.n_instances) if instances is None else check_int("instances", instances, 1)
    if instances > env.n_instances:
        raise ValueError(f"instances must be ≤ {env.n_instances} for {env_id}, got {instances}")
    for label, agent in labelled.items():
        if not type(agent).applies(env.problem):
            raise ValueError(f"{label} does not apply to {env_id}: see list_agents(problem)")
        if command := type(agent).missing():
            raise ValueError(f"{label} needs a package that is not installed: {command}")
    folder = None if out is None else writable_folder("out", Path(out))
    if folder is not None:
        remove_leftovers(folder)
    tasks = [
        Task(label, agent, i, env_id, kwargs, n, horizon, trials, seed)
        for i in range(instances)
        for label, agent in labelled.items()
    ]
    rows: dict[tuple[str, int], Row] = {}
    for row in in_processes(workers, [(run, (task, folder)) for task in tasks]):
        rows[row["agent"], row["instance"]] = row
        if on_row is not None:
            on_row(row)
    return [rows[label, i] for label in labelled for i in range(instances)]


def run(task: Task, folder: Path | None = None) -> Row:
    """Sample and evaluate one agent on one instance, on one thread; reuse a stored equal row."""
    env: Any = make_env(task.env_id, task.env_kwargs)
    problem: Problem = env.make_problem(task.instance)
    settings = json.loads(json.dumps(task.settings(problem), default=str))
    path = None if folder is None else folder / "rows" / f"{slug(task.label)}-{task.instance}.json"
    if path is not None and (stored := _stored_row(path, settings)) is not None:
        return stored
    with one_thread(), _named_failure(task):
        start = time.process_time()  # one thread: what a quiet machine's clock would show
        policy = task.agent.sample(problem, task.n, task.seed)
        seconds = time.process_time() - start
        objective, residuals = averages(policy, problem, task.horizon, task.trials, task.seed)
        metrics = summarise(policy, problem, objective, residuals)
    row = {"agent": task.label, "instance": task.instance, "metrics": metrics, "seconds": seconds}
    if path is not None:
        path.unlink(missing_ok=True)  # of other settings: it must not outlive its policy
        _store_policy(_policy_of(path), policy, residuals)
        write_text(path, json.dumps({"row": row, "settings": settings}, indent=1))
    return row


@contextmanager
def _named_failure(task: Task) -> Iterator[None]:
    """Say which agent failed where: in a pool the traceback alone does not."""
    try:
        yield
    except Exception as error:
        where = f"{task.label} on instance {task.instance} of {task.env_id}"
        raise RuntimeError(f"{where}: {type(error).__name__}: {error}") from error


def _stored_row(path: Path, settings: dict[str, Any]) -> Row | None:
    """The row kept there if its settings are these, it is readable and so is its policy."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["settings"] != settings:
            return None
        load_policy(_policy_of(path))
        row: Row = stored["row"]
    except (FileNotFoundError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return row


def _policy_of(path: Path) -> Path:
    return path.parents[1] / "policies" / f"{path.stem}.npz"


def make_env(env_id: str, kwargs: dict[str, Any]) -> Any:
    """The bare environment of that id, with the close matches named when there is none."""
    if env_id not in gym.registry:
        known = [i for i, s in gym.registry.items() if str(s.entry_point).startswith("pdi_gym.")]
        raise ValueError(
            f"unknown environment {env_id!r}{suggest(env_id, known)}; there are {', '.join(known)}"
        )
    return gym.make(env_id, disable_env_checker=True, **kwargs).unwrapped


@contextmanager
def one_thread() -> Iterator[None]:
    """Bit-identical whatever the machine: another number of threads sums in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load_policy(path: str | Path) -> tuple[TimeSharingPolicy, np.ndarray]:
    """A policy stored by `compare` and its average residuals (m,)."""
    with np.load(path, allow_pickle=False) as data:
        stored = dict(data)
    trace = {k.removeprefix("trace."): v for k, v in stored.items() if k.startswith("trace.")}
    info = {"trace": trace} if trace else {}
    policy = TimeSharingPolicy(
        stored["actions"], stored["weights"], stored.get("duals"), stored.get("mean_duals"), info
    )
    return policy, stored["residuals"]


def stored_settings(folder: Path, row: Row) -> dict[str, Any]:
    """All that decided a row stored by `compare`: version, instance, agent, preset, options, …"""
    path = folder / "rows" / f"{slug(row['agent'])}-{row['instance']}.json"
    settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["settings"]
    return settings


def _store_policy(path: Path, policy: TimeSharingPolicy, residuals: Tensor) -> None:
    arrays = {"actions": policy.actions, "weights": policy.weights, "residuals": residuals.mean(0).numpy()}
    for name in ("duals", "mean_duals"):
        if getattr(policy, name) is not None:
            arrays[name] = getattr(policy, name)
    arrays |= {f"trace.{k}": v for k, v in policy.info.get("trace", {}).items()}
    with whole_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _labelled(agents: Sequence[str | Agent] | Mapping[str, str | Agent]) -> dict[str, Agent]:
    if isinstance(agents, str):
        raise ValueError(f"agents must be a list of names, got the string {agents!r}")
    named = agents.items() if isinstance(agents, Mapping) else [_label(a) for a in agents]
    if not named:
        raise ValueError("agents must name at least one agent")
    if len({slug(label) for label, _ in named}) < len(named):
        raise ValueError("agents must differ by name: give a mapping from labels of your own")
    return {label: named_agent(a) if isinstance(a, str) else a for label, a in named}


def _label(agent: str | Agent) -> tuple[str, str | Agent]:
    return (agent if isinstance(agent, str) else agent.name), agent


def named_agent(name: str) -> Agent:
    """`pdi-mc`, or `pdi-mc@paper` for another preset."""
    agent, _, preset = name.partition("@")
    return make_agent(agent, preset or "fast")


def slug(label: str) -> str:
    """The label as a file name."""
    return "".join(c if c.isalnum() or c in "-_.@" else "_" for c in label)
