"""A time-sharing policy: a finite distribution over decisions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from pdi_gym import seeding
from pdi_gym.problem import Problem
from pdi_gym.processes import one_thread
from pdi_gym.time_sharing.reweighting import heaviest_mix, pool_values
from pdi_gym.validation import check_choice, check_int, check_number


@dataclass(frozen=True)
class TimeSharingPolicy:
    """Play atom i, the decision `actions[i]`, for a fraction `weights[i]` of the slots.

    actions (n, d) are in the problem's own units, weights (n,) sum to 1 (uniform when left out).
    duals and mean_duals (groups, m) are the last and the time-averaged multipliers of the sampler
    that made the policy, or None; `info` holds its diagnostics.
    """

    actions: np.ndarray
    weights: np.ndarray = None  # type: ignore[assignment]
    duals: np.ndarray | None = None
    mean_duals: np.ndarray | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        actions = _numbers("actions", self.actions).copy()  # later changes must not change the policy
        if actions.ndim != 2 or len(actions) == 0:
            raise ValueError(f"actions must have shape (n ≥ 1, d), got {actions.shape}")
        if not np.isfinite(actions).all():
            row, column = np.argwhere(~np.isfinite(actions))[0]
            value = actions[row, column]
            raise ValueError(f"actions must be finite, got {value} in row {row}, column {column}")
        n = len(actions)
        weights = np.full(n, 1 / n) if self.weights is None else _numbers("weights", self.weights, np.float64)
        if (
            weights.shape != (n,)
            or not np.isfinite(weights).all()
            or (weights < 0).any()
            or weights.sum() <= 0
        ):
            raise ValueError(
                f"weights must be {n} numbers ≥ 0 with a positive sum, got shape {weights.shape}"
            )
        object.__setattr__(self, "actions", actions)
        object.__setattr__(self, "weights", weights / weights.sum())
        for name in ("duals", "mean_duals"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.asarray(getattr(self, name)).copy())

    def __len__(self) -> int:
        return len(self.actions)

    def check(self, problem: Problem) -> None:
        """Refuse atoms that are no decisions of the problem; say which, where, and what would be."""
        if self.actions.shape[1] != problem.latent_dim:
            raise ValueError(
                f"policy.actions must have {problem.latent_dim} columns, got {self.actions.shape[1]}"
            )
        with np.errstate(over="ignore"):
            x = torch.from_numpy(self.actions.astype(np.float32))
        outside = ~problem.contains(x)
        if not outside.any():
            return
        row = int(outside.nonzero()[0])
        nearest = problem.decode(problem.project(problem.encode(x[row])))
        j = int(torch.where(x[row].isfinite(), (nearest - x[row]).abs(), torch.inf).argmax())
        instead = f"the nearest decision {nearest[j]:g}" if x[row, j].isfinite() else "too large for float32"
        raise ValueError(
            f"policy.actions must be decisions of {type(problem).__name__}, but row {row} is outside its "
            f"set: it has {self.actions[row, j]:g} at coordinate {j}, {instead}"
        )

    def schedule(self, horizon: int, rng: np.random.Generator, kind: str = "iid") -> np.ndarray:
        """Which atom plays in each of `horizon` slots: (horizon,) indices.

        "iid" draws each slot by the weights. "stratified" plays atom i either ⌊w_i·horizon⌋ or one
        more time (systematic sampling), in random order: the same averages with less noise.
        """
        check_int("horizon", horizon, 1), check_choice("kind", kind, ("iid", "stratified"))
        edges = np.cumsum(self.weights)
        edges[-1] = 1.0
        if kind == "iid":
            u = rng.random(horizon)
        else:
            u = rng.permutation((np.arange(horizon) + rng.random()) / horizon)
        return np.searchsorted(edges, u, side="right")

    @one_thread()
    def reweight(
        self,
        problem: Problem,
        *,
        margin: float = 0.0,
        draws: int = 1000,
        seed: int = 0,
        max_atoms: int | None = None,
    ) -> TimeSharingPolicy:
        """The same atoms with the shares of time that optimise the objective under the constraints.

        Constraints are asked to hold with `margin` to spare, in their own units: what an average
        over a finite horizon may lose. If no shares can, those of least total excess are taken;
        `info["reweight"]` says how much that is, and the expected value and support. A problem
        without exact expectations is averaged over `draws` realisations of its own, or, with 0,
        asked for its expectations without ξ. At most `max_atoms` atoms get time.
        """
        check_number("margin", margin, 0), check_int("draws", draws, 0)
        most = len(self) if max_atoms is None else check_int("max_atoms", max_atoms, 1)
        self.check(problem)
        generator = seeding.generator(seed, seeding.POLICY, 1)
        mix = heaviest_mix(*pool_values(problem, self.actions, draws, generator), margin, most)
        summary = {
            "value": mix.value,
            "excess": mix.excess,
            "feasible": mix.met,
            "support": int((mix.weights > 0).sum()),
            "duals": mix.duals,
        }
        return replace(self, weights=mix.weights, info=self.info | {"reweight": summary})


def _numbers(name: str, value: Any, dtype: Any = None) -> np.ndarray:
    """The value as an array of numbers, of that type if one is given; digits in a string are none."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.array("rows of different lengths")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be an array of numbers, got {type(value).__name__}")
    return array if dtype is None else array.astype(dtype)
