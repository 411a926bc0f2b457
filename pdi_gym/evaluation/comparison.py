"""Comparing agents on instances: rows that are the same for any number of workers, and reused."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from pdi_gym import seeding
from pdi_gym._version import __version__
from pdi_gym.agents import Agent, make_agent
from pdi_gym.digests import UndigestibleError, content_digest
from pdi_gym.envs import make_env
from pdi_gym.evaluation.judging import averages, summarise
from pdi_gym.files import remove_leftovers, writable_folder
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem, check_problem
from pdi_gym.processes import in_processes, one_thread
from pdi_gym.store import Row, Store
from pdi_gym.time_sharing.violations import violation
from pdi_gym.validation import check_int


@dataclass(frozen=True)
class Job:
    """One agent on one instance; computing it is pure, so any process can."""

    label: str
    agent: Agent
    instance: int
    problem: Problem
    target: str
    """The environment's id or the problem's class, for messages."""
    n: int | None
    horizon: int
    trials: int
    paths: int
    seed: int

    def settings(self) -> dict[str, Any]:
        """All that decides the result but the content of the problem, ready for JSON."""
        evaluation = {name: getattr(self, name) for name in ("n", "horizon", "trials", "paths", "seed")}
        return {"version": __version__, **evaluation, **self.agent.config(self.problem)}

    def key(self) -> str:
        """The digest of the settings, the problem's content and, for a user's own agent, the agent's."""
        agent: Any = type(self.agent)
        if not agent.__module__.startswith("pdi_gym."):  # whose settings tell all, weights included
            agent = (agent, {k: v for k, v in vars(self.agent).items() if not k.startswith("_")})
        return content_digest(self.settings(), self.problem, agent)


def compare(
    agents: Sequence[str | Agent] | Mapping[str, str | Agent],
    env_id: str | Problem | Sequence[Problem],
    instances: int | None = None,
    horizon: int = 500,
    trials: int = 50,
    seed: int = 0,
    workers: int = 1,
    out: str | Path | None = None,
    *,
    paths: int = 10,
    n: int | None = None,
    env_kwargs: dict[str, Any] | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Every agent on a problem, on several, or on the first instances of an environment's split.

    `env_id` is an environment id (`instances` of its split: 4 when left out, or all if fewer), a problem or
    a sequence of problems. Agents are names, agents, or a mapping from the table's labels to either.
    Rows are the same for any number of workers, each a process with one thread. With `out`, every
    finished row and its policy are kept there as JSON and npz, and a repeated call reuses those whose
    version, options, weights, evaluation and problem, to the last bit, are the same. `on_row` sees each
    row as it comes. A row's `violation` is None if the averages met all constraints, and otherwise their
    total violation and the constraints that carry it.
    """
    for name, value in (("horizon", horizon), ("trials", trials), ("workers", workers), ("paths", paths)):
        check_int(name, value, 1)
    seeding.rng(seed, seeding.POLICY)
    if n is not None:
        check_int("n", n, 1)
    labelled = _labelled(agents)
    problems = _problems(env_id, instances, env_kwargs)
    _check_applicable(labelled, problems, _name(env_id, problems[0]))
    store = None
    if out is not None:
        store = Store(writable_folder("out", out))
        remove_leftovers(store.folder)
    jobs = [
        Job(label, agent, i, problem, _name(env_id, problem), n, horizon, trials, paths, seed)
        for i, problem in enumerate(problems)
        for label, agent in labelled.items()
    ]
    rows: dict[tuple[str, int], Row] = {}
    for row in _rows(jobs, store, workers):
        rows[row["agent"], row["instance"]] = row
        if on_row is not None:
            on_row(row)
    return [rows[label, i] for label in labelled for i in range(len(problems))]


def _problems(
    on: str | Problem | Sequence[Problem], instances: int | None, env_kwargs: dict[str, Any] | None
) -> list[Problem]:
    """The problems to compare on, checked."""
    if isinstance(on, str):
        env: Any = make_env(on, dict(env_kwargs or {}))
        count = min(4, env.n_instances) if instances is None else check_int("instances", instances, 1)
        if count > env.n_instances:
            raise ValueError(f"instances must be ≤ {env.n_instances} for {on}, got {count}")
        return [env.make_problem(i) for i in range(count)]
    if env_kwargs:
        raise ValueError("env_kwargs must be left out with problems: they are an environment's")
    problems: list[Problem] = [*on] if isinstance(on, list | tuple) else [cast(Problem, on)]
    if not problems:
        raise ValueError("the problems to compare on must be at least one, got none")
    if instances is not None and check_int("instances", instances, 1) > len(problems):
        raise ValueError(f"instances must be ≤ {len(problems)}, the number of problems, got {instances}")
    for problem in problems:
        check_problem(problem)
    return problems[:instances]


def _name(env_id: str | Problem | Sequence[Problem], problem: Problem) -> str:
    return env_id if isinstance(env_id, str) else type(problem).__name__


def _check_applicable(agents: Mapping[str, Agent], problems: Sequence[Problem], target: str) -> None:
    for label, agent in agents.items():
        if not all(type(agent).applies(problem) for problem in problems):
            raise ValueError(f"{label} does not apply to {target}: see list_agents(problem)")
        if command := type(agent).missing():
            raise ValueError(f"{label} needs a package that is not installed: {command}")


def _rows(jobs: list[Job], store: Store | None, workers: int) -> Iterator[Row]:
    """Stored rows first, then the others as they are computed and stored."""
    missing: list[tuple[Job, str | None]] = []
    for job in jobs:
        key = None if store is None else _key_or_warning(job)
        found = None if store is None else store.load(job.label, job.instance, key)
        if found is None or "violation" not in found:
            missing.append((job, key))
        else:
            yield found
    for row, policy, residuals in in_processes(workers, [(solve, pair) for pair in missing]):
        if store is not None:
            job = next(t for t, _ in missing if (t.label, t.instance) == (row["agent"], row["instance"]))
            store.save(row, job.settings(), policy, residuals)
        yield row


def _key_or_warning(job: Job) -> str | None:
    try:
        return job.key()
    except UndigestibleError as error:
        warnings.warn(f"rows of {job.label} on {job.target} cannot be reused: {error}", stacklevel=4)
        return None


def solve(job: Job, key: str | None = None) -> tuple[Row, TimeSharingPolicy, np.ndarray]:
    """Sample and evaluate one agent on one instance, on one thread: row, policy, residuals (m,)."""
    with one_thread(), _named_failure(job):
        start = time.process_time()  # one thread: what a quiet machine's clock would show
        policy = job.agent.sample(job.problem, job.n, job.seed)
        seconds = time.process_time() - start
        played = averages(policy, job.problem, job.horizon, job.trials, job.paths, job.seed)
        metrics = summarise(policy, job.problem, played)
    residuals = played.residuals.mean(0).numpy()
    row = {
        "agent": job.label,
        "instance": job.instance,
        "metrics": metrics,
        "violation": violation(job.problem, residuals),
        "seconds": seconds,
        "key": key,
    }
    return row, policy, residuals


@contextmanager
def _named_failure(job: Job) -> Iterator[None]:
    """Say which agent failed where: in a pool the traceback alone does not."""
    try:
        yield
    except Exception as error:
        where = f"{job.label} on instance {job.instance} of {job.target}"
        raise RuntimeError(f"{where}: {type(error).__name__}: {error}") from error


def _labelled(agents: Sequence[str | Agent] | Mapping[str, str | Agent]) -> dict[str, Agent]:
    if isinstance(agents, str) or not isinstance(agents, Sequence | Mapping):
        raise ValueError(f"agents must be a list of names or agents, or a mapping of labels, got {agents!r}")
    given = agents.values() if isinstance(agents, Mapping) else agents
    if strangers := [a for a in given if not isinstance(a, str | Agent)]:
        raise ValueError(f"agents must be names or agents, got {strangers[0]!r}")
    named = agents.items() if isinstance(agents, Mapping) else [_label(a) for a in agents]
    if not named:
        raise ValueError("agents must name at least one agent")
    if len({label for label, _ in named}) < len(named):
        raise ValueError("agents must differ by name: give a mapping from labels of your own")
    if any(not isinstance(label, str) or not label for label, _ in named):
        raise ValueError("the labels of agents must be words, not empty")
    return {label: named_agent(a) if isinstance(a, str) else a for label, a in named}


def _label(agent: str | Agent) -> tuple[str, str | Agent]:
    return (agent if isinstance(agent, str) else agent.name), agent


def named_agent(name: str) -> Agent:
    """`pdi-mc`, or `pdi-mc@paper` for another preset."""
    agent, _, preset = name.partition("@")
    return make_agent(agent, preset or "fast")
