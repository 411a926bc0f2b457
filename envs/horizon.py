"""The slots of one running horizon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from pdi_gym.problem import Problem


class Horizon:
    """The state of one running horizon: where its slots come from and what has been averaged.

    `residual_sum` (m,) may be a row of a batch's array. A copy, pickled or deep, goes through the path
    again up to its slot: generators cannot be copied.
    """

    def __init__(
        self,
        problem: Problem,
        length: int,
        generator: torch.Generator,
        residual_sum: np.ndarray | None = None,
    ):
        self.slot = 0
        self.residual_sum = np.zeros(problem.n_constraints) if residual_sum is None else residual_sum
        self.length = length
        self._problem, self._origin = problem, generator.get_state()
        self._open(generator)

    def _open(self, generator: torch.Generator) -> None:
        self._path: Iterator[torch.Tensor | None] = self._problem.path(self.length, generator)
        self._chunk: torch.Tensor | None = None
        self._at = self._end = 0

    def next_realisation(self) -> torch.Tensor | None:
        """Move to the next slot: its ξ with a leading axis of one, or None where nothing is random."""
        if self._at >= self._end:
            self._chunk = next(self._path)
            self._at, self._end = 0, self.length if self._chunk is None else len(self._chunk)
        self._at += 1
        self.slot += 1
        return None if self._chunk is None else self._chunk[self._at - 1 : self._at]

    @property
    def ended(self) -> bool:
        return self.slot >= self.length

    @property
    def ergodic_residuals(self) -> np.ndarray:
        """Average residual over the slots so far, (m,); zero before the first."""
        return np.asarray(self.residual_sum / max(self.slot, 1))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_path", "_chunk", "_at", "_end")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        generator = torch.Generator()
        generator.set_state(self._origin)
        self._open(generator)
        self.slot = 0
        for _ in range(state["slot"]):
            self.next_realisation()
