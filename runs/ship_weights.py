"""Put finished trainings into the package: half-precision weights with their cards, and their curves.

pdi-gym train pdi-net WirelessPower-v0 --out runs/logs/zoo/pdi-net-wireless
python runs/ship_weights.py runs/logs/zoo/pdi-net-wireless

The training curve, and the checkpoints along a dual training, go to runs/results/training.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import tyro

from pdi_gym import zoo
from pdi_gym.checkpoints import CARD, load_network, save_network
from pdi_gym.files import whole_file, write_text
from pdi_gym.training.curve import training_curve


@dataclass
class Args:
    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished trainings."""
    results: Path = Path("runs/results/training")
    """Folder of curves and histories."""
    curves_only: bool = False
    """Keep the curves, but ship no weights."""


def main(args: Args) -> None:
    for folder in args.folders:
        agent = json.loads((folder / CARD).read_text())["agent"]
        network, card = load_network(folder, agent)
        name = f"{agent}-{card['problem']}"
        curve = card.pop("curve")
        if not args.curves_only:
            described = {k: v for k, v in card.items() if k not in ("format", "network", "digest", "weights")}
            save_network(zoo.FOLDER / name, network, described, half=True)
        place = args.results / name
        write_text(place / "history.json", json.dumps(curve, indent=1) + "\n")
        write_text(place / CARD, json.dumps(card, indent=1) + "\n")
        with whole_file(place / "curve.png") as temporary:
            training_curve(curve).savefig(temporary, dpi=110, format="png")
        if agent == "dt" and not args.curves_only:
            shutil.copytree(folder / "checkpoints", place / "checkpoints", dirs_exist_ok=True)
        print(f"{name}: {card['parameters']} parameters, best at step {card['best_step']}")
    zoo.write_digests()


if __name__ == "__main__":
    main(tyro.cli(Args))
