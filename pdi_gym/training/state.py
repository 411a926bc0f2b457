"""The state of a training on disk, checked field by field before a training goes on from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pdi_gym.checkpoints import check_finite, load_tensors
from pdi_gym.labels import brief
from pdi_gym.training.sources import Duals, Source

STATE = "state.safetensors"
BANDS = 4
"""Noise levels for which the loss is reported apart, by the angle atan(σ/α)."""

Layout = dict[str, tuple[torch.dtype, tuple[int | None, ...]]]
"""Type and shape by a tensor's name; None admits any length."""


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata of a training's state, the latter with every field of its type."""
    tensors, metadata = load_tensors(path)
    for name, (meaning, fits) in _FIELDS.items():
        if name not in metadata or not fits(metadata[name]):
            found = f"{metadata.get(name)!r:.60}" if name in metadata else "nothing"
            raise ValueError(f"{path} must hold {meaning} as {name}, it holds {found}: train anew")
    return tensors, metadata


def whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _bands(value: Any) -> bool:
    return isinstance(value, list) and len(value) == BANDS and all(v is None or number(v) for v in value)


def _losses(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(v, list) and len(v) == 2 and number(v[0]) and _bands(v[1]) for v in value
    )


def _history(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) and _row(row) for row in value)


def _row(row: dict[str, Any]) -> bool:
    figures = row.get("validation")
    return (
        whole(row.get("step"))
        and number(row.get("seconds"))
        and number(row.get("loss"))
        and _bands(row.get("loss_by_noise"))
        and isinstance(figures, dict)
        and "criterion" in figures
        and all(map(number, figures.values()))
    )


def _settings(value: Any) -> bool:
    named = isinstance(value, dict) and all(isinstance(value.get(k), str) for k in ("agent", "problem"))
    return named and isinstance(value.get("network", {}), dict)


_FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "step": ("a whole number", whole),
    "seconds": ("a number", lambda value: number(value) and value >= 0),
    "history": ("the rows of the curve", _history),
    "losses": ("losses and their bands", _losses),
    "options": (
        "the training's options",
        lambda value: isinstance(value, dict) and whole(value.get("steps")),
    ),
    "settings": ("the training's settings", _settings),
}


def check_tensors(
    path: Path, tensors: dict[str, Tensor], network: nn.Module, source: Source, steps: int
) -> None:
    """Refuse a state whose tensors are not those of this network and source after `steps` steps."""
    needed = _needed(network, source, steps)
    known = needed | _optional(source)
    for name in sorted(needed.keys() - tensors.keys()):
        raise ValueError(f"{path} lacks {name}: the state is not whole, train anew")
    for name, tensor in tensors.items():
        if name not in known:
            raise ValueError(
                f"{path} holds {brief(name)}, which this training does not have: choose another folder"
            )
        dtype, shape = known[name]
        if tensor.dtype != dtype or not _alike(tuple(tensor.shape), shape):
            raise ValueError(
                f"{path} holds {name} as {_words(tensor.dtype, tuple(tensor.shape))}, this training needs "
                f"{_words(dtype, shape)}: choose another folder"
            )
    check_finite(path, tensors)
    _check_buffer(path, tensors)
    _check_indices(path, tensors, source)


def _needed(network: nn.Module, source: Source, steps: int) -> Layout:
    layout: Layout = {"source.calls": (torch.int64, ())}
    generator = source.task.generator.get_state()
    layout["generator"] = (generator.dtype, tuple(generator.shape))
    for prefix in ("network", "average", "best"):
        layout |= {f"{prefix}.{k}": (v.dtype, tuple(v.shape)) for k, v in network.state_dict().items()}
    for i, parameter in enumerate(network.parameters() if steps else ()):
        layout[f"optimiser.{i}.step"] = (torch.float32, ())
        for name in ("exp_avg", "exp_avg_sq"):
            layout[f"optimiser.{i}.{name}"] = (parameter.dtype, tuple(parameter.shape))
    if isinstance(source, Duals):
        layout["source.duals"] = (torch.float32, tuple(source.lam.shape))
    return layout


def _optional(source: Source) -> Layout:
    """What a source has only at times: instances still to visit, rollouts, an expert's decisions."""
    problem, keep = source.task.problems[0], source.task.training.keep
    d, m = problem.latent_dim, problem.n_constraints
    return {
        "source.todo": (torch.int64, (None,)),
        "source.buffer.index": (torch.int64, (None,)),
        "source.buffer.z": (torch.float32, (None, keep, d)),
        "source.buffer.tau": (torch.int64, (None, keep, 1)),
        "source.buffer.lam": (torch.float32, (None, keep, m)),
        "source.experts": (torch.float32, (None, keep, d)),
    }


def _alike(found: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(found) == len(wanted) and all(w in (None, f) for f, w in zip(found, wanted, strict=True))


def _words(dtype: torch.dtype, shape: tuple[int | None, ...]) -> str:
    lengths = ", ".join("any" if n is None else str(n) for n in shape)
    return f"{str(dtype).removeprefix('torch.')} ({lengths})"


def _check_buffer(path: Path, tensors: dict[str, Tensor]) -> None:
    parts = {f"source.buffer.{name}" for name in ("index", "z", "tau", "lam")}
    found = parts & tensors.keys()
    if found and (found != parts or len({len(tensors[name]) for name in parts}) > 1):
        raise ValueError(f"{path} holds a replay buffer whose parts do not belong together: train anew")


def _check_indices(path: Path, tensors: dict[str, Tensor], source: Source) -> None:
    """Refuse instances and times that there are none of."""
    count, T = len(source.task.problems), source.task.schedule.T
    bounds = {"source.todo": (0, count - 1), "source.buffer.index": (0, count - 1)}
    bounds |= {"source.buffer.tau": (0, T), "source.calls": (0, 2**62)}
    for name, (low, high) in bounds.items():
        values = tensors.get(name)
        if values is not None and values.numel() and (values.min() < low or values.max() > high):
            raise ValueError(f"{path} holds {name} outside {low} to {high}: the state is damaged, train anew")
    experts = tensors.get("source.experts")
    if experts is not None and len(experts) > count:
        raise ValueError(f"{path} holds decisions of {len(experts)} instances, there are {count}: train anew")
