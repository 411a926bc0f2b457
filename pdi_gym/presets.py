"""Settings of the samplers per kind of problem, found by measurement on validation instances.

`paper` is the paper's setting where it is stated and the release's where it is not; `fast`, the
default, is the cheapest setting found whose validation metrics are no worse. Agents that the paper does
not have take longer under `paper`. A user's own problem has one preset, in units of its own scales
(see `scales`); agents with a network or a closed form take it as it is, with the defaults of their options.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, TypeVar

from pdi_gym.options import (
    AdaptiveOptions,
    ColumnOptions,
    DenoisingOptions,
    ExpertOptions,
    GuidanceOptions,
    LangevinOptions,
    LearnedOptions,
    ProjectionOptions,
    ProximalOptions,
    SupervisedOptions,
)
from pdi_gym.problem import Problem
from pdi_gym.problems.mixture import MixtureOfGaussians
from pdi_gym.problems.portfolio import Portfolio
from pdi_gym.problems.wireless import WirelessPower
from pdi_gym.scales import Scales, pilot
from pdi_gym.validation import settle, suggest

PRESETS = ("fast", "paper")

Options = TypeVar("Options")

_MIXTURE = {"T": 500, "beta": 1 / 50, "dual_step": 1.0, "n_candidates": 64, "n_draws": 1, "alpha_min": 0.0}
_PLANE = {**_MIXTURE, "schedule": "linear", "beta": 1 / 3, "dual_step": 0.5}

_PORTFOLIO = {
    "T": 500,
    "beta": 1 / 2000,
    "dual_step": 300.0,
    "dual_max": 1e4,
    "n_candidates": 8,
    "candidates": "unscaled",
    "alpha_min": 0.0,
}
# Not "lemma": its candidates spread by σ/α logits, so for most of the chain each is one asset. There the
# softmax is flat and says nothing of the budgets, while the residuals are thousands of them; what these
# add to λ is never taken back, since a step down is at most η·b.

_WIRELESS = {
    "T": 500,
    "beta": 1.0,
    "dual_step": 0.05,
    "dual_init": 10.0,
    "groups": 10,
    "n_candidates": 8,
    "n_draws": 8,
    "candidates": "unscaled",
    "alpha_min": 0.0,
}

_MIRROR = {
    "b": 2.0, "noise": 0.0, "chains": 2, "warm": 300, "dual_init": 0.3, "dual_step": 0.3, "margin": 0.02,
    "residual_max": 5.0,
}  # fmt: skip
"""Of dual ascent around the analytic step of a portfolio: logit noise only hurts."""
_ENRICHED = {"chains": 8, "pool": 2400}
"""Under a cap on names no portfolio meets all budgets: more chains, and a program over all they found."""

_PAPER: dict[tuple[type, str], dict[str, Any]] = {
    (DenoisingOptions, "mixture"): _MIXTURE,
    (DenoisingOptions, "mixture-plane"): _PLANE,
    (LangevinOptions, "mixture"): {"primal_step": 1e-3, "dual_step": 10.0, "n_draws": 1},
    (LangevinOptions, "mixture-plane"): {"primal_step": 1e-3, "dual_step": 5.0, "n_draws": 1},
    (DenoisingOptions, "portfolio"): _PORTFOLIO,
    (LangevinOptions, "portfolio"): {"primal_step": 1e-2, "dual_step": 100.0},
    (DenoisingOptions, "wireless"): _WIRELESS,
    (LangevinOptions, "wireless"): {"primal_step": 1e-4, "dual_step": 1.0, "start_scale": 0.1},
    (ExpertOptions, "portfolio"): {"steps": 800, "primal_step": 0.5, "chains": 2, "window": 0.1},
    (ProximalOptions, "portfolio"): _MIRROR,
    (ProximalOptions, "generic"): {"margin": 0.0},
    (ProximalOptions, "mixture"): {"margin": 0.0},
    (ProximalOptions, "mixture-plane"): {"margin": 0.0},
    (ExpertOptions, "wireless"): {"steps": 1000, "dual_step": 2.0, "chains": 8, "n_draws": 2},
    (GuidanceOptions, "wireless"): {"guidance": 10.0},
    (ProjectionOptions, "mixture"): {"projection_steps": 80},
    (ProjectionOptions, "portfolio"): {"projection_steps": 50},
    # Squared residuals are near 1e-8 and flat at the vertices: only such a strength moves anything.
    (GuidanceOptions, "portfolio"): {"guidance": 1e8},
    (ProjectionOptions, "mixture-plane"): {"projection_steps": 80},
    (AdaptiveOptions, "wireless"): {"margin": 0.2},
    (ColumnOptions, "wireless"): {
        "steps": 600,
        "primal_step": 0.03,
        "dual_step": 1.0,
        "chains": 16,
        "n_draws": 4,
        "margin": 0.05,
        "fresh": 32,
        "warm": 32,
        "price_rate": 0.1,
        "rounds": 5,
        "draws": 500,
    },
    (ColumnOptions, "portfolio"): {
        "steps": 500,
        "primal_step": 0.5,
        "window": 0.5,
        "fresh": 0,
        "warm": 32,
        "price_steps": 20,
        "price_rate": 0.5,
        "smoothing": 0.8,
        "rounds": 3,
        "pool": 400,
    },
    (ColumnOptions, "mixture"): {
        "steps": 500,
        "dual_step": 1.0,
        "fresh": 32,
        "price_steps": 300,
        "rounds": 40,
    },
    (ColumnOptions, "mixture-plane"): {"steps": 500, "dual_step": 1.0, "price_steps": 300},
    # In units of the problem's scales; chosen on problems with known optima, the same values for all of them.
    (DenoisingOptions, "generic"): {
        "T": 400,
        "beta": 0.008,
        "dual_step": 0.2,
        "margin": 0.02,
        "n_candidates": 32,
        "n_draws": 128,
    },
    (AdaptiveOptions, "generic"): {"dual_step": 0.05, "cool": 0.5},
    (GuidanceOptions, "generic"): {"guidance": 10.0},
    (ProjectionOptions, "generic"): {"projection_rate": 0.01},
    (LangevinOptions, "generic"): {"steps": 1000, "primal_step": 5e-4, "dual_step": 0.05, "beta": 0.008},
    # The first steps are large enough for any λ, the last small enough to see all that is nearly best at it.
    (ExpertOptions, "generic"): {
        "primal_step": 0.2,
        "dual_step": 0.1,
        "dual_fall": 2.0,
        "shares": "optimal",
        "window": 1.0,
    },
    (ColumnOptions, "generic"): {
        "primal_step": 0.02,
        "dual_step": 0.1,
        "dual_fall": 0.0,
        "window": 0.5,
        "stop": 1e-5,
        "final_draws": 200_000,
    },
}
"""What differs from the class defaults. A class takes the rows of its bases too, of each what it has."""

_FAST: dict[tuple[type, str], dict[str, Any]] = {
    (DenoisingOptions, "mixture"): {"n_candidates": 8},
    (DenoisingOptions, "mixture-plane"): {"T": 200, "dual_step": 0.2},
    # With α floored at .5 estimates leave the vertices early; the ramp keeps λ low until they have.
    (DenoisingOptions, "portfolio"): {"T": 200, "dual_ramp": 0.5, "n_candidates": 4, "alpha_min": 0.5},
    # Fewer steps with dual_step·T kept, so that multipliers travel as far.
    (DenoisingOptions, "wireless"): {"T": 100, "dual_step": 0.25, "n_candidates": 2, "n_draws": 8},
    (ProjectionOptions, "wireless"): {"projection_steps": 20},
    # Half a percent less rate for two fifths of the time.
    (ColumnOptions, "wireless"): {
        "steps": 500,
        "n_draws": 2,
        "pool": 200,
        "price_steps": 60,
        "rounds": 3,
        "draws": 300,
    },
    # A network's score is smooth in the noise level, so fewer steps do; the candidates and draws are those
    # of its training targets, which regression averages. A network smooths what multipliers say, towards the
    # weak: they start lower and move faster than the Monte-Carlo score's, chosen on validation networks.
    (LearnedOptions, "wireless"): {
        "T": 50,
        "dual_step": 0.7,
        "dual_init": 8.0,
        "n_candidates": 4,
        "n_draws": 4,
    },
    (LearnedOptions, "mixture"): {"n_candidates": 64, "kernel": "ddim"},
    (LearnedOptions, "portfolio"): {"T": 100},
    (SupervisedOptions, "wireless"): {"T": 100},
    (SupervisedOptions, "portfolio"): {"T": 100},
    (SupervisedOptions, "mixture"): {"T": 100},
}
"""What `fast` changes on top of `paper`."""

_N_POLICIES = {"mixture": 1024, "mixture-plane": 1024, "portfolio": 1024, "wireless": 200, "generic": 200}


KINDS = tuple(_N_POLICIES)
"""The rows of the table."""


def kind(problem: Problem) -> str:
    """The row of the preset table that a problem belongs to; "generic" for a user's own class."""
    if isinstance(problem, MixtureOfGaussians):
        return "mixture-plane" if problem.latent_dim <= 2 else "mixture"
    if isinstance(problem, Portfolio):
        return "portfolio"
    if isinstance(problem, WirelessPower):
        return "wireless"
    return "generic"


def n_policies(problem: Problem) -> int:
    """How many decisions a policy holds when the caller does not say."""
    return _N_POLICIES[kind(problem)]


def resolve(options_type: type[Options], problem: Problem, preset: str, overrides: dict[str, Any]) -> Options:
    """The preset of that problem's kind with the overrides on top."""
    row = kind(problem)
    values: dict[str, Any] = {}
    free = _free(options_type, overrides.get("score", "mc"))
    if row == "generic" and issubclass(options_type, DenoisingOptions) and not free:
        return options_type(**overrides)
    for table in (_PAPER, _FAST) if preset == "fast" else (_PAPER,):
        for cls in reversed(options_type.__mro__):
            values |= table.get((cls, row), {})
    if row.startswith("mixture") and math.isinf(problem.bound):
        values.pop("alpha_min", None)  # without a box, the floor is what bounds the clean estimate
    if isinstance(problem, Portfolio):
        values |= _market_units(problem, options_type, preset)
    known = _names(options_type)
    return options_type(**({k: v for k, v in values.items() if k in known} | overrides))


def scales(problem: Problem, options: Any) -> Scales | None:
    """The units of those options on that problem, by a pilot estimate; None where they are its own."""
    if kind(problem) != "generic" or not _free(type(options), getattr(options, "score", "mc")):
        return None
    return pilot(problem)


def _free(options_type: type[Any], score: str) -> bool:
    """Whether options are those of a method without network and closed form, which any units suit."""
    free = issubclass(options_type, DenoisingOptions | LangevinOptions | ExpertOptions)
    return free and score == "mc" and not issubclass(options_type, LearnedOptions)


def _names(options_type: type[Any]) -> list[str]:
    return [f.name for f in fields(options_type)]


def _market_units(problem: Portfolio, options_type: type[Any], preset: str) -> dict[str, Any]:
    """Temperature and dual steps in the market's own units, daily or yearly, few assets or many.

    λ is return per variance, so its unit is mean|μ|/Σb. The clamp is what keeps an instance from
    collapsing: an asset whose variance is a thousand budgets could otherwise, by one early visit,
    get a multiplier so large that every sample flees from vertex to vertex.
    """
    size = float(problem.mu.abs().mean())
    unit = size / float(problem.budgets.sum())
    # What a step takes from λ when a budget is left unused, in its unit; few assets want more.
    share = 0.05 * math.sqrt(500 / problem.latent_dim)
    dual_step = share * unit / float(problem.budgets.mean())
    if issubclass(options_type, ProximalOptions):
        return {} if problem.limits is None else _ENRICHED
    if issubclass(options_type, ExpertOptions):
        budget = float(problem.budgets.mean())
        values: dict[str, Any] = {"dual_step": 0.3 * unit / budget, "dual_init": 0.3 * unit}
        values["residual_max"] = 5 * budget
        if not issubclass(options_type, ColumnOptions):
            return values | {"margin": 0.02 * budget}
        return values if problem.limits is None else values | {"first": "prox"}
    if issubclass(options_type, DenoisingOptions) and preset == "fast":
        values = {"beta": size / 440, "dual_step": dual_step / 2, "dual_max": 5 * unit}
        if issubclass(options_type, LearnedOptions):
            # 100 steps instead of 200. Started at zero, the multipliers of 500 assets ended too low for a
            # tenth of the budgets; few assets do not need it.
            values |= {"dual_step": dual_step, "dual_init": 0.006 * size / float(problem.budgets.mean())}
        return values
    return {}


def check_overrides(agent: str, options_type: type[Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """The given options as plain numbers; unknown names, bad values and ignored options are refused."""
    known = _names(options_type)
    for name in overrides:
        if name not in known:
            raise TypeError(
                f"{agent} has no option {name!r}{suggest(name, known)}; it takes {', '.join(known) or 'none'}"
            )
    options = options_type(**overrides)
    unread = options.unread() if hasattr(options, "unread") else {}
    for name in overrides:
        if name in unread:
            raise TypeError(f"{agent} ignores {name!r} with {unread[name]}: leave one of them out")
    settle(options)
    return {name: getattr(options, name) for name in overrides}
