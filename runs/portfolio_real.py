"""Portfolios of real shares: inferred on one period, judged on the next.

python runs/portfolio_real.py     # needs pip install 'pdi-gym[convex,data]'; under a minute

The prices are the twenty S&P 500 shares, 1990 to 2022, that ship inside skfolio: no download.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from pdi_gym.agents import make_agent
from pdi_gym.evaluation import evaluate
from pdi_gym.files import write_text
from pdi_gym.policy import TimeSharingPolicy
from pdi_gym.problems import Portfolio
from pdi_gym.processes import one_thread
from pdi_gym.report import tables

YEAR = 252
"""Trading days."""


@dataclass
class Args:
    agents: tuple[str, ...] = ("pdi-mc", "equal-weight", "markowitz")
    """Agents by name."""
    start: str = "2010-01-01"
    """First day of the data used."""
    fraction: float = 0.7
    """Share of the days on which policies are inferred; the rest judges them."""
    n: int = 512
    """Portfolios per policy."""
    seed: int = 0
    """Seed of inference and of the order in which portfolios are played."""
    out: Path = Path("runs/results/portfolio_real")
    """Folder for results.json and results.md."""


def judge(policy: TimeSharingPolicy, problem: Portfolio, seed: int) -> dict[str, float]:
    """Figures of a policy over a period: exact averages, and one walk through its days in order.

    On the walk a portfolio drawn from the policy is held each day, on the same capital, so wealth is
    1 + the sum of returns; the drawdown is its largest fall from a peak.
    """
    metrics = evaluate(policy, problem)
    played = policy.actions[policy.schedule(len(problem.scenarios), np.random.default_rng(seed))]
    daily = (played * problem.scenarios.numpy()).sum(1)
    wealth = 1 + np.concatenate([[0.0], daily.cumsum()])
    budgets = problem.budgets.numpy()
    mean = np.asarray(policy.weights @ policy.actions)
    risk = np.einsum("n,nj,nj->j", policy.weights, policy.actions, policy.actions @ problem.sigma.numpy())
    return {
        "yearly_return": YEAR * metrics["mean_return"],
        "yearly_volatility": float(np.sqrt(YEAR) * daily.std(ddof=1)),
        "drawdown": float((np.maximum.accumulate(wealth) - wealth).max()),
        "feasible": metrics["feasible"],
        "worst_budget_use": float((risk / budgets).max()),
        "mean_budget_use": float((risk / budgets).mean()),
        "n_eff": metrics["n_eff"],
        "largest_mean_weight": float(mean.max()),
    }


def main(args: Args) -> None:
    try:
        from skfolio.datasets import load_sp500_dataset
    except ImportError as error:
        raise SystemExit("this example needs skfolio's prices: pip install 'pdi-gym[data]'") from error
    prices = load_sp500_dataset().loc[args.start :]
    returns = prices.pct_change().dropna()
    before, after = Portfolio.chronological(returns, args.fraction)
    cut = len(before.scenarios)
    periods = {
        "in sample": (before, f"{returns.index[0]:%Y-%m-%d} to {returns.index[cut - 1]:%Y-%m-%d}"),
        "out of sample": (after, f"{returns.index[cut]:%Y-%m-%d} to {returns.index[-1]:%Y-%m-%d}"),
    }
    rows: list[dict[str, Any]] = []
    for name in args.agents:
        with one_thread():
            policy = make_agent(name).sample(before, args.n, args.seed)
        for period, (problem, _) in periods.items():
            rows.append({"agent": name, "period": period, **judge(policy, problem, args.seed)})
    settings = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(args).items()}
    dates = {period: span for period, (_, span) in periods.items()}
    content = {"command": tables.command(), "versions": tables.versions(), "settings": settings}
    write_text(args.out / "results.json", json.dumps({**content, "periods": dates, "rows": rows}, indent=1))
    write_text(args.out / "results.md", report(rows, dates, before))
    print((args.out / "results.md").read_text())


def report(rows: list[dict[str, Any]], dates: dict[str, str], problem: Portfolio) -> str:
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        cells = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return (
        f"# Real shares, inferred on {dates['in sample']}, judged on {dates['out of sample']}\n\n"
        f"`{tables.command()}`\n\n"
        f"{problem.latent_dim} shares: {', '.join(problem.names)}. Daily returns; every share may contribute "
        f"{float(problem.budgets[0]):.2e} to the daily variance, three times its part of the equal-weight "
        "portfolio in the first period. The second period keeps these budgets. `worst_budget_use` is the "
        "largest average contribution over its budget (1 is the limit).\n\n" + "\n".join(lines) + "\n"
        "\nBudgets are met where they were inferred, and only there: Σ of the second period is larger, so "
        "every policy uses more of its budgets than it was built to. One portfolio that limits the total "
        "risk alone (markowitz) puts it into few shares. Twenty shares that survived until 2022 flatter all "
        "returns.\n"
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
