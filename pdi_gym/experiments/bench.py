"""Benchmarks: each times two ways of doing one thing in the same process, on one thread.

Absolute times say more about the machine than about the code; a ratio within one run does not.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from pdi_gym import zoo
from pdi_gym.agents import make_agent
from pdi_gym.evaluation import compare
from pdi_gym.problem import AutogradProblem
from pdi_gym.problems import MixtureOfGaussians, Portfolio, WirelessPower
from pdi_gym.processes import one_thread
from pdi_gym.training.loop import Training
from pdi_gym.training.presets import setup
from pdi_gym.training.rollouts import Task
from pdi_gym.training.sources import Replay
from pdi_gym.validation import check_choice

VALIDATION = "validation"


@dataclass(frozen=True)
class Result:
    """Two timed calls and what their ratio, slow over fast, should be."""

    name: str
    fast: str
    fast_seconds: float
    slow: str
    slow_seconds: float
    target: str

    @property
    def ratio(self) -> float:
        return self.slow_seconds / self.fast_seconds

    def cells(self) -> tuple[str, ...]:
        fast, slow = f"{self.fast}: {self.fast_seconds:.3g} s", f"{self.slow}: {self.slow_seconds:.3g} s"
        return self.name, fast, slow, f"{self.ratio:.2f}", self.target


def seconds(call: Callable[[], Any], repeats: int = 3) -> float:
    """The shortest of a few runs: other processes only ever make a run longer."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def _twins(problem: Any, n: int, **options: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The same PDI-MC run with the analytic gradient and through autograd."""
    agent = make_agent("pdi-mc", preset="paper", **options)
    settings = agent.options(problem)
    twin = make_agent("pdi-mc", **{name: getattr(settings, name) for name in settings.__dataclass_fields__})
    slow: Any = AutogradProblem(problem)
    return lambda: agent.sample(problem, n=n), lambda: twin.sample(slow, n=n)


def mixture_gradient() -> Result:
    """PDI-MC on the 30-dimensional mixture, K = 64, 1024 samples, 10 steps: analytic against autograd."""
    fast, slow = _twins(MixtureOfGaussians.instance(), 1024, T=10)
    return Result("mixture-gradient", "analytic", seconds(fast), "autograd", seconds(slow), "> 1")


def wireless_gradient() -> Result:
    """PDI-MC at N = 200, 200 policies, K = 8, 50 draws, 3 steps: analytic against autograd."""
    fast, slow = _twins(WirelessPower.instance(0, VALIDATION), 200, T=3, n_draws=50)
    return Result("wireless-gradient", "analytic", seconds(fast), "autograd", seconds(slow, 1), "≥ 4")


def wireless_products() -> Result:
    """The same 3 steps against the two matrix products that each of them cannot do without."""
    problem = WirelessPower.instance(0, VALIDATION)
    run, _ = _twins(problem, 200, T=3, n_draws=50)
    n, draws, rows = problem.latent_dim, 50, 8 * 200
    u, matrix, back = torch.rand(rows, n), torch.rand(draws, n, n), torch.empty(rows, n)

    def products() -> None:
        for _ in range(3):
            for one in matrix:
                torch.addmm(back, u @ one, one.mT, out=back)

    return Result("wireless-products", "bare products", seconds(products), "PDI-MC", seconds(run), "≤ 1.6")


def wireless_preset() -> Result:
    """The default preset against T = 500, K = 8, 50 draws (10 of its steps, times 50)."""
    problem = WirelessPower.instance(0, VALIDATION)
    full, _ = _twins(problem, 200, T=10, n_draws=50)
    quick = make_agent("pdi-mc")
    default = seconds(lambda: quick.sample(problem, n=200), 1)
    return Result("wireless-preset", "fast", default, "T 500, K 8, 50 draws", 50 * seconds(full, 1), "≥ 25")


def _slot_seconds(step: Callable[[np.ndarray], Any], n_users: int, slots: int) -> float:
    """The time of a slot of 64 environments that have been reset."""
    actions = np.zeros((64, n_users), dtype=np.float32)
    step(actions)

    def play() -> None:
        for _ in range(slots):
            step(actions)

    return seconds(play, 2) / slots


def _vector(n_users: int, slots: int) -> tuple[float, float]:
    times = []
    for mode in ("vector_entry_point", "sync"):
        envs = gym.make_vec("WirelessPower-v0", num_envs=64, vectorization_mode=mode, n_users=n_users)
        envs.reset(seed=0)
        times.append(_slot_seconds(envs.step, n_users, slots))
        envs.close()
    return times[0], times[1]


def vector_small() -> Result:
    """64 environments of 8 users: one native step against a synchronous one."""
    native, sync = _vector(8, 200)
    return Result("vector-8-users", "native", native, "sync", sync, "≥ 10")


def vector_large() -> Result:
    """64 environments of 200 users, fading included."""
    native, sync = _vector(200, 52)
    return Result("vector-200-users", "native", native, "sync", sync, "≥ 2")


def sb3_small() -> Result:
    """64 environments of 8 users for Stable-Baselines3: our `VecEnv` against its `DummyVecEnv`."""
    from stable_baselines3.common.env_util import make_vec_env

    from pdi_gym.sb3 import make_sb3_vec  # both take seconds to load

    times = []
    for venv in (
        make_sb3_vec("WirelessPower-v0", 64, seed=0, n_users=8),
        make_vec_env("WirelessPower-v0", 64, seed=0, env_kwargs={"n_users": 8}),
    ):
        venv.reset()
        times.append(_slot_seconds(venv.step, 8, 100))
        venv.close()
    return Result("sb3-8-users", "native", times[0], "DummyVecEnv", times[1], "≥ 5")


def scalar_step() -> Result:
    """A slot of WirelessPower-v0 at 200 users against the fading and rate kernels it contains."""
    env = gym.make("WirelessPower-v0", disable_env_checker=True).unwrapped
    env.reset(seed=0, options={"instance": 0})
    problem: WirelessPower = env.problem  # type: ignore[attr-defined]
    action = np.zeros(problem.latent_dim, dtype=np.float32)
    x = torch.full((1, problem.latent_dim), problem.p_max / 2)
    slots = 104

    def kernels() -> None:
        left = slots
        path = problem.path(500, torch.Generator().manual_seed(0))
        while left > 0:
            for xi in torch.split(next(path), 1):
                problem.slot(x, xi)
                left -= 1

    def steps() -> None:
        env.reset(seed=0, options={"instance": 0})
        for _ in range(slots):
            env.step(action)

    return Result("scalar-step", "kernels", seconds(kernels), "environment", seconds(steps), "≤ 1.5")


def wireless_growth() -> Result:
    """PDI-MC's default preset, 40 policies, N = 400 against N = 50: at most 64 = (400/50)²."""
    times = []
    for n_users in (50, 400):
        problem = WirelessPower.instance(0, VALIDATION, n_users=n_users)
        agent = make_agent("pdi-mc")
        times.append(seconds(lambda problem=problem, agent=agent: agent.sample(problem, n=40), 2))  # type: ignore[misc]
    return Result("wireless-growth", "50 users", times[0], "400 users", times[1], "≤ 64")


def portfolio_gradient() -> Result:
    """PDI-MC on 500 assets, 256 portfolios, K = 8, 5 steps: analytic against autograd."""
    fast, slow = _twins(Portfolio.instance(0, split=VALIDATION), 256, T=5)
    return Result("portfolio-gradient", "analytic", seconds(fast), "autograd", seconds(slow), "≥ 2")


def portfolio_candidates() -> Result:
    """The default preset against T = 500, K = 512 (2 of its steps, times 250), 16 portfolios each."""
    problem = Portfolio.instance(0, split=VALIDATION)
    many, _ = _twins(problem, 16, T=2, n_candidates=512)
    quick = make_agent("pdi-mc")
    few = seconds(lambda: quick.sample(problem, n=16), 2)
    return Result("portfolio-candidates", "fast", few, "T 500, K 512", 250 * seconds(many, 2), "≥ 20")


def compare_workers() -> Result:
    """`compare` of PDI-MC on 16 networks: two workers, their start-up included, against one.

    Only a machine with two idle cores can show it.
    """
    times = []
    for workers in (2, 1):
        start = time.perf_counter()
        compare(["pdi-mc"], "WirelessPower-v0", 16, workers=workers, env_kwargs={"split": VALIDATION})
        times.append(time.perf_counter() - start)
    return Result("compare-workers", "2 workers", times[0], "1 worker", times[1], "≥ 1.7")


def _forward(rows: int) -> tuple[Any, Any, tuple[Tensor, ...]]:
    """The shipped wireless network, a problem, and `rows` inputs at mid noise."""
    problem = WirelessPower.instance(0, VALIDATION)
    generator = torch.Generator().manual_seed(0)
    z, lam = (torch.rand((rows, problem.latent_dim), generator=generator) for _ in range(2))
    level = torch.full((rows, 1), 0.5**0.5)
    return zoo.network("pdi-net", problem), problem, (z, level, level, lam)


def graph_folding() -> Result:
    """A block of the shipped wireless network on 40 samples of 200 users.

    Folded products against torch-geometric's convolutions over edges copied per sample; all else alike.
    """
    from torch_geometric.nn import TAGConv  # seconds to import: only where it is needed

    network, problem, _ = _forward(1)
    block, graph, samples, n = network.body.blocks[0], problem.graph, 40, problem.latent_dim
    width, messages, hops = block.own.in_features, block.down.out_features, block.along.K
    along, against = (TAGConv(messages, width, K=hops, bias=False, normalize=False) for _ in range(2))
    along.load_state_dict(block.along.state_dict()), against.load_state_dict(block.against.state_dict())
    copies = torch.cat([graph.edge_index + k * n for k in range(samples)], 1)
    weight = graph.edge_weight.repeat(samples)
    h, embedding = torch.rand(n, samples, width), torch.rand(samples, width)
    flat = h.transpose(0, 1).contiguous()

    def copied() -> Tensor:
        m = block.down(flat)
        rows = m.flatten(0, 1)
        met = along(rows, copies, weight) + against(rows, copies.flip(0), weight)
        y = block.own(flat) + met.view_as(flat) + block.everyone(m.mean(1, keepdim=True))
        out: Tensor = flat + block.film(torch.nn.functional.silu(block.norm(y)), embedding.unsqueeze(1))
        return out

    with torch.no_grad():
        fast = seconds(lambda: block(h, embedding, graph.adjacency), 10)
        slow = seconds(copied, 10)
    return Result("graph-folding", "folded", fast, "edges copied per sample", slow, "> 1")


def network_inference() -> Result:
    """200 decisions for a network of 200 users: pdi-net against pdi-mc, each with its default options."""
    problem = WirelessPower.instance(0, VALIDATION)
    times = []
    for name in ("pdi-mc", "pdi-net"):
        agent = make_agent(name)
        agent.sample(problem, n=1)  # loads the network
        times.append(seconds(lambda agent=agent: agent.sample(problem, n=200), 2))  # type: ignore[misc]
    return Result("network-score", "pdi-mc", times[0], "pdi-net", times[1], "no target")


def training_step() -> Result:
    """A gradient step of pdi-net at 200 users: its share of targets, rollouts and gradient, pairs a second.

    A round of rollouts comes every `inner` steps; a step bears that part of it.
    """
    network, problem, _ = _forward(1)
    agent = make_agent("pdi-net")
    sampler = agent.options(problem)
    _, options = setup("pdi-net", problem, "cpu", {}, sampler.alpha_min)
    source = Replay(Task([problem], [sampler], options, torch.Generator().manual_seed(0)))
    source.visit(0, 1, network)
    pieces = list(source.pieces(1))
    learner = copy.deepcopy(network).requires_grad_(True)
    run = Training(learner, source, options, lambda _: {}, Path())

    def gradient() -> None:
        for _ in range(options.problems):
            torch.autograd.backward(source.losses(learner, pieces[0], "cpu").mean())
        run.optimiser.step()

    # One rollout is in the buffer: a step draws as many pieces as it mixes.
    targets = options.problems * seconds(lambda: list(source.pieces(1)))
    rolled = options.rollouts / options.inner * seconds(lambda: source.visit(0, 1, network), 2)
    whole = targets + rolled + (learnt := seconds(gradient))
    pairs = options.problems * options.pairs / whole
    shares = f"rollouts {rolled / whole:.0%}, gradient {learnt / whole:.0%}, {pairs:.0f} pairs/s"
    return Result(
        "training-step", f"targets {targets / whole:.0%}", targets, f"step: {shares}", whole, "no target"
    )


BENCHMARKS: dict[str, Callable[[], Result]] = {
    "mixture-gradient": mixture_gradient,
    "wireless-gradient": wireless_gradient,
    "wireless-products": wireless_products,
    "wireless-preset": wireless_preset,
    "wireless-growth": wireless_growth,
    "portfolio-gradient": portfolio_gradient,
    "portfolio-candidates": portfolio_candidates,
    "vector-8-users": vector_small,
    "vector-200-users": vector_large,
    "sb3-8-users": sb3_small,
    "scalar-step": scalar_step,
    "compare-workers": compare_workers,
    "graph-folding": graph_folding,
    "network-score": network_inference,
    "training-step": training_step,
}


def run(names: tuple[str, ...] = ()) -> Iterator[Result]:
    """The named benchmarks, or all."""
    for name in names:
        check_choice("names", name, BENCHMARKS)
    with one_thread():
        for name in names or BENCHMARKS:
            yield BENCHMARKS[name]()
