"""Agents whose score field is a network: PDI-Net and supervised training."""

from __future__ import annotations

import copy
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from pdi_gym import presets, zoo
from pdi_gym.agents.base import Agent
from pdi_gym.agents.pdi import DiffusionAgent
from pdi_gym.checkpoints import check_fits, fingerprints, load_card, load_network, save_network
from pdi_gym.envs import load_instances
from pdi_gym.files import writable_folder
from pdi_gym.inference import divisor_at_most, infer
from pdi_gym.networks import Denoiser, NetworkConfig
from pdi_gym.options import LearnedOptions, NetworkOptions, SupervisedOptions, check_device
from pdi_gym.problem import Problem
from pdi_gym.samplers import Samples
from pdi_gym.schedules import make_schedule
from pdi_gym.scores import NetworkScore
from pdi_gym.training.criterion import CRITERION, judge, monte_carlo
from pdi_gym.training.instances import check_alike, describe, listed, words
from pdi_gym.training.loop import Training
from pdi_gym.training.options import TrainingOptions
from pdi_gym.training.presets import setup
from pdi_gym.training.rollouts import Task
from pdi_gym.training.sources import Experts, Replay, Source
from pdi_gym.validation import check_int


class LearnedAgent(DiffusionAgent):
    """A diffusion agent with a network of its own: `learn`, or load, before sampling."""

    options_type: ClassVar[type[Any]] = LearnedOptions
    needs_training = True
    starts_from: ClassVar[str | None] = None
    """The agent whose training `learn` takes as `start`."""
    unread: ClassVar[frozenset[str]] = frozenset()
    """Options of a training that this one would ignore, and therefore refuses."""
    proximal: ClassVar[bool] = False
    """Whether its network takes proximal steps."""
    card: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        cls.weights = cls.__dict__.get("name", "")

    @classmethod
    def shipped(cls, problem: Problem) -> bool:
        return zoo.shipped(cls.name, problem)

    def _source(self, task: Task, start: str | Path | None) -> Source:
        raise NotImplementedError

    def learn(
        self,
        on: str | Sequence[Problem],
        *,
        validation: Sequence[Problem] | None = None,
        out: str | Path,
        seed: int = 0,
        size: str = "cpu",
        device: str = "cpu",
        resume: bool = False,
        quiet: bool = False,
        start: str | Path | None = None,
        command: str | None = None,
        **training: Any,
    ) -> Agent:
        """Train on an environment's instances, or on problems of one kind; everything is kept in `out`.

        `on` is an environment id, whose train and validation splits are used, or a sequence of
        problems, with `validation` beside it (the same ones when left out). Training problems are of
        one kind and size; a graph network then samples on graphs of any size. Other arguments
        override the preset of the network's size and of the training. `start` is the folder of an
        earlier training: DT's for dt-plus, ST's (or the shipped weights) for pdi-net-warm. The state
        is saved at every validation and when the process is asked to stop; `resume` goes on from
        there, on a CPU to the same weights as without the stop. The card tells what it took, its
        `seconds` being CPU seconds from beginning to end, and the `command` if one is given.
        """
        started = time.process_time()
        check_device(device), check_int("seed", seed, 0)
        folder = Path(out)
        training |= self._fixed(start, folder if resume else None, training)
        problems, checks, config, options = self._setup(on, validation, size, training)
        samplers = [replace(self.options(p), device=device) for p in problems]
        generator = torch.Generator().manual_seed(seed)
        task = Task(problems, samplers, options, generator, config.predicts == "clean")
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            network = config.build()
        settings = {
            "agent": self.name,
            "problem": presets.kind(problems[0]),
            "problems": describe(problems),
            "validation": describe(checks),
            "seed": seed,
            "network": asdict(config),
            "sampler": asdict(samplers[0]),
        }
        references: list[Samples] = []

        def validate(net: Denoiser) -> dict[str, float]:
            references.extend(monte_carlo(p, options, self.preset) for p in checks[len(references) :])
            return self._validate(net, checks, references, options)

        run = Training(
            network, self._source(task, start), options, validate, folder, device, settings, started
        )
        if not resume:
            self._begin(run, start)
        writable_folder("out", out)
        self.network = copy.deepcopy(run.run(resume, quiet)).to("cpu")
        self.card = self._card(run, problems) | ({} if command is None else {"command": command})
        self.save(folder)
        return self

    def _card(self, run: Training, problems: list[Problem]) -> dict[str, Any]:
        """What a finished training was, took and reached."""
        network, options, task = run.best, run.options, run.source.task
        best = min(run.history, key=lambda row: row["validation"]["criterion"])
        return {
            "agent": self.name,
            "problem": presets.kind(problems[0]),
            "instances": len(problems),
            "fingerprints": fingerprints(network.config, problems),
            "parameters": sum(p.numel() for p in network.parameters()),
            "training": asdict(options),
            "sampler": asdict(task.options[0]),
            "seed": run.settings["seed"],
            "criterion": CRITERION,
            "best_step": best["step"],
            "validation": best["validation"],
            "budget": {
                "gradient_steps": options.steps,
                "pairs": options.steps * options.problems * options.pairs,
                "rollout_network_calls": task.calls,
                "seconds": round(run.seconds, 1),
            },
            "hardware": f"{platform.machine()}, {os.cpu_count()} cores, {run.device}",
            "threads": torch.get_num_threads(),
            "curve": run.history,
        }

    def _fixed(
        self, start: str | Path | None, resumed: Path | None, training: dict[str, Any]
    ) -> dict[str, Any]:
        """Training options that follow from the training that is started from, or resumed."""
        if start is not None:
            if self.starts_from is None:
                raise ValueError(
                    f"start must be left out for {self.name}, got {str(start)!r}: it starts afresh"
                )
            load_card(Path(start), self.starts_from)
        return {}

    def _begin(self, run: Training, start: str | Path | None) -> None:
        """What must be loaded before the first step of a training that is not resumed."""

    def _setup(
        self,
        on: str | Sequence[Problem],
        validation: Sequence[Problem] | None,
        size: str,
        training: dict[str, Any],
    ) -> tuple[list[Problem], list[Problem], NetworkConfig, TrainingOptions]:
        """Problems to train on and to validate on, all checked, and what is trained on them how."""
        if isinstance(on, str):
            if validation is not None:
                raise ValueError(
                    f"validation must be left out with an environment id, {on} has its own split"
                )
            problems = load_instances(on, "train", 1)
        else:
            problems = listed("on", on)
        first = problems[0]
        floor = getattr(self.options(first), "alpha_min", 0.0)
        config, options = setup(self.name, first, size, training, floor, self.unread, self.proximal)
        if isinstance(on, str):
            problems = load_instances(on, "train", options.instances)
            checks = load_instances(on, "validation", options.validation_instances)
        else:
            checks = problems if validation is None else listed("validation", validation)
        problems, checks = problems[: options.instances], checks[: options.validation_instances]
        check_alike(problems)
        for i, problem in enumerate(checks):
            if presets.kind(problem) != presets.kind(first):
                raise ValueError(
                    f"validation problems must be of the kind trained on, {presets.kind(first)}: number {i} "
                    f"is {words(problem)}"
                )
        for problem in (*problems, *checks):
            config.check(problem)
        return problems, checks, config, options

    def _validate(
        self,
        network: Denoiser,
        problems: list[Problem],
        references: list[Samples],
        options: TrainingOptions,
    ) -> dict[str, float]:
        rows, n = [], options.validation_n
        device = str(next(network.parameters()).device)
        for problem, reference in zip(problems, references, strict=True):
            sampler = self.options(problem)
            schedule = make_schedule(sampler.schedule, sampler.T)
            samples = infer(
                problem,
                NetworkScore(network, problem, schedule, sampler.alpha_min, device),
                schedule,
                sampler,
                n=n,
                groups=divisor_at_most(n, options.groups),
                generator=torch.Generator().manual_seed(1),
            )
            rows.append(judge(problem, samples.z, reference.mean_duals.mean(0)))
        return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}

    def save(self, folder: str | Path) -> None:
        """agent.json, and the weights with their card."""
        if self.network is None:
            raise RuntimeError(f"{self.name} has no weights of its own to save: call learn or load first")
        super().save(folder)
        save_network(Path(folder), self.network, self.card)

    def load(self, folder: str | Path) -> Agent:
        """Take over the settings and the weights that `save` wrote."""
        settings = self._stored_settings(folder)
        self.network, self.card = load_network(Path(folder), self.name)
        self.preset, self.overrides = settings
        return self


class PDINet(LearnedAgent):
    """Algorithm 2 with a network D(z, λ, noise level, graph) trained by Algorithm 1 for the score.

    The replay buffer starts with rollouts of the Monte-Carlo score.
    """

    name = "pdi-net"
    summary = "primal-dual inference with a trained network (Algorithms 1 and 2)"
    options_type = NetworkOptions
    unread = Replay.unread

    def _source(self, task: Task, start: str | Path | None) -> Source:
        return Replay(task)


class PDINetWarm(LearnedAgent):
    """PDI-Net whose replay buffer starts with rollouts of a supervised network (ST)."""

    name = "pdi-net-warm"
    summary = "PDI-Net whose first rollouts are made by ST"
    options_type = NetworkOptions
    unread = Replay.unread
    starts_from = "st"

    def _source(self, task: Task, start: str | Path | None) -> Source:
        if start is None:
            return Replay(task, zoo.network("st", task.problems[0]))
        teacher, card = load_network(Path(start), "st")
        check_fits(teacher.config, card, task.problems[0])
        return Replay(task, teacher)


class Supervised(LearnedAgent):
    """Denoising score matching on an expert's decisions, sampled by deterministic DDIM steps.

    Feasibility rests on the data alone: the expert solves with a margin.
    """

    name = "st"
    summary = "supervised training: imitates the expert's decisions, DDIM sampling"
    options_type = SupervisedOptions
    unread = Experts.unread

    def _source(self, task: Task, start: str | Path | None) -> Source:
        return Experts(task)
