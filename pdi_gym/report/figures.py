"""The figures of a comparison, drawn once: inline SVG in the page's own ink, and PNG files beside it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from pdi_gym.files import whole_file
from pdi_gym.labels import in_figure, in_html
from pdi_gym.problem import Problem
from pdi_gym.problems.wireless import WirelessPower
from pdi_gym.report.statistics import pareto

INK = "#0f0e0d"
"""Stands for the page's text colour: it becomes `currentColor`, so that dark mode needs no second picture."""
MISSED = "#D55E00"
WIDTH = 4.3
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK, "#7F7F7F")
_MARKERS = "osD^vP*X<>hp8d"
_THEME: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pdi-gym",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "axes.grid": True,
}


@dataclass(frozen=True)
class Picture:
    """One figure of a comparison."""

    name: str
    """Unique in a page; also that of its file."""
    figure: Figure
    alt: str
    """What it shows, for those who cannot see it."""
    caption: str


Traces = Mapping[str, dict[str, np.ndarray]]


def style(index: int) -> dict[str, Any]:
    """Colour and marker of the index-th agent: no two share both."""
    return {"color": _COLOURS[index % len(_COLOURS)], "marker": _MARKERS[index % len(_MARKERS)]}


@contextmanager
def theme() -> Iterator[None]:
    with mpl.rc_context(_THEME):
        yield


def _figure(height: float, entries: int = 0, rows: int = 1, width: float = WIDTH) -> tuple[Figure, Any]:
    """A figure with room for a legend of that many entries below the axes."""
    fig = Figure(figsize=(width, height + 0.18 * -(-entries // 3)), layout="constrained")
    return fig, fig.subplots(rows, sharex=True)


def _legend(fig: Figure, ax: Any) -> None:
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3, columnspacing=1)


def _violation_scale(axis: Any, values: np.ndarray) -> None:
    """Logarithmic, with room for exact zeros where there are some."""
    positive = values[values > 0]
    if not len(positive):
        return
    set_scale, set_limits = (getattr(axis.axes, f"set_{axis.axis_name}{what}") for what in ("scale", "lim"))
    low, high = np.log10([max(positive.min(), 1e-12 * positive.max()), positive.max()])
    low, high = np.floor(low), max(np.ceil(high), np.floor(low) + 1)
    if len(positive) == len(values):
        set_scale("log")
        set_limits(10.0**low, 10.0**high)
    else:
        set_scale("symlog", linthresh=10.0**low, linscale=0.5)
        set_limits(-0.2 * 10.0**low, 10.0**high)
    # Counted from the top: the lowest decade is next to zero, where labels would meet.
    decades = 10.0 ** np.arange(high, low, -np.ceil((high - low) / 5))
    axis.set_ticks(np.sort([*decades, 0.0]) if len(positive) < len(values) else np.sort(decades))
    axis.set_minor_formatter(NullFormatter())


def to_svg(picture: Picture) -> str:
    """Inline SVG: ids made unique in the page by its name, ink as `currentColor`, alt text as its label."""
    buffer = io.StringIO()
    picture.figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)

    def change(tag: re.Match[str]) -> str:
        own = re.sub(r'\bid="([^"]+)"', rf'id="{picture.name}-\1"', tag[0])
        own = re.sub(r'(href="|url\()#', rf"\1#{picture.name}-", own)
        return own.replace(INK, "currentColor").replace("xlink:href", "href")

    head, body = re.sub(r"<[^>]+>", change, text).split(">", 1)  # tags alone: what is written stays as it is
    head = re.sub(r' (width|height|version|xmlns\S*)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{in_html(picture.alt)}">{body}'


def write_png(picture: Picture, path: Path) -> None:
    """The same figure on white, readable at the width of a page of text."""
    with whole_file(path) as temporary:
        picture.figure.savefig(temporary, format="png", dpi=200, facecolor="white")


def tradeoff(points: Mapping[str, tuple[float, float]], spread: Mapping[str, tuple[float, float]]) -> Picture:
    """Objective against mean violation with whiskers of one standard deviation and the Pareto front.

    An objective far above the rest would flatten the picture: it is named in the legend instead.
    """
    fig, ax = _figure(3.4, len(points))
    objectives = np.array([o for _, o in points.values() if np.isfinite(o)])
    low, middle = (objectives.min(), np.median(objectives)) if len(objectives) else (0.0, 0.0)
    roof = middle + 4 * max(middle - low, 1e-9) if len(objectives) > 2 else np.finfo(float).max
    front = pareto(points)
    for i, (agent, (violation, objective)) in enumerate(points.items()):
        if not objective <= roof:
            ax.plot([], [], ls="", label=f"{in_figure(agent)} (off, {objective:.3g})", **style(i))
            continue
        ax.plot(violation, objective, ls="", ms=7, label=in_figure(agent), zorder=3, **style(i))
        dx, dy = np.nan_to_num(spread[agent])
        whiskers = {"fmt": "none", "ecolor": style(i)["color"], "elinewidth": 0.7, "alpha": 0.7}
        ax.errorbar(violation, objective, dy, [[min(dx, violation)], [dx]], **whiskers)
    edge = np.array([points[a] for a in front]).reshape(-1, 2)
    ax.step(*edge.T, where="post", color=INK, lw=1, ls="--", zorder=2.5)
    _violation_scale(ax.xaxis, np.array([v for v, _ in points.values()]))
    ax.set(xlabel="mean violation of the average constraints", ylabel="objective (minimised)")
    _legend(fig, ax)
    alt = "Objective against mean violation, one mark per agent. Pareto front: " + ", ".join(front) + "."
    caption = (
        "Down and left is better. Dashed: the front of agents that no other beats in both. "
        "Whiskers: one standard deviation over instances."
    )
    return Picture("tradeoff", fig, alt, caption)


def rate_curves(residuals: Mapping[str, np.ndarray], problem: WirelessPower, instance: int) -> Picture:
    """Distribution of the users' average rates near the requirement, with the r_min line."""
    fig, ax = _figure(3.4, len(residuals))
    for i, (agent, values) in enumerate(residuals.items()):
        rates = np.sort(problem.r_min - values)
        share = np.arange(1, len(rates) + 1) / len(rates)
        ax.step(
            rates,
            share,
            where="post",
            lw=1.3,
            ms=4,
            markevery=max(1, len(rates) // 20),
            label=in_figure(agent),
            **style(i),
        )
    ax.axvline(problem.r_min, color=INK, lw=1, ls="--")
    top = 4 * problem.r_min if problem.r_min > 0 else None
    ax.set(
        yscale="log",
        xlim=(0, top),
        xlabel="average rate of a user, bit/s/Hz",
        ylabel="share of users with at most this",
    )
    ax.annotate("r_min", (problem.r_min, 1), xytext=(3, 2), textcoords="offset points", fontsize=8)
    _legend(fig, ax)
    short = {a: float((v > problem.tolerance).mean()) for a, v in residuals.items()}
    alt = f"Distribution of average rates on instance {instance}. Users short of {problem.r_min:g} bit/s/Hz: "
    alt += ", ".join(f"{a} {100 * s:.1f} %" for a, s in short.items()) + "."
    caption = (
        f"Rates of the users of network {instance}. Lower at the dashed line is better: "
        f"fewer users fall short of {problem.r_min:g}."
    )
    return Picture("rates", fig, alt, caption)


def residual_curves(residuals: Mapping[str, np.ndarray], problem: Problem, instance: int) -> Picture:
    """Share of constraints whose average residual is at most x."""
    fig, ax = _figure(3.4, len(residuals))
    for i, (agent, values) in enumerate(residuals.items()):
        look = {"lw": 1.3, "ms": 4, "markevery": max(1, len(values) // 12), **style(i)}
        ax.ecdf(values, label=in_figure(agent), **look)
    ax.axvline(0, color=INK, lw=1, ls="--")
    scale = 1.5 * float(np.percentile(np.abs(np.concatenate(list(residuals.values()))), 90)) or 1.0
    ax.set(xlim=(-scale, scale), ylim=(0, 1.02))
    ax.locator_params(axis="x", nbins=5)
    ax.set(xlabel="average residual (left of 0 is feasible)", ylabel="share of constraints at most this")
    _legend(fig, ax)
    met = {a: float((v <= problem.tolerance).mean()) for a, v in residuals.items()}
    alt = f"Distribution of average residuals on instance {instance}. Constraints met: "
    alt += ", ".join(f"{a} {100 * s:.1f} %" for a, s in met.items()) + "."
    caption = (
        f"Average residuals of the constraints of instance {instance}. Higher at the dashed line is better."
    )
    return Picture("residuals", fig, alt, caption)


def violation_over_slots(curves: Mapping[str, np.ndarray], instance: int) -> Picture:
    """What a user of one horizon lives through: the violation of the average so far."""
    fig, ax = _figure(3.2, len(curves))
    horizon = len(next(iter(curves.values())))
    slots = np.arange(1, horizon + 1)
    for i, (agent, values) in enumerate(curves.items()):
        look = {"lw": 1.3, "ms": 4, "markevery": max(1, horizon // 8), **style(i)}
        ax.plot(slots, values, label=in_figure(agent), **look)
    _violation_scale(ax.yaxis, np.concatenate([v[horizon // 10 :] for v in curves.values()]))
    ax.set(xlabel="slot", ylabel="violation of the average so far", xlim=(1, max(horizon, 2)))
    _legend(fig, ax)
    alt = (
        f"Mean violation of the running average over one horizon of {horizon} slots on instance {instance}. "
    )
    alt += "At its end: " + ", ".join(f"{a} {v[-1]:.3g}" for a, v in curves.items()) + "."
    caption = (
        f"One horizon of {horizon} slots on instance {instance}: "
        "the mean violation of the average over the slots so far."
    )
    return Picture("slots", fig, alt, caption)


def along_the_sampler(traces: Traces, instance: int) -> Picture:
    """Largest multiplier and mean violation along the sampler's steps."""
    fig, (upper, lower) = _figure(4.2, len(traces), rows=2)
    violations = {agent: np.maximum(t["residuals"], 0).mean(-1) for agent, t in traces.items()}
    for i, (agent, trace) in enumerate(traces.items()):
        share = trace["step"] / max(trace["step"][-1], 1)
        look = {"lw": 1.3, "ms": 4, "markevery": 8, "label": in_figure(agent), **style(i)}
        upper.plot(share, trace["duals"].max(-1), **look)
        lower.plot(share, violations[agent], **look)
    upper.set_yscale("symlog", linthresh=0.1)
    upper.set(ylabel="largest λ", ylim=(0, None))
    _violation_scale(lower.yaxis, np.concatenate([v[len(v) // 10 :] for v in violations.values()]))
    lower.set(xlabel="fraction of the sampler's steps", ylabel="violation of a step")
    _legend(fig, upper)
    alt = f"Multipliers along the sampler on instance {instance}. Largest at the end: "
    alt += ", ".join(f"{a} {t['duals'][-1].max():.3g}" for a, t in traces.items()) + "."
    caption = (
        f"The largest multiplier and the mean violation of a step's decisions on instance {instance}, "
        "averaged over the sampler's groups."
    )
    return Picture("denoising", fig, alt, caption)


def network_map(agent: str, index: int, residuals: np.ndarray, problem: WirelessPower) -> Picture:
    """Who is served: receivers coloured by average rate, crosses where it falls short."""
    assert problem.positions is not None
    fig, ax = _figure(3.0, width=3.0)
    transmitters, receivers = problem.positions
    rates, met = problem.r_min - residuals, residuals <= problem.tolerance
    ends = np.stack([transmitters, receivers, np.full_like(receivers, np.nan)], 1).reshape(-1, 2)
    ax.plot(*ends.T, color=INK, lw=0.5, alpha=0.6, zorder=1)
    top = 2 * problem.r_min if problem.r_min > 0 else max(float(rates.max()), 1e-9)
    shades = mpl.colormaps["viridis"]
    # Six shades instead of one per user: one SVG group each.
    shade = np.clip((6 * rates / top).astype(int), 0, 5)
    for k in range(6):
        chosen = met & (shade == k)
        ax.plot(*receivers[chosen].T, "o", ms=4.5, mfc=shades((k + 0.5) / 6), mec=INK, mew=0.4, zorder=2)
    ax.plot(*receivers[~met].T, "X", ms=7, mfc=MISSED, mec=INK, mew=0.4, zorder=3)
    ax.set(aspect="equal", xticks=[], yticks=[])
    alt = f"Map of the network under {agent}: {int(met.sum())} of {len(met)} users get their rate."
    return Picture(f"map{index}", fig, alt, f"{agent}: {int(met.sum())} of {len(met)} served")
