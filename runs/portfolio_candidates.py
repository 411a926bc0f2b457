"""How many Monte-Carlo candidates PDI needs on portfolios: the paper's 512 against a few.

python runs/portfolio_candidates.py --instances 5   # the committed results, about half an hour on one thread
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from pdi_gym.agents import make_agent
from pdi_gym.evaluation import Row, compare
from pdi_gym.files import write_text
from pdi_gym.report import tables


@dataclass
class Args:
    instances: int = 10
    """Validation instances, seeds 1000 onwards."""
    n: int = 16
    """Portfolios per policy; 512 candidates for each of the usual 1024 would take hours."""
    workers: int = 1
    """Processes, one thread each."""
    seed: int = 0
    """Seed of inference."""
    logs: Path = Path("runs/logs/portfolio_candidates")
    """Finished rows; a repeated run goes on from them."""
    out: Path = Path("runs/results/portfolio_candidates")
    """Folder for results.json and results.md."""


def notes(rows: list[Row]) -> str:
    """What the rows mean, with the figures that carry the claim."""
    seconds = {label: tables.mean_std(own, "seconds")[0] for label, own in tables.by_agent(rows).items()}
    many, few, fast = seconds
    return (
        "\nThe score weighs its candidates by softmax(−E/β). At β = 1/2000 nearly all the weight falls on "
        "one of them until the last steps, so the others are wasted.\n"
        f"\n`{few}` takes {seconds[many] / seconds[few]:.0f} × less time than `{many}`, and `{fast}` "
        f"{seconds[many] / seconds[fast]:.0f} × less. All rows have the same number of portfolios; with more "
        "of them (1024 in the table of agents) the averages that drive the multipliers are less noisy and "
        "violations shrink.\n"
    )


def main(args: Args) -> None:
    agents = {
        "pdi-mc paper, K = 512": make_agent("pdi-mc", preset="paper", n_candidates=512),
        "pdi-mc paper, K = 8": make_agent("pdi-mc", preset="paper"),
        "pdi-mc fast, K = 4": make_agent("pdi-mc"),
    }
    rows = compare(
        agents,
        "Portfolio-v0",
        args.instances,
        seed=args.seed,
        workers=args.workers,
        out=args.logs,
        n=args.n,
        env_kwargs={"split": "validation"},
        on_row=tables.print_row,
    )
    settings = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(args).items()}
    tables.write_results(args.out, rows, settings)
    table = (args.out / "results.md").read_text()
    write_text(args.out / "results.md", f"# Candidates of the Monte-Carlo score\n\n{table}{notes(rows)}")


if __name__ == "__main__":
    main(tyro.cli(Args))
