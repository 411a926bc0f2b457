"""Figures, drawn headless: every function returns a Matplotlib figure and opens no window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pdi_gym.labels import in_figure
from pdi_gym.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pdi_gym.problems.mixture import MixtureOfGaussians
    from pdi_gym.problems.portfolio import Portfolio
    from pdi_gym.problems.wireless import WirelessPower

MET, MISSED, NEUTRAL = "#0072B2", "#D55E00", "#666666"
"""Okabe–Ito blue and vermilion: told apart by colour-blind readers."""


def figure(width: float = 6.4, height: float = 4.2, **grid: Any) -> tuple[Figure, Any]:
    """A figure on the Agg canvas and its axes (one, or an array for a grid)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(fig)
    return fig, fig.subplots(**grid)


def to_array(fig: Figure) -> np.ndarray:
    """The figure as an (h, w, 3) uint8 picture."""
    canvas: Any = fig.canvas
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def residual_bars(residuals: np.ndarray, problem: Problem, title: str) -> Figure:
    """Average residual of every constraint, sorted; met and missed ones told apart."""
    fig, ax = figure()
    order = np.argsort(residuals)
    values = residuals[order]
    n_met = int((values <= problem.tolerance).sum())
    edges = np.arange(len(values) + 1) - 0.5
    # One outline for all bars: hundreds of patches take a second to draw.
    ax.stairs(values[:n_met], edges[: n_met + 1], fill=True, color=MET, label=f"met ({n_met})")
    ax.stairs(
        values[n_met:],
        edges[n_met:],
        fill=True,
        color=MISSED,
        hatch="///",
        label=f"missed ({len(values) - n_met})",
    )
    ax.axhline(problem.tolerance, color="black", lw=0.8)
    ax.set(xlabel="constraint, sorted", ylabel="average residual (≤ 0 is feasible)", title=title)
    ax.legend()
    return fig


def mixture_samples(problem: MixtureOfGaussians, points: np.ndarray, title: str) -> Figure:
    """Visited points and mode centres: in the plane with the feasible region, else in two directions.

    Beyond the plane the axes are the direction of the hardest constraint for the average point and
    the centres' leading direction orthogonal to it.
    """
    fig, ax = figure(5.6, 5.2)
    centres = problem.means.numpy()
    flat = problem.latent_dim == 2
    basis = np.eye(2) if flat else _view(problem, points)
    if flat:
        _shade_feasible(ax, problem)
    ax.scatter(*(centres @ basis.T).T, marker="x", s=60, color="black", label="mode centres", zorder=3)
    if len(points):
        ax.scatter(*(points @ basis.T).T, s=10, alpha=0.5, color=MET, label="visited points")
        mean = points.mean(0)
        met = bool(
            (problem.constraints(torch.as_tensor(mean, dtype=torch.float32)) <= problem.tolerance).all()
        )
        label = "average point, feasible" if met else "average point, infeasible"
        ax.scatter(
            *(basis @ mean),
            marker="*" if met else "P",
            s=180,
            color=MISSED,
            ec="black",
            label=label,
            zorder=4,
        )
    names = ("$x_1$", "$x_2$") if flat else ("along the hardest constraint", "across it")
    ax.set(xlabel=names[0], ylabel=names[1], title=title)
    ax.legend(loc="best", fontsize=8)
    return fig


def _view(problem: MixtureOfGaussians, points: np.ndarray) -> np.ndarray:
    """Two orthonormal directions (2, d) worth looking along."""
    mean = points.mean(0) if len(points) else np.zeros(problem.latent_dim)
    residual = problem.constraints(torch.as_tensor(mean, dtype=torch.float32)).numpy()
    first = problem.A.numpy()[int(residual.argmax())]
    first = first / np.linalg.norm(first)
    centres = problem.means.numpy()
    across = centres - np.outer(centres @ first, first)
    _, _, directions = np.linalg.svd(across - across.mean(0))
    return np.stack([first, directions[0]])


def _shade_feasible(ax: Any, problem: MixtureOfGaussians) -> None:
    half = problem.bound
    axis = torch.linspace(-half, half, 200)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1)
    density = (-problem.objective(grid)).exp().numpy()
    worst = problem.constraints(grid).max(-1).values.numpy()
    levels = density.max() * np.array([0.05, 0.2, 0.4, 0.6, 0.8])
    ax.contour(axis, axis, density, levels=levels, colors=NEUTRAL, linewidths=0.6)
    ax.contourf(axis, axis, worst, levels=[-1e9, 0], colors=["#009E73"], alpha=0.15)
    ax.contour(axis, axis, worst, levels=[0], colors=["#009E73"], linestyles="--")


def portfolio_horizon(
    problem: Portfolio, played: np.ndarray, residuals: np.ndarray, wealth: list[float]
) -> Figure:
    """Average weight and μ per sector, share of each asset's budget used, and wealth over the slots.

    played (slots, N) are the portfolios so far, residuals (m,) their running averages, and wealth
    starts at 1 and adds every slot's return: the capital at work is the same in each.
    """
    fig, (left, middle, right) = figure(11, 3.6, ncols=3)
    sectors = problem.sectors.numpy()
    weight = played.mean(0) if len(played) else np.zeros(problem.latent_dim)
    n_sectors = int(sectors.max()) + 1
    exposure = np.bincount(sectors, weights=weight, minlength=n_sectors)
    pay = np.bincount(sectors, weights=problem.mu.numpy()) / np.bincount(sectors)
    left.bar(np.arange(n_sectors), exposure, color=MET)
    for k in range(n_sectors):
        left.annotate(f"{pay[k]:.2f}", (k, exposure[k]), ha="center", va="bottom", fontsize=7)
    left.set(xlabel="sector (label: its mean return μ)", ylabel="average weight", title="Weights by sector")
    budgets = problem.budgets.numpy()
    used = np.sort(1 + residuals[: len(budgets)] / budgets) if len(played) else np.zeros(len(budgets))
    rank = np.arange(len(used))
    over = used > 1 + problem.tolerance / budgets.mean()
    middle.fill_between(rank, np.minimum(used, 1), color=MET, step="mid", label=f"within ({(~over).sum()})")
    middle.fill_between(
        rank, 1, np.maximum(used, 1), where=over, color=MISSED, step="mid", label=f"over ({over.sum()})"
    )
    middle.axhline(1, color="black", lw=0.8)
    middle.set(xlabel="asset, sorted", ylabel="risk contribution / budget", title="Budgets used on average")
    middle.set_ylim(min(0, used.min()), min(max(1.3, 1.05 * used.max()), 4))
    middle.legend(loc="upper left", fontsize=8)
    right.plot(wealth, color=MET, lw=1.5)
    right.set(xlabel="slot", ylabel="1 + sum of returns", title=f"Wealth, slot {len(wealth) - 1}")
    right.grid(alpha=0.3)
    return fig


def network_map(problem: WirelessPower, rates: np.ndarray, title: str) -> Figure:
    """Where the pairs stand; receivers coloured by served rate, and crosses where it falls short."""
    fig, ax = figure(6.4, 5.6)
    _draw_network(fig, [ax], problem, [rates])
    ax.set_title(title, fontsize=9)
    return fig


def network_maps(problem: WirelessPower, rates: dict[str, np.ndarray]) -> Figure:
    """`network_map` of several agents side by side, under one colour scale."""
    fig, axes = figure(4.0 * len(rates) + 0.8, 4.9, ncols=len(rates), squeeze=False, sharey=True)
    _draw_network(fig, list(axes[0]), problem, list(rates.values()))
    for ax, (name, own) in zip(axes[0], rates.items(), strict=True):
        served = int((own >= problem.r_min - problem.tolerance).sum())
        words = f"{own.mean():.2f} bit/s/Hz on average, {served} of {len(own)} served"
        ax.set_title(f"{in_figure(name)}\n{words}", fontsize=10)
        ax.label_outer()
    return fig


def _draw_network(fig: Figure, axes: list[Any], problem: WirelessPower, rates: list[np.ndarray]) -> None:
    assert problem.positions is not None
    transmitters, receivers = problem.positions
    ends = np.stack([transmitters, receivers, np.full_like(receivers, np.nan)], 1).reshape(-1, 2)
    top = 2 * problem.r_min if problem.r_min > 0 else max(float(np.max(rates)), 1e-9)
    for ax, own in zip(axes, rates, strict=True):
        met = own >= problem.r_min - problem.tolerance
        ax.plot(*ends.T, color=NEUTRAL, lw=0.8, zorder=1)
        ax.scatter(*transmitters.T, marker="^", s=14, color=NEUTRAL, label="transmitter", zorder=2)
        for mask, marker, size, name in ((met, "o", 34, "met"), (~met, "X", 64, "missed")):
            points = ax.scatter(
                *receivers[mask].T,
                c=own[mask],
                cmap="cividis",
                vmin=0,
                vmax=top,
                marker=marker,
                s=size,
                edgecolors="black" if name == "met" else MISSED,
                linewidths=0.5 if name == "met" else 1.2,
                label=f"receiver, requirement {name}",
                zorder=3,
            )
        ax.set(xlabel="metres", ylabel="metres", aspect="equal")
    label = f"average rate in bit/s/Hz (required: {problem.r_min:g})"
    fig.colorbar(points, ax=axes, label=label, extend="max", shrink=0.9)
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
