"""Independent random streams from one user seed, so that inference never sees evaluation's noise."""

from __future__ import annotations

import numpy as np
import torch

POLICY, SLOTS, TRIALS = 1, 2, 3
"""Streams: a policy's inference, the realisations of an environment's slots, the atoms a trial plays."""


def rng(seed: int, stream: int, *key: int) -> np.random.Generator:
    return np.random.default_rng([_natural(seed), stream, *key])


def generator(seed: int, stream: int, *key: int) -> torch.Generator:
    return torch.Generator().manual_seed(int(rng(seed, stream, *key).integers(2**62)))


def path_seed(seed: int, path: int) -> int:
    """The seed of the environment that goes through path number `path` of an evaluation: first `seed`."""
    return seed if path == 0 else int(rng(seed, SLOTS, path).integers(2**31))


def _natural(seed: int) -> int:
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or int(seed) < 0:
        raise ValueError(f"seed must be a whole number ≥ 0, got {seed!r}")
    return int(seed)
