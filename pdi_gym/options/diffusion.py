"""Options of the diffusion samplers: one dataclass per family, a sentence per option."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pdi_gym.diffusion import KERNELS
from pdi_gym.schedules import SCHEDULES
from pdi_gym.scores import CANDIDATES
from pdi_gym.validation import check_choice, check_int, check_number

_UNREAD = {"mc": (), "exact": ("n_candidates", "candidates"), "net": ("n_candidates", "candidates", "beta")}
"""Options that each score field does not read; a network has the temperature that it was trained at."""


@dataclass(frozen=True, kw_only=True)
class DenoisingOptions:
    """Options of a diffusion sampler without multipliers.

    The defaults suit an unknown, possibly unbounded problem.
    """

    T: int = 200
    """Denoising steps."""
    schedule: str = "cosine"
    """Noise schedule: cosine, linear, linear-snr or polynomial-snr."""
    beta: float = 0.1
    """Temperature of the Gibbs law exp(−(f0 + λᵀf)/beta)."""
    n_candidates: int = 16
    """Candidates K of the Monte-Carlo score."""
    n_draws: int = 8
    """Fresh realisations ξ averaged at every step."""
    candidates: str = "lemma"
    """Form of the Monte-Carlo candidates: lemma or unscaled."""
    kernel: str = "posterior"
    """Reverse kernel: posterior, ancestral or ddim."""
    alpha_min: float = 0.3
    """Floor of α in candidates and clean estimates; needed where no box bounds the problem."""
    score: str = "mc"
    """Score field: mc, net or exact."""

    def __post_init__(self) -> None:
        for name in ("T", "n_candidates", "n_draws"):
            check_int(name, getattr(self, name), 1)
        check_number("beta", self.beta, 0, above=True)
        check_number("alpha_min", self.alpha_min, 0)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("candidates", self.candidates, CANDIDATES)
        check_choice("kernel", self.kernel, KERNELS)
        check_choice("score", self.score, _UNREAD)

    def unread(self) -> dict[str, str]:
        """Options without effect beside these values, each with the setting that makes it so."""
        return dict.fromkeys(_UNREAD[self.score], f"score={self.score!r}")


@dataclass(frozen=True, kw_only=True)
class DiffusionOptions(DenoisingOptions):
    """Options of primal-dual inference."""

    dual_step: float = 0.1
    """Step η of the dual ascent."""
    dual_init: float = 0.0
    """First value of every multiplier."""
    dual_max: float | None = None
    """Upper clamp of the multipliers, or None."""
    dual_decay: float = 0.0
    """Fraction of the multipliers forgotten at every step."""
    dual_ramp: float = 0.0
    """Exponent p of η_t = dual_step·α_t^p: with p > 0 the duals trust clean estimates only as noise fades."""
    margin: float = 0.0
    """What the dual steps ask constraints to hold with to spare, in the constraints' units."""
    groups: int = 1
    """Chains of samples, each with multipliers of its own; must divide the number of samples."""
    tweedie: str = "current"
    """Clean estimate that drives the duals: of the current or the next sample."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("groups", self.groups, 1)
        for name in ("dual_step", "dual_init", "dual_decay", "dual_ramp", "margin"):
            check_number(name, getattr(self, name), 0)
        _check_dual_max(self.dual_max)
        check_choice("tweedie", self.tweedie, ("current", "next"))


@dataclass(frozen=True, kw_only=True)
class TailOptions(DiffusionOptions):
    """Options of the sampler with λ frozen at a late average."""

    tail: float = 0.5
    """Last fraction of the path that is averaged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if check_number("tail", self.tail, 0, above=True) > 1:
            raise ValueError(f"tail must be in (0, 1], got {self.tail}")


@dataclass(frozen=True, kw_only=True)
class ProjectionOptions(DenoisingOptions):
    """Options of projected diffusion."""

    projection_steps: int = 100
    """Most iterations of each projection; it stops early once every sample is feasible."""
    projection_rate: float = 0.05
    """Gradient step of the general projection (half-spaces need none)."""
    penalty: float = 30.0
    """Weight ζ of the violation in the general projection."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("projection_steps", self.projection_steps, 1)
        check_number("projection_rate", self.projection_rate, 0, above=True)
        check_number("penalty", self.penalty, 0, above=True)


@dataclass(frozen=True, kw_only=True)
class GuidanceOptions(DenoisingOptions):
    """Options of guidance by the violation."""

    guidance: float = 1.0
    """Strength of the guidance by each sample's violation, multiplied by σ_t."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("guidance", self.guidance, 0)


@dataclass(frozen=True, kw_only=True)
class AdaptiveOptions(DiffusionOptions):
    """Options of primal-dual inference with annealing and momentum."""

    heat: float = 4.0
    """Temperature at full noise, as a multiple of beta."""
    cool: float = 0.25
    """Temperature at the end, as a multiple of beta; in between it falls geometrically."""
    momentum: float = 0.8
    """Share of the last dual step that the next one keeps: steady residuals are met faster."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("heat", self.heat, 0, above=True), check_number("cool", self.cool, 0, above=True)
        if check_number("momentum", self.momentum, 0) >= 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")
        if self.score != "mc":
            raise ValueError(f"score must be 'mc' for pdi-adaptive, got {self.score!r}: only it can anneal")


@dataclass(frozen=True, kw_only=True)
class LearnedOptions(DenoisingOptions):
    """Options of a sampler with a trained network; some are read by its training alone."""

    score: str = "net"
    """Score field: mc, net or exact."""
    device: str = "cpu"
    """Where the network runs: cpu or cuda."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device)

    def unread(self) -> dict[str, str]:
        return {}  # candidates and temperature make the targets of the training


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(LearnedOptions, DiffusionOptions):
    """Options of primal-dual inference with a trained network."""


@dataclass(frozen=True, kw_only=True)
class DualTrainingOptions(LearnedOptions):
    """Options of dual training, whose multipliers ascend in training and are absent from sampling."""

    dual_step: float = 0.1
    """Step of the dual ascent, a quarter of that of an instance's multipliers in training."""
    dual_init: float = 0.0
    """First value of every multiplier."""
    dual_max: float | None = None
    """Upper clamp of the multipliers, or None."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("dual_step", self.dual_step, 0)
        check_number("dual_init", self.dual_init, 0)
        _check_dual_max(self.dual_max)


@dataclass(frozen=True, kw_only=True)
class SupervisedOptions(LearnedOptions):
    """Options of the supervised sampler, whose training asks an expert and no score."""

    kernel: str = "ddim"
    """Reverse kernel: posterior, ancestral or ddim."""

    def unread(self) -> dict[str, str]:
        return DenoisingOptions.unread(self)


def _check_dual_max(value: float | None) -> None:
    if value is not None:
        check_number("dual_max", value, 0, above=True)


def check_device(device: str) -> str:
    check_choice("device", device, ("cpu", "cuda"))
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' needs a GPU that this torch can use, there is none: use 'cpu'")
    return device
