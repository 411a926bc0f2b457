"""The three figures of runs/theory.py."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

from pdi_gym.schedules import SCHEDULES

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def plot_convergence(result: dict, out: Path) -> None:
    rows = result["rows"]
    T = np.array([r["T"] for r in rows])
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    left.loglog(
        T, [r["dual"] for r in rows], "o-", label=f"linear constraints, slope {result['slope_dual']:.2f}"
    )
    left.loglog(T, [r["dual_curved"] for r in rows], "s-", label="quadratic constraint")
    left.loglog(
        *zip(*result["population"].items(), strict=True), "C1:", label="the same, infinitely many samples"
    )
    left.loglog(T, rows[0]["dual"] * (T / T[0]) ** -0.5, "k--", lw=1, label=r"$1/\sqrt{T}$")
    left.set(
        xlabel="reverse steps T",
        ylabel=r"$\|\bar\lambda-\lambda^*\|^2$",
        title="Theorem 1: averaged multipliers",
    )
    right.loglog(T, [r["w2"] for r in rows], "o-", label=f"measured, slope {result['slope_w2']:.2f}")
    right.loglog(T, [r["bound_with_defect"] for r in rows], "^-", label="bound with the kernel's defect")
    right.loglog(T, [r["bound"] for r in rows], "v:", label="bound as printed")
    right.loglog(T, rows[0]["w2"] * (T / T[0]) ** -0.5, "k--", lw=1, label=r"$1/\sqrt{T}$")
    right.set(xlabel="reverse steps T", ylabel=r"$W_2(p_T,\mu^*)$", title="Theorem 2: law of the samples")
    for axis in (left, right):
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3, which="both")
    fig.savefig(out / "convergence.png", dpi=120)
    plt.close(fig)


def plot_bias(result: dict, out: Path) -> None:
    names = ["linear, exact score", "linear, Monte-Carlo K=64", "quadratic, exact run, K=64 probed"]
    fig, axes = plt.subplots(1, len(names), figsize=(4 * len(names), 4), sharey=True, layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        terms = result["along_t"][name]
        for term, style in (
            ("spread", "k:"),
            ("tweedie", "C3"),
            ("approximation", "C0"),
            ("history", "C2"),
            ("floor", "C1"),
        ):
            values = np.array(terms[term])
            if values.max() > 1e-5:
                label = r"$\epsilon_{TW}$ (paper's bound)" if term == "spread" else term
                axis.semilogy(np.maximum(values, 1e-6), style, lw=1.2, label=label)
        axis.set(xlabel="reverse step t", title=name, ylim=(1e-5, 100))
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("size of the term in the dual gradient")
    fig.savefig(out / "bias.png", dpi=120)
    plt.close(fig)


def plot_stability(result: dict, out: Path) -> None:
    fig, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, layout="constrained")
    for column, label in enumerate(("Gaussian", "two modes")):
        for name in SCHEDULES:
            row = result[f"{label}, {name}"]
            axes[0, column].plot(row["rho"], label=name, lw=1.2)
            axes[1, column].semilogy(row["psi"], label=name, lw=1.2)
        axes[0, column].axhline(1, color="k", lw=0.7)
        axes[0, column].set(ylabel=r"$\rho_t$", title=label, ylim=(0.9, 1.1))
        axes[1, column].set(ylabel=r"$\Psi_{t,T}$", xlabel="reverse step t")
        axes[0, column].legend(fontsize=8)
        for axis in axes[:, column]:
            axis.grid(alpha=0.3)
    fig.savefig(out / "stability.png", dpi=120)
    plt.close(fig)
