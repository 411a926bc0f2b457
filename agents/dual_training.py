"""Dual training: networks without λ, trained while multipliers ascend, or stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from pdi_gym.agents.learned import LearnedAgent
from pdi_gym.options import DualTrainingOptions, LearnedOptions
from pdi_gym.training.criterion import monte_carlo
from pdi_gym.training.loop import Training, require
from pdi_gym.training.rollouts import Task
from pdi_gym.training.sources import Duals, Source
from pdi_gym.training.state import STATE, check_tensors, read_state


class DualTraining(LearnedAgent):
    """Algorithm 3: a network without λ, trained while multipliers per training instance ascend.

    At inference nothing is dual: x denoises by what the network has learnt of the constraints.
    """

    name = "dt"
    summary = "dual training: multipliers ascend while a λ-free network trains (Algorithm 3)"
    options_type: ClassVar[type[Any]] = DualTrainingOptions
    unread = Duals.unread

    def _source(self, task: Task, start: str | Path | None) -> Source:
        return Duals(task, lambda: self._reference(task))

    def _reference(self, task: Task) -> Tensor:
        """(r, m): the multipliers that PDI finds on the first r training instances."""
        few = task.problems[: task.training.validation_instances]
        return torch.stack([monte_carlo(p, task.training, self.preset).mean_duals.mean(0) for p in few])


class DualTrainingPlus(DualTraining):
    """DT continued with its multipliers frozen."""

    name = "dt-plus"
    summary = "DT with its multipliers frozen and training continued"
    options_type = LearnedOptions
    unread = Duals.unread | {"dual_step"}
    starts_from = "dt"

    def _fixed(
        self, start: str | Path | None, resumed: Path | None, training: dict[str, Any]
    ) -> dict[str, Any]:
        """As many instances as there are multipliers."""
        if start is None and resumed is None:
            raise ValueError("start must be the folder of a DT training, got none: dt-plus continues one")
        place, wanted = (Path(str(start)), "dt") if resumed is None else (resumed, "dt-plus")
        tensors, metadata = read_state(place / STATE)
        if (agent := metadata["settings"]["agent"]) != wanted:
            raise ValueError(f"{place} must hold a {wanted} training, it holds one of {agent}")
        if "source.duals" not in tensors:
            raise ValueError(f"{place / STATE} lacks source.duals: the state is not whole, train anew")
        steps = metadata["options"]["steps"]
        if resumed is None and metadata["step"] < steps:
            raise ValueError(
                f"start must hold a finished DT training, {place} is at step {metadata['step']} of {steps}: "
                "resume it first"
            )
        count = len(tensors["source.duals"])
        if training.get("instances", count) != count:
            raise ValueError(
                f"instances must be {count}, those whose multipliers {place} holds, got "
                f"{training['instances']}: leave it out"
            )
        return {"instances": count}

    def _source(self, task: Task, start: str | Path | None) -> Source:
        return Duals(task, lambda: self._reference(task), frozen=True)

    def _begin(self, run: Training, start: str | Path | None) -> None:
        tensors, metadata = read_state(Path(str(start)) / STATE)
        stored, ours = metadata["settings"], run.settings
        require(str(start), stored, {name: ours[name] for name in ("problem", "problems")})
        require(str(start), stored.get("network", {}), ours["network"])
        count = len(run.source.task.problems)
        if count != len(tensors["source.duals"]):
            raise ValueError(
                f"{start} holds multipliers of {len(tensors['source.duals'])} instances, got {count}: give "
                "the same problems"
            )
        assert isinstance(run.source, Duals)
        check_tensors(Path(str(start)) / STATE, tensors, run.network, run.source, metadata["step"])
        for network in (run.network, run.average, run.best):
            network.load_state_dict({k[8:]: v for k, v in tensors.items() if k.startswith("average.")})
        run.source.lam = tensors["source.duals"].clone()
