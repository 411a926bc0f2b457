"""The training curve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pdi_gym.drawing import MET, MISSED, NEUTRAL, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def training_curve(history: list[dict[str, Any]]) -> Figure:
    """Loss, validation objective and validation feasibility over gradient steps."""
    fig, axes = figure(9.6, 2.9, ncols=3)
    steps = [row["step"] for row in history]
    panels = (
        ("training loss", [row["loss"] for row in history], NEUTRAL),
        ("validation objective", [row["validation"]["objective"] for row in history], MET),
        ("validation feasible fraction", [row["validation"]["feasible"] for row in history], MISSED),
    )
    for ax, (label, values, colour) in zip(axes, panels, strict=True):
        ax.plot(steps, values, color=colour, marker="o", ms=3)
        ax.set(xlabel="gradient step", ylabel=label)
    return fig
