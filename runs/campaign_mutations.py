"""Files damaged at random, and what becomes of reading them."""

from __future__ import annotations

import functools
import json
import random
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from campaign_damage import FORGERIES, damaged

from pdi_gym import TimeSharingPolicy
from pdi_gym.agents import make_agent
from pdi_gym.checkpoints import load_network
from pdi_gym.problems import MixtureOfGaussians
from pdi_gym.report.outputs import report_folder
from pdi_gym.rl import storage, training
from pdi_gym.store import Store, load_policy
from pdi_gym.training.state import STATE, check_tensors, read_state

BATCH = 1000
MOST_SECONDS = 5
SMALL = {"steps": 2, "validate_every": 1, "seed_rollouts": 1, "chains": 2, "problems": 1, "pairs": 2}
SMALL |= {"width": 4, "depth": 1, "validation_n": 2, "keep": 3}
ROUNDS = {"n_envs": 2, "n_steps": 2, "batch_size": 4, "n_epochs": 1, "channels": 2, "layers": 1, "horizon": 4}


@dataclass(frozen=True)
class Kind:
    """Files of one kind: the one that is damaged, those beside it, and what reading gives."""

    file: str
    share: float
    """Of all damaged files."""
    read: Callable[[Path], Any]
    """Content in a form that can be compared, or None where the file counts as absent."""
    valid: tuple[str, ...] = FORGERIES
    """Ways of damage after which the file may be taken with other content: no digest elsewhere tells it."""


class TooSlowError(BaseException):
    """Reading took longer than it may."""


def problem(seed: int = 2) -> MixtureOfGaussians:
    return MixtureOfGaussians.instance(dim=2, n_modes=2, n_constraints=1, seed=seed)


def make(folder: Path, seed: int) -> None:
    """A training, one of ppo, and rows with policies, all as small as can be."""
    make_agent("pdi-net", T=3).learn([problem()], out=folder / "net", seed=seed, quiet=True, **SMALL)
    make_agent("ppo", **ROUNDS).learn(problem(), out=folder / "ppo", seed=seed, steps=1)
    make_agent("pdi-mc", T=5 + seed, beta=0.5).save(folder / "agent")
    rng = np.random.default_rng(seed)
    for instance in range(2):
        names = ("objective", "mean_violation", "feasible", "modes")
        row = {"agent": "a", "instance": instance, "key": f"0{instance}" * 32, "seconds": 0.5}
        row |= {"metrics": {name: float(rng.random()) for name in names}, "violation": None}
        policy = TimeSharingPolicy(rng.random((4, 2)), rng.random(4), duals=rng.random((1, 1)))
        Store(folder).save(row, {"options": {"T": 5}}, policy, rng.random(1))


def readers() -> dict[str, Kind]:
    """What is read how; the files are those of `make`."""
    row = {"agent": "a", "instance": 0, "key": "00" * 32}
    name = Store("").path(row).stem

    def stored(folder: Path) -> Any:
        found = Store(folder).load("a", 0, row["key"])
        return found and (found, Store(folder).settings(found), _plain(Store(folder).policy(found)))

    def report(folder: Path) -> Any:
        return report_folder(folder, {"seed": 0}, ("a",)).name

    def agent(folder: Path) -> Any:
        loaded = make_agent("pdi-mc").load(folder / "agent")
        return loaded.preset, loaded.overrides

    def network(folder: Path) -> Any:
        net, card = load_network(folder / "net", "pdi-net")
        return card, _plain(net.state_dict())

    return {
        "rows": Kind(f"rows/{name}.json", 0.25, stored, ()),
        "policies": Kind(f"policies/{name}.npz", 0.15, stored, ()),
        "policies read alone": Kind(
            f"policies/{name}.npz", 0.1, lambda f: _plain(load_policy(f / f"policies/{name}.npz"))
        ),
        "tables": Kind("results.json", 0.05, report, (*FORGERIES, "unsealed")),
        "settings of agents": Kind("agent/agent.json", 0.1, agent),
        "cards": Kind("net/card.json", 0.1, network, ("forged fields",)),
        "weights": Kind("net/weights.safetensors", 0.1, network, ()),
        "states": Kind(f"net/{STATE}", 0.1, _state_reader()),
        "states of ppo": Kind(f"ppo/{storage.FILE}", 0.05, _ppo_reader()),
    }


def _plain(content: Any) -> Any:
    """Arrays as bytes, so that == compares all of it."""
    if isinstance(content, TimeSharingPolicy):
        return _plain([content.actions, content.weights, content.duals, content.mean_duals, content.info])
    if isinstance(content, torch.Tensor | np.ndarray):
        array = np.asarray(content)
        return str(array.dtype), array.shape, array.tobytes()
    if isinstance(content, dict):
        return {k: _plain(v) for k, v in content.items()}
    return [_plain(v) for v in content] if isinstance(content, list | tuple) else content


def _state_reader() -> Callable[[Path], Any]:
    """Reads a state as a resumed training does, for the network and source that it belongs to."""
    from pdi_gym.training.loop import Training

    kept: list[Training] = []
    run = Training.run

    def noted(self: Training, *arguments: Any) -> Any:
        kept.append(self)
        return run(self, *arguments)

    def read(folder: Path) -> Any:
        if not kept:
            Training.run = noted  # type: ignore[method-assign]
            with tempfile.TemporaryDirectory() as again:
                make_agent("pdi-net", T=3).learn([problem()], out=again, quiet=True, **SMALL)
            Training.run = run  # type: ignore[method-assign]
        tensors, metadata = read_state(folder / "net" / STATE)
        check_tensors(folder / "net" / STATE, tensors, kept[0].network, kept[0].source, metadata["step"])
        return metadata, _plain(tensors)

    return read


def _ppo_reader() -> Callable[[Path], Any]:
    """Reads a checkpoint of ppo as a resumed training does."""
    options = make_agent("ppo", **ROUNDS).options(problem())
    setup = training.setup_of(problem(), {})
    venv, _ = training.lagrangian_env(setup, options, 2, 4)
    scaled = training.VecNormalize(venv, norm_obs=False, gamma=0.0)
    model = training._model(scaled, options, setup.graph, 0, "cpu")

    def read(folder: Path) -> Any:
        weights, told = storage.read(folder / "ppo")
        rounds = storage.restore(folder / "ppo", model, scaled)
        return rounds, told, _plain(weights), float(scaled.ret_rms.var), float(scaled.ret_rms.count)

    return read


@functools.cache
def originals(root: Path) -> tuple[Path, Path]:
    """Two folders of files that differ by their seed."""
    for seed in range(2):
        if not (root / f"{seed}" / "whole").exists():
            shutil.rmtree(root / f"{seed}", ignore_errors=True)
            make(root / f"{seed}", seed)
            table = {"rows": [{"agent": "a"}], "settings": {"seed": seed}}
            (root / f"{seed}" / "results.json").write_text(json.dumps(table))
            (root / f"{seed}" / "whole").touch()
    return root / "0", root / "1"


def batches(count: int, seed: int) -> Iterator[tuple[str, Callable[[Path], dict[str, Any]]]]:
    for k in range(-(-count // BATCH)):
        size = min(BATCH, count - k * BATCH)
        yield f"batch {k} of {size}", functools.partial(_batch, size, f"{seed} {k}")


@functools.cache
def _kinds() -> dict[str, Kind]:
    return readers()


def _batch(size: int, seed: str, folder: Path) -> dict[str, Any]:
    """So many damaged files and what came of them."""
    own, other = originals(folder.parent.parent / "originals")
    shutil.copytree(own, folder, dirs_exist_ok=True)
    rng, record = random.Random(seed), {"failures": list[str]()}
    kinds = _kinds()
    before = {name: kind.read(folder) for name, kind in kinds.items()}
    names = rng.choices(list(kinds), [kind.share for kind in kinds.values()], k=size)
    for number, name in enumerate(names):
        kind = kinds[name]
        path, whole = folder / kind.file, (own / kind.file).read_bytes()
        how, content = damaged(rng, kind.file, whole, (other / kind.file).read_bytes())
        path.write_bytes(content)
        began = time.perf_counter()
        verdict = _verdict(kind, folder, before[name], how)
        seconds = time.perf_counter() - began
        path.write_bytes(whole)
        for key in (f"{name}: damaged", f"all {verdict.partition(':')[0]}"):
            record[key] = record.get(key, 0) + 1
        record["most seconds of a reading"] = max(seconds, record.get("most seconds of a reading", 0.0))
        if verdict.startswith("FAILED"):
            record["failures"].append(f"{name}, {how}, number {number} of seed {seed}: {verdict}"[:400])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return record | {"most memory of the process, MiB": round(peak)}


def _verdict(kind: Kind, folder: Path, before: Any, how: str) -> str:
    """What became of reading a damaged file."""

    def late(*_: Any) -> None:
        raise TooSlowError

    former = signal.signal(signal.SIGALRM, late)
    signal.alarm(MOST_SECONDS)
    try:
        after = kind.read(folder)
    except TooSlowError:
        return f"FAILED: took more than {MOST_SECONDS} s"
    except (ValueError, OSError) as error:
        words = str(error)
        if "\n" in words or len(words) > 1000:
            return f"FAILED: an error of {len(words)} characters: {words[:100]!r}"
        return "refused by name" if Path(kind.file).name in words else f"FAILED: not named: {words!r}"
    except Exception as error:
        return f"FAILED: {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)
    if after is None:
        return "counted as absent"
    if after == before:
        return "read as before"
    if how in kind.valid or "unsealed" in kind.valid:
        return "valid with other content"
    return "FAILED: other content was taken"
