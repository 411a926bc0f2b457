"""How a network can be trained."""

from __future__ import annotations

from dataclasses import dataclass

from pdi_gym.validation import check_int, check_number, settle


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a network is trained."""

    steps: int = 6000
    """Gradient steps."""
    instances: int = 160
    """Training instances, from the first of the split."""
    problems: int = 4
    """Rollouts, or problems, that a gradient step mixes."""
    pairs: int = 16
    """Pairs of each."""
    rate: float = 2e-3
    """Learning rate of AdamW, after a warm-up of a fiftieth of the steps; it falls to zero by a cosine."""
    weight_decay: float = 1e-4
    """Weight decay of AdamW."""
    clip: float = 1.0
    """Largest norm of a gradient."""
    ema: float = 0.998
    """Decay of the averaged weights, which roll out, are validated and are kept."""
    inner: int = 20
    """Gradient steps between two rounds of rollouts."""
    rollouts: int = 2
    """Rollouts, of as many instances, in a round."""
    seed_rollouts: int = 0
    """Rollouts of the Monte-Carlo score, or of the teacher, that fill the buffer first."""
    chains: int = 40
    """Samples of a rollout."""
    groups: int = 2
    """Groups of them with multipliers of their own."""
    keep: int = 200
    """Pairs kept of a rollout, or samples of an expert's run."""
    capacity: int = 200
    """Rollouts in the replay buffer."""
    exploit: float = 0.8
    """Final share of pairs with the rollout's own multipliers; the others draw them from the prior."""
    exploit_steps: int = 500
    """Gradient steps until that share is reached, from zero."""
    prior_low: float = 2.0
    """Mean of the exponential prior of the multipliers on clean samples."""
    prior_high: float = 8.0
    """What full noise adds to that mean."""
    perturb: float = 0.5
    """Share of pairs that are perturbed."""
    perturb_z: float = 0.1
    """Standard deviation of the noise on perturbed samples."""
    perturb_dual: float = 0.5
    """Relative standard deviation of the noise on their multipliers."""
    noise_norm: float | None = None
    """Largest norm of an ε-target, or None where projection bounds the targets."""
    dual_step: float | None = None
    """Step of the multipliers per training instance (dual training); four of the sampler's when left out.

    dt-plus, whose multipliers are frozen, does not take it.
    """
    expert_steps: int | None = None
    """Iterations of the expert on each training instance; its preset's number when left out."""
    expert_margin: float = 0.0
    """What the expert's constraints hold with to spare."""
    b_low: float = 0.1
    """Least weight b of the proximal term; training draws it log-uniformly."""
    b_high: float = 3.0
    """Largest weight b."""
    validate_every: int = 500
    """Gradient steps between two validations; each also saves the state."""
    validation_instances: int = 4
    """Validation instances, from the first of the split."""
    validation_n: int = 60
    """Decisions per policy in a validation."""

    def __post_init__(self) -> None:
        for name in (
            "steps",
            "instances",
            "problems",
            "pairs",
            "inner",
            "rollouts",
            "chains",
            "groups",
            "keep",
            "capacity",
            "exploit_steps",
            "validate_every",
            "validation_instances",
            "validation_n",
        ):
            check_int(name, getattr(self, name), 1)
        check_int("seed_rollouts", self.seed_rollouts, 0)
        if self.expert_steps is not None:
            check_int("expert_steps", self.expert_steps, 1)
        if self.dual_step is not None:
            check_number("dual_step", self.dual_step, 0)
        if self.noise_norm is not None:
            check_number("noise_norm", self.noise_norm, 0, above=True)
        if self.b_low > self.b_high:
            raise ValueError(f"b_low must be ≤ b_high = {self.b_high}, got {self.b_low}")
        for name in ("rate", "clip", "b_low", "b_high"):
            check_number(name, getattr(self, name), 0, above=True)
        for name in (
            "weight_decay",
            "prior_low",
            "prior_high",
            "perturb_z",
            "perturb_dual",
            "expert_margin",
        ):
            check_number(name, getattr(self, name), 0)
        for name in ("ema", "exploit", "perturb"):
            if check_number(name, getattr(self, name), 0) > 1:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}")
        if self.chains % self.groups:
            raise ValueError(f"groups must divide chains = {self.chains}, got {self.groups}")
        settle(self)
