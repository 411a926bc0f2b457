"""Benchmarks: each times two ways of doing one thing in the same process, on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pdi_gym.agents import make_agent
from pdi_gym.evaluation import one_thread
from pdi_gym.problem import AutogradProblem
from pdi_gym.problems import MixtureOfGaussians
from pdi_gym.validation import check_choice


@dataclass(frozen=True)
class Result:
    name: str
    fast: str
    fast_seconds: float
    slow: str
    slow_seconds: float

    @property
    def ratio(self) -> float:
        return self.slow_seconds / self.fast_seconds

    def cells(self) -> tuple[str, str, str, str, str]:
        return (
            f"{self.name}: {self.fast}", f"{self.fast_seconds:.4g}", self.slow, f"{self.slow_seconds:.4g}",
            f"{self.ratio:.2f}",
        )  # fmt: skip


def seconds(call: Callable[[], Any], repeats: int = 3) -> float:
    """The shortest of a few runs: other processes only ever make a run longer."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def mixture_gradient() -> Result:
    """PDI-MC on the d = 30 mixture, K = 64, 1024 samples: analytic gradient against autograd, 10 steps."""
    problem = MixtureOfGaussians.instance()
    agent = make_agent("pdi-mc", preset="paper", T=10)
    slow: Any = AutogradProblem(problem)
    options = agent.options(problem)
    twin = make_agent("pdi-mc", **{k: getattr(options, k) for k in options.__dataclass_fields__})
    return Result(
        "mixture-gradient",
        "analytic gradient",
        seconds(lambda: agent.sample(problem, n=1024)),
        "autograd",
        seconds(lambda: twin.sample(slow, n=1024)),
    )


BENCHMARKS: dict[str, Callable[[], Result]] = {"mixture-gradient": mixture_gradient}


def run(names: tuple[str, ...] = ()) -> Iterator[Result]:
    """The named benchmarks, or all."""
    for name in names:
        check_choice("names", name, BENCHMARKS)
    with one_thread():
        for name in names or BENCHMARKS:
            yield BENCHMARKS[name]()
