"""Kills at random moments, and two runs in one folder."""

from __future__ import annotations

import contextlib
import csv
import functools
import importlib
import json
import multiprocessing
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from pdi_gym import store
from pdi_gym.checkpoints import load_tensors
from pdi_gym.cli import main as cli

for _late in ("report.outputs", "rl.training", "training.curve"):
    importlib.import_module(f"pdi_gym.{_late}")  # so that kills fall into the work, not into imports

Attack = Callable[[Path], dict[str, Any]]
ENV = "MixtureOfGaussians2D-v0"
NETWORK = (
    "steps=12 validate_every=3 seed_rollouts=1 chains=4 keep=8 problems=1 pairs=4 width=8 depth=1 "
    "validation_n=8"
)
ROUNDS = "n_envs=2 n_steps=8 batch_size=16 n_epochs=2 channels=4 horizon=10 steps=512"
COMMANDS = {
    "compare": f"compare {ENV} --n 32 --horizon 20 --agents random pdi-mc unconstrained pdl",
    "train pdi-net": f"train pdi-net {ENV} --option T=5 --set {NETWORK}",
    "train ppo": f"train ppo {ENV} --set {ROUNDS}",
}
STATES = ("state.safetensors", "ppo.safetensors")


def in_scratch(root: Path, attack: Attack) -> dict[str, Any]:
    """The record of an attack in an empty folder, which is removed afterwards."""
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=root))
    try:
        return attack(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start(name: str, out: Path) -> Any:
    """The command, in a process of its own that has everything loaded already."""
    words = [*COMMANDS[name].split(), "--quiet", "--out", str(out)]
    if name != "compare" and any((out / state).exists() for state in STATES):
        words.append("--resume")
    out.parent.mkdir(parents=True, exist_ok=True)
    process = multiprocessing.get_context("fork").Process(target=_run, args=(words, out.parent / "said.txt"))
    process.start()
    return process


def _run(words: list[str], said: Path) -> None:
    torch.set_num_threads(1)
    sys.argv = ["pdi-gym", *words]
    with said.open("a") as file, contextlib.redirect_stderr(file), contextlib.redirect_stdout(file):
        try:
            cli.main(words)
        except Exception:
            traceback.print_exc()
            sys.exit(3)


def outcome(name: str, out: Path) -> dict[str, Any]:
    """All that a finished run left but for seconds, in a form that can be compared."""
    files = (p.relative_to(out) for p in out.rglob("*") if p.is_file() and "tfevents" not in p.name)
    found: dict[str, Any] = {"names of files": sorted(map(str, files))}
    if name == "compare":
        rows = json.loads((out / "results.json").read_text())["rows"]
        found["rows"] = [(r["agent"], r["instance"], r["metrics"], r["key"]) for r in rows]
        with (out / "results.csv").open() as file:
            lines = [list(line.items()) for line in csv.DictReader(file)]
        found["csv"] = [[cell for cell in line if cell[0] != "seconds"] for line in lines]
        for path in out.glob("policies/*"):
            arrays = store.read_arrays(path)
            found[path.name] = {n: a.tobytes() for n, a in arrays.items() if n != "row"}  # it tells seconds
        return found
    for path in out.rglob("*.safetensors"):
        tensors, metadata = load_tensors(path)
        place = str(path.relative_to(out))
        found[place] = {n: t.numpy().tobytes() for n, t in tensors.items()}
        found[f"{place} says"] = _without_seconds(metadata)
    if (out / "history.json").exists():
        found["history"] = _without_seconds(json.loads((out / "history.json").read_text()))
    return found


def _without_seconds(content: Any) -> Any:
    if isinstance(content, dict):
        return {k: _without_seconds(v) for k, v in content.items() if k != "seconds"}
    return [_without_seconds(v) for v in content] if isinstance(content, list) else content


def compared(name: str, folder: Path, codes: list[int | None]) -> list[str]:
    """Failures: a process that did not end well, or anything that is not as in a run left alone."""
    if any(codes):
        return [f"{name}: exit codes {codes}: {(folder / 'said.txt').read_text()[-300:]}"]
    found, (expected, _) = outcome(name, folder / "out"), undisturbed(name)
    differing = [str(k) for k in found.keys() | expected.keys() if found.get(k) != expected.get(k)]
    return [f"{name}: other {k}" for k in sorted(differing)]


@functools.cache
def undisturbed(name: str) -> tuple[dict[str, Any], float]:
    """What a run that is left alone leaves, and how long it takes."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        process = start(name, Path(folder) / "out")
        process.join()
        took = time.perf_counter() - began
        if process.exitcode:
            raise RuntimeError((Path(folder) / "said.txt").read_text())
        return outcome(name, Path(folder) / "out"), took


def kills(count: int, seed: int) -> Iterator[tuple[str, Attack]]:
    """`compare` is killed `count` times; so is `train`, of pdi-net and of ppo by turns."""
    for k in range(2 * count):
        name = "compare" if k < count else ("train pdi-net", "train ppo")[k % 2]
        yield f"{name}, kill {k}", functools.partial(_killed, name, random.Random(f"{seed} {k}"))


def _killed(name: str, rng: random.Random, folder: Path) -> dict[str, Any]:
    """Kill a run once or more at moments anywhere in it, then let it end."""
    _, took = undisturbed(name)
    fates: list[int | None] = []
    while -signal.SIGKILL not in fates:  # a run that ended before its moment begins anew
        shutil.rmtree(folder / "out", ignore_errors=True)
        fates = [_stopped(start(name, folder / "out"), rng.uniform(0, took))]
        while fates[-1] == -signal.SIGKILL and rng.random() < 0.3:
            fates.append(_stopped(start(name, folder / "out"), rng.uniform(0, took)))
    process = start(name, folder / "out")
    process.join()
    codes = [code for code in (*fates, process.exitcode) if code != -signal.SIGKILL]
    killed = fates.count(-signal.SIGKILL)
    return {f"kills of {name}": killed, "failures": compared(name, folder, codes)}


def _stopped(process: Any, moment: float) -> int | None:
    """The fate of a process that is killed if it still runs at that moment."""
    process.join(moment)
    process.kill()
    process.join()
    code: int | None = process.exitcode
    return code


def pairs(count: int) -> Iterator[tuple[str, Attack]]:
    for k in range(count):
        yield f"pair {k}", _pair


def _pair(folder: Path) -> dict[str, Any]:
    """Two runs of one comparison at once in one folder."""
    processes = [start("compare", folder / "out") for _ in range(2)]
    for process in processes:
        process.join()
    failures = compared("compare", folder, [process.exitcode for process in processes])
    return {"pairs of runs": 1, "failures": failures}
