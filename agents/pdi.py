"""Primal-dual inference and the samplers that switch a part of it off."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from pdi_gym import zoo
from pdi_gym.agents.base import Agent, Observer, Trace, to_policy
from pdi_gym.checkpoints import check_fits, digest
from pdi_gym.duals import Ascent
from pdi_gym.inference import divisor_at_most, infer, training_free_score
from pdi_gym.networks import Denoiser
from pdi_gym.options import DenoisingOptions, DiffusionOptions, TailOptions
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problem import Problem
from pdi_gym.samplers import Samples
from pdi_gym.schedules import Schedule, make_schedule
from pdi_gym.scores import NetworkScore, ScoreField


class DiffusionAgent(Agent):
    """Runs `pdi` with the options of a preset."""

    options_type: ClassVar[type[Any]] = DiffusionOptions
    weights: ClassVar[str] = "pdi-net"
    """Whose shipped network score="net" means."""
    network: Denoiser | None = None
    """A network of its own, learnt or loaded, that goes before the shipped one."""
    card: dict[str, Any] | None = None
    """What is known of that network's training."""

    def config(self, problem: Problem) -> dict[str, Any]:
        """With a network, what tells it from others: rows of another are not taken for its own."""
        config = super().config(problem)
        network = self._network(problem) if self.options(problem).score == "net" else None
        return config if network is None else config | {"weights": digest(network.state_dict())}

    def _network(self, problem: Problem) -> Denoiser | None:
        if self.network is None and zoo.shipped(self.weights, problem):
            return zoo.network(self.weights, problem)
        return self.network

    def _score(self, problem: Problem, options: DenoisingOptions, schedule: Schedule) -> ScoreField:
        if options.score != "net":
            return training_free_score(problem, options, schedule)
        if self.network is None:
            network = zoo.network(self.weights, problem)
        else:
            network = self.network
            check_fits(network.config, self.card, problem)
        device = getattr(options, "device", "cpu")
        return NetworkScore(network.to(device), problem, schedule, options.alpha_min, device)

    def _sample(
        self, problem: Problem, options: Any, n: int, generator: torch.Generator, callback: Observer | None
    ) -> TimeSharingPolicy:
        trace = Trace(options.T, callback)
        samples = self._run(problem, options, n, generator, trace)
        return to_policy(problem, samples, {"trace": trace.arrays()})

    def _variant(
        self, problem: Problem, options: Any, schedule: Schedule, score: ScoreField
    ) -> dict[str, Any]:
        """Arguments of `infer` with which a variant departs from Algorithm 2."""
        return {}

    def _groups(self, n: int, options: DenoisingOptions) -> int:
        if not isinstance(options, DiffusionOptions):
            return 1
        return options.groups if "groups" in self.overrides else divisor_at_most(n, options.groups)

    def _run(
        self,
        problem: Problem,
        options: DenoisingOptions,
        n: int,
        generator: torch.Generator,
        callback: Observer | None,
        **variant: Any,
    ) -> Samples:
        schedule = make_schedule(options.schedule, options.T)
        score = self._score(problem, options, schedule)
        arguments = {"score": score, **self._variant(problem, options, schedule, score), **variant}
        return infer(
            problem,
            schedule=schedule,
            options=options,
            n=n,
            groups=self._groups(n, options),
            generator=generator,
            callback=callback,
            **arguments,
        )


class PDI(DiffusionAgent):
    """x denoises by the score of exp(−(f0 + λᵀf)/β) while λ ← [λ + η E f(x̂0)]₊ (Algorithm 2)."""

    name = "pdi-mc"
    summary = "primal-dual inference with the Monte-Carlo score (Algorithm 2)"


class Unconstrained(DiffusionAgent):
    """The same sampler with λ = 0: draws from exp(−f0/β) and ignores the constraints."""

    name = "unconstrained"
    summary = "the diffusion sampler with λ = 0"
    options_type = DenoisingOptions
    aims_at_constraints = False


class Frozen(DiffusionAgent):
    """Runs PDI for its multipliers, then samples afresh with λ frozen at a summary of their path."""

    def _freeze(self, samples: Samples, options: Any) -> Tensor:
        raise NotImplementedError

    def _sample(
        self, problem: Problem, options: Any, n: int, generator: torch.Generator, callback: Observer | None
    ) -> TimeSharingPolicy:
        first = self._run(problem, options, n, generator, None)
        trace = Trace(options.T, callback)
        frozen = self._freeze(first, options)
        samples = self._run(problem, options, n, generator, trace, duals=Ascent(init=frozen))
        return to_policy(problem, samples, {"trace": trace.arrays()})


class FrozenLast(Frozen):
    """λ frozen at PDI's last iterate λ_T."""

    name = "frozen-last"
    summary = "λ really frozen at PDI's last iterate"

    def _freeze(self, samples: Samples, options: Any) -> Tensor:
        return samples.duals


class FrozenMean(Frozen):
    """λ frozen at PDI's time average λ̄, the point that Theorem 1 speaks of."""

    name = "frozen-mean"
    summary = "λ really frozen at PDI's time average"

    def _freeze(self, samples: Samples, options: Any) -> Tensor:
        return samples.mean_duals


class FrozenTail(Frozen):
    """λ frozen at the average of the last `tail` of PDI's path."""

    name = "frozen-tail"
    summary = "λ really frozen at the average of PDI's last iterates"
    options_type = TailOptions

    def _freeze(self, samples: Samples, options: Any) -> Tensor:
        T = len(samples.dual_path)
        return samples.dual_path[T - max(1, round(options.tail * T)) :].mean(0)
