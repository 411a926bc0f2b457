"""How the samplers of trained networks were set: alternatives on validation instances.

python runs/network_samplers.py        # the committed results
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tyro

from pdi_gym.agents import Agent, make_agent
from pdi_gym.evaluation import Row
from pdi_gym.experiments.run import PORTFOLIO, WIRELESS, Common, Run, table

NAME = "network-samplers"
MIXTURE = ("objective", "feasible", "mean_violation", "modes")
WIRELESS_SETTINGS = ((10.0, 0.5), (8.0, 0.5), (8.0, 0.7))
"""First value and step of the multipliers."""


@dataclass
class Args(Common):
    networks: int = 12
    """Validation networks."""
    portfolios: int = 2
    """Validation portfolios, 128 decisions per policy."""
    mixture_seeds: tuple[int, ...] = (100, 101, 102, 103)
    """Inference seeds on the mixture, none of which is in a table; 1024 samples per policy."""


def labelled(settings: dict[str, dict[str, Any]]) -> dict[str, Agent]:
    """PDI-Net under each setting, and PDI-MC for comparison."""
    return {label: make_agent("pdi-net", **own) for label, own in settings.items()} | {
        "pdi-mc": make_agent("pdi-mc")
    }


def main(args: Args) -> None:
    run = Run(NAME, args)
    wireless = run.compare(
        labelled(
            {
                f"λ0 {init:g}, η {step:g}": {"dual_init": init, "dual_step": step}
                for init, step in WIRELESS_SETTINGS
            }
        ),
        "WirelessPower-v0",
        args.networks,
        n=200,
        trials=20,
        env_kwargs={"split": "validation"},
        folder="wireless",
    )
    portfolio = run.compare(
        labelled({"λ0 of the preset": {}, "λ0 = 0": {"dual_init": 0.0}}),
        "Portfolio-v0",
        args.portfolios,
        n=128,
        env_kwargs={"split": "validation"},
        folder="portfolio",
    )
    kernels = labelled({kernel: {"kernel": kernel} for kernel in ("ddim", "posterior")})
    mixture: list[Row] = []
    for seed in args.mixture_seeds:
        found = run.compare(kernels, "MixtureOfGaussians-v0", 1, n=1024, seed=seed, folder=f"mixture {seed}")
        mixture += [row | {"instance": seed} for row in found]
    parts = [
        f"{title}:\n\n{table(rows, metrics)}"
        for title, rows, metrics in (
            (f"Multipliers' start and step, {args.networks} validation networks", wireless, WIRELESS),
            (f"Multipliers' start, {args.portfolios} validation portfolios", portfolio, PORTFOLIO),
            (f"Reverse kernel, {len(args.mixture_seeds)} seeds that no table has", mixture, MIXTURE),
        )
    ]
    run.write(
        [*wireless, *portfolio, *mixture],
        [],
        "\n".join(parts),
        sample="Validation instances; the shipped networks under other settings of their sampler.",
        reduced="The paper gives no such comparison.",
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
