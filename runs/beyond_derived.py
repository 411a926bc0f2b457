"""What `beyond_table.py` derives from stored policies: each pool reweighted, and the best mix of all."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdi_gym import seeding
from pdi_gym.evaluation import Row, evaluate, slug
from pdi_gym.files import write_text
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.processes import one_thread
from pdi_gym.time_sharing.column_generation import Pool
from pdi_gym.time_sharing.reference import Reference, reference_solution

DRAWS = 500
"""Realisations over which every pool is averaged, the same for all of them."""
SUFFIX = " + weights"


@dataclass(frozen=True)
class Derivation:
    """How policies are reweighted and referred to."""

    margin: float
    seed: int
    effort: int
    folder: Path
    """Finished rows; a row is reused while all that decides it is the same."""
    references: Path
    """Finished reference solutions."""


def reweighted_rows(
    how: Derivation, problem: Problem, policies: dict[str, TimeSharingPolicy], rows: list[Row]
) -> list[Row]:
    """Every policy with the best shares of its own decisions; seconds include those of its row."""
    found = {
        r["agent"]: _stored(how, r["agent"] + SUFFIX, r["instance"], [policies[r["agent"]]]) for r in rows
    }
    missing = [row for row in rows if found[row["agent"]] is None]
    start = time.perf_counter()
    pools = _pools(how, problem, {r["agent"]: policies[r["agent"]] for r in missing}) if missing else {}
    averaging = (time.perf_counter() - start) / max(len(missing), 1)
    for row in missing:
        label = row["agent"]
        make = _reweighting(policies[label], pools[label], how.margin)
        before = row["seconds"] + averaging
        found[label] = _judge(how, problem, label + SUFFIX, row["instance"], [policies[label]], make, before)
    return [row for row in found.values() if row is not None]


def reference_row(
    how: Derivation, problem: Problem, instance: int, policies: dict[str, TimeSharingPolicy]
) -> Row:
    """The best mix of a long search's decisions and those of every policy, so that none is better."""
    given = list(policies.values())
    stored = _stored(how, "reference", instance, given)
    if stored is not None:
        return stored

    def make() -> tuple[TimeSharingPolicy, dict[str, float]]:
        long = long_search(how, problem)
        pool = _pools(how, problem, {"all": _union([long.policy, *given])})["all"]
        mix = pool.mix(0.0)
        facts = {"value": mix.value}
        bounds = {"estimate": long.estimate, "bound": long.bound}
        facts |= {name: bound for name, bound in bounds.items() if bound is not None}
        return TimeSharingPolicy(pool.actions, mix.weights), facts

    return _judge(how, problem, "reference", instance, given, make)


def long_search(how: Derivation, problem: Problem) -> Reference:
    """The part of the reference that no policy decides: it stays when agents change."""
    with one_thread():
        return reference_solution(problem, seed=how.seed, effort=how.effort, cache=how.references)


def _union(policies: list[TimeSharingPolicy]) -> TimeSharingPolicy:
    """All decisions that have time, once each."""
    actions = np.concatenate([p.actions[p.weights > 0] for p in policies]).astype(np.float32)
    return TimeSharingPolicy(np.unique(actions, axis=0))


def _pools(how: Derivation, problem: Problem, policies: dict[str, TimeSharingPolicy]) -> dict[str, Pool]:
    """The policies' decisions, all averaged over the same realisations."""
    edges = np.cumsum([0, *(len(p) for p in policies.values())])
    actions = np.concatenate([p.actions for p in policies.values()])
    with one_thread():
        pool = Pool.of(problem, actions, DRAWS, seeding.generator(how.seed, seeding.POLICY, 1))
    return {label: pool[np.arange(*edges[k : k + 2])] for k, label in enumerate(policies)}


def _reweighting(
    policy: TimeSharingPolicy, pool: Pool, margin: float
) -> Callable[[], tuple[TimeSharingPolicy, dict[str, float]]]:
    def make() -> tuple[TimeSharingPolicy, dict[str, float]]:
        mix = pool.mix(margin)
        return TimeSharingPolicy(policy.actions, mix.weights), {"mix_feasible": float(mix.met)}

    return make


def _judge(
    how: Derivation,
    problem: Problem,
    label: str,
    instance: int,
    given: list[TimeSharingPolicy],
    make: Callable[[], tuple[TimeSharingPolicy, dict[str, float]]],
    before: float = 0.0,
) -> Row:
    with one_thread():
        start = time.perf_counter()
        policy, facts = make()
        seconds = before + time.perf_counter() - start
        metrics = evaluate(policy, problem, seed=how.seed) | facts
    metrics["support"] = float((policy.weights > 0).sum())
    row = {"agent": label, "instance": instance, "metrics": metrics, "seconds": seconds}
    content: dict[str, Any] = {"key": _key(how, label, given), "row": row}
    write_text(_path(how, label, instance), json.dumps(content, indent=1))
    return row


def _stored(how: Derivation, label: str, instance: int, given: list[TimeSharingPolicy]) -> Row | None:
    path = _path(how, label, instance)
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    row: Row = content["row"]
    return row if content["key"] == _key(how, label, given) else None


def _path(how: Derivation, label: str, instance: int) -> Path:
    return how.folder / "derived" / f"{slug(label)}-{instance}.json"


def _key(how: Derivation, label: str, given: list[TimeSharingPolicy]) -> str:
    settings = how.effort if label == "reference" else how.margin
    digest = hashlib.sha256(repr((settings, how.seed, DRAWS)).encode())
    for policy in given:
        digest.update(policy.actions.tobytes() + policy.weights.tobytes())
    return digest.hexdigest()[:24]
