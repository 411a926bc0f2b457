"""Options of the methods that descend: Langevin, the dual method, column generation, proximal steps."""

from __future__ import annotations

from dataclasses import dataclass

from pdi_gym.schedules import SCHEDULES
from pdi_gym.validation import check_choice, check_int, check_number


@dataclass(frozen=True, kw_only=True)
class LangevinOptions:
    """Options of primal-dual Langevin."""

    steps: int = 500
    """Iterations."""
    primal_step: float = 1e-3
    """Step of the noisy gradient descent."""
    dual_step: float = 1.0
    """Step of the dual ascent."""
    dual_init: float = 0.0
    """First value of every multiplier."""
    beta: float = 1.0
    """Temperature: the drift is divided by it."""
    start_scale: float = 1.0
    """Standard deviation of the starting latents."""
    n_draws: int = 8
    """Fresh realisations ξ averaged at every step."""

    def __post_init__(self) -> None:
        check_int("steps", self.steps, 1), check_int("n_draws", self.n_draws, 1)
        for name in ("primal_step", "beta"):
            check_number(name, getattr(self, name), 0, above=True)
        for name in ("dual_step", "dual_init", "start_scale"):
            check_number(name, getattr(self, name), 0)


@dataclass(frozen=True, kw_only=True)
class ExpertOptions:
    """Options of the dual gradient method."""

    steps: int = 2000
    """Iterations."""
    primal_step: float = 0.02
    """Step of Adam in the latent space, or 1/κ of the problem's own proximal step."""
    dual_step: float = 0.1
    """Step of the dual ascent."""
    dual_fall: float = 0.0
    """Exponent p of η_t = dual_step·(1 − t/steps)^p: with p > 0 the multipliers settle."""
    dual_init: float = 0.0
    """First value of every multiplier."""
    chains: int = 16
    """Decisions that descend side by side under the same multipliers."""
    n_draws: int = 8
    """Fresh realisations ξ averaged at every step."""
    window: float = 0.5
    """Last fraction of the iterates, the converged ones, from which the policy is taken."""
    margin: float = 0.0
    """Safety: constraints are asked to hold with this much to spare."""
    residual_max: float | None = None
    """Largest average residual that a dual step sees, or None."""
    shares: str = "equal"
    """Time of the iterates: equal, or optimal, which the linear program over 2000 of them decides."""

    def __post_init__(self) -> None:
        if self.residual_max is not None:
            check_number("residual_max", self.residual_max, 0, above=True)
        check_number("margin", self.margin, 0)
        for name in ("steps", "chains", "n_draws"):
            check_int(name, getattr(self, name), 1)
        check_number("primal_step", self.primal_step, 0, above=True)
        check_number("dual_step", self.dual_step, 0)
        check_number("dual_init", self.dual_init, 0)
        check_number("dual_fall", self.dual_fall, 0)
        check_choice("shares", self.shares, ("equal", "optimal"))
        if check_number("window", self.window, 0, above=True) > 1:
            raise ValueError(f"window must be in (0, 1], got {self.window}")


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(ExpertOptions):
    """Options of column generation; the dual method's options are those of its first pool."""

    first: str = "dual"
    """What makes the first pool and multipliers: the dual method (dual), a cold diffusion (pdi) or
    pdi-prox (prox)."""
    pool: int = 400
    """Decisions of the first pool, at least as many as the policy has."""
    rounds: int = 20
    """Most rounds."""
    fresh: int = 16
    """New starts of each round."""
    fresh_from: str = "random"
    """Where they come from: random, or samples of a cold diffusion with λ frozen (diffusion)."""
    warm: int = 16
    """Starts of each round from the decisions with most time."""
    price_steps: int = 100
    """Steps of each descent; 0 takes the starts as they are."""
    price_rate: float = 0.05
    """First step size of each descent, in the latent space."""
    smoothing: float = 0.5
    """Share of the best multipliers so far in those that a round uses; the rest are the program's."""
    draws: int = 1000
    """Realisations over which decisions are averaged for the program, where they are not exact."""
    final_draws: int = 0
    """Realisations over which the chosen decisions are averaged anew for their final shares; 0: not anew."""
    stop: float = 1e-3
    """End once the value is within this fraction of the estimated bound."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("first", self.first, ("dual", "pdi", "prox"))
        check_choice("fresh_from", self.fresh_from, ("random", "diffusion"))
        check_int("pool", self.pool, 1), check_int("draws", self.draws, 1)
        for name in ("rounds", "fresh", "warm", "price_steps", "final_draws"):
            check_int(name, getattr(self, name), 0)
        if self.fresh + self.warm == 0:
            raise ValueError("fresh + warm must be ≥ 1: a round needs a start")
        for name in ("stop", "smoothing"):
            check_number(name, getattr(self, name), 0)
        if self.smoothing > 1:
            raise ValueError(f"smoothing must be in [0, 1], got {self.smoothing}")
        check_number("price_rate", self.price_rate, 0, above=True)

    def unread(self) -> dict[str, str]:
        """Options without effect beside these values, each with the setting that makes it so."""
        dual_method = (
            "steps",
            "primal_step",
            "dual_step",
            "dual_fall",
            "dual_init",
            "chains",
            "window",
            "residual_max",
        )
        found = {} if self.first == "dual" else dict.fromkeys(dual_method, f"first={self.first!r}")
        found["shares"] = "shares that are always optimal"
        if self.fresh == 0:
            found["fresh_from"] = "fresh=0"
        if self.price_steps == 0:
            found["price_rate"] = "price_steps=0"
        return found


_PROXIMAL: dict[str, dict[str, float]] = {
    "stream": {"chains": 4, "b": 0.15, "dual_init": 2.0, "dual_step": 0.3, "margin": 0.08},
    "window": {"T": 50, "chains": 8, "b": 0.3, "dual_init": 3.0, "dual_step": 0.5, "margin": 0.1},
    "algorithm-2": {"T": 25, "groups": 10, "b": 0.7, "dual_init": 5.0, "dual_step": 1.0, "margin": 0.17},
}
"""What suits each sampler around a network, in natural units; chosen on wireless validation networks."""


@dataclass(frozen=True, kw_only=True)
class ProximalOptions:
    """Options of dual ascent around proximal steps; what is left out is what suits the sampler.

    Multipliers, their step and the margin are in the problem's natural units (`Problem.units`).
    """

    sampler: str = "stream"
    """stream (chains held at one noise level), window (the last estimates of a short Algorithm 2) or
    algorithm-2."""
    b: float | None = None
    """Weight of the proximal term: the larger, the shorter the steps."""
    chains: int | None = None
    """Decisions that share a step of a stream, or of a window; algorithm-2 has as many as the policy."""
    warm: int = 40
    """First steps of a stream, which are not kept."""
    noise: float = 0.9
    """Noise level (2/π)·atan(σ/α) at which a stream is held, in [0, 1)."""
    T: int | None = None
    """Denoising steps of window, algorithm-2 and the rollouts of a training."""
    schedule: str = "cosine"
    """Noise schedule of window, algorithm-2 and the rollouts of a training."""
    groups: int | None = None
    """Chains of algorithm-2 with multipliers of their own; must divide the number of samples."""
    dual_init: float | None = None
    """First value of every multiplier."""
    dual_step: float | None = None
    """Step of the dual ascent."""
    margin: float | None = None
    """What the dual steps ask constraints to hold with to spare."""
    residual_max: float | None = None
    """Largest residual that a dual step sees, or None."""
    n_draws: int = 4
    """Fresh realisations ξ averaged at every step."""
    pool: int = 0
    """Decisions over which shares of time are optimised, or 0 for equal shares of those that are drawn."""
    pool_margin: float = 0.0
    """What the constraints hold with to spare under the optimised shares."""
    device: str = "cpu"
    """Where a network is trained: cpu."""

    def __post_init__(self) -> None:
        check_choice("sampler", self.sampler, _PROXIMAL)
        own = {"T": 25, "chains": 1, "groups": 1} | _PROXIMAL[self.sampler]
        for name, value in own.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        for name in ("chains", "T", "groups", "n_draws"):
            check_int(name, getattr(self, name), 1)
        check_int("warm", self.warm, 0), check_int("pool", self.pool, 0)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_number("b", self.b, 0, above=True)
        for name in ("dual_init", "dual_step", "margin", "pool_margin"):
            check_number(name, getattr(self, name), 0)
        if self.residual_max is not None:
            check_number("residual_max", self.residual_max, 0, above=True)
        if check_number("noise", self.noise, 0) >= 1:
            raise ValueError(f"noise must be in [0, 1), got {self.noise}")
        if self.device != "cpu":
            raise ValueError(f"device must be 'cpu' for proximal steps, got {self.device!r}")

    def unread(self) -> dict[str, str]:
        """Options without effect beside these values, each with the setting that makes it so."""
        ignored = {
            "stream": ("groups",),
            "window": ("groups", "warm", "noise"),
            "algorithm-2": ("chains", "warm", "noise"),
        }
        found = dict.fromkeys(ignored[self.sampler], f"sampler={self.sampler!r}")
        return found if self.pool else found | {"pool_margin": "pool=0"}
