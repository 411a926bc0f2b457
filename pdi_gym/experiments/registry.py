"""Every table, figure and theorem of the paper by name: `pdi-gym reproduce NAME` runs its script in runs/."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pdi_gym.experiments.claims import FAILS, HOLDS, RULE, UNKNOWN, WEAKER, overall
from pdi_gym.experiments.run import LOGS, RESULTS, claims_table
from pdi_gym.validation import suggest

ROOT = Path(__file__).resolve().parents[2]

EXPERIMENTS: dict[str, str] = {
    "intro-map": "One test network, receivers coloured by served rate: PDI lifts the worst-served.",
    "mixture-bars": "Objective, feasibility, modes and seconds on the mixture: PDI has the best objective.",
    "mixture-toy": "Samples in the plane, one shared λ against one per sample: per sample is conservative.",
    "mixture-transition": "Initial-to-final mode matrices of PDL and PDI: PDL stays near its start.",
    "wireless-table": "All rows of the wireless table and yardsticks on the test networks: the ranking.",
    "wireless-dt-plus": "DT continued with frozen duals against PDI-Net: it catches up, at higher cost.",
    "wireless-fixed-dual": "λ_T and λ̄ really frozen against full PDI: the dynamics beat both, λ̄ beats λ_T.",
    "wireless-schedules": "Four noise schedules under PDI-MC: the SNR schedules fail.",
    "wireless-dt-duals": "DT's duals against PDI's along training: they come close, then drift.",
    "wireless-dt-checkpoints": "DT checkpoints along training: mean rate above PDI's, tails below.",
    "wireless-ood": "r_min from .5 to .8: PDI degrades more gracefully than DT.",
    "wireless-temperature": "Powers at three temperatures: β = 1 balances rate and feasibility.",
    "wireless-annealing": "Powers of four user pairs under PDI and PDL: PDI finds more modes.",
    "wireless-rates": "Multipliers and residuals along the sampler, and who gets which rate.",
    "portfolio-table": "All rows of the portfolio table and yardsticks: PDI has the best trade-off.",
    "portfolio-fixed-dual": "λ_T and λ̄ frozen, different λ0: dynamics beat both, λ0 does not matter.",
    "portfolio-tail": "λ frozen at averages of the last 10 to 100 % of its path: the full average is best.",
    "portfolio-temperature": "β⁻¹ from 100 to 2000 over the denoising steps: lower β, better return.",
    "portfolio-schedules": "Four noise schedules: cosine and linear are more feasible.",
    "theory-dual": "Theorem 1: the rate of λ̄ and the three terms of its floor.",
    "theory-primal": "Theorem 2: measured W2 against the bound, and ρ_t along the schedules.",
}
"""Name → what it shows. Its script is runs/name_with_underscores.py, its results are in runs/results/name."""

QUICK = LOGS / "reproduce-quick"

TUNING = """\
Test instances were never used for a choice. On validation instances:

| method | what was tuned |
|---|---|
| PDI-MC, preset fast | steps, dual step, candidates and draws; on portfolios also α floor, ramp and clamp |
| PDI-MC, preset paper | nothing: the paper's settings, but 8 candidates for 512 on portfolios |
| PDI-Net | width, depth, inputs; first value and step of the multipliers, or the kernel ([network-samplers]\
(../runs/results/network-samplers/results.md)) |
| DT, DT+ | dual step, training instances, rollouts; PDI-Net's network without λ; nothing at inference |
| ST | the expert's margin, with the paper's 5 % rate in view |
| PDL | nothing: the paper's settings |
| PDM | number of projection steps, for time |
| DPS | the strength of guidance, with the paper's row in view: its match is fitted |
| expert, pdi-cg | steps and rates of the dual method, margin, pool and rounds |

PDI-MC and PDI-Net had more attention than the baselines, DPS apart; the rows of preset paper show what PDI-MC
does without it."""


def script(name: str) -> Path:
    """The script behind a name."""
    return ROOT / "runs" / f"{name.replace('-', '_')}.py"


def chosen(names: Sequence[str]) -> list[str]:
    """The names to run, `all` spelled out; refuses unknown ones before anything runs."""
    if not names:
        raise ValueError("names must have at least one experiment, or all: see pdi-gym reproduce --list")
    for name in names:
        if name not in (*EXPERIMENTS, "all"):
            raise ValueError(f"unknown experiment {name!r}{suggest(name, EXPERIMENTS)}; see --list")
    return list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))


def load(name: str) -> ModuleType:
    """The script as a module with `Args`, `QUICK` and `main`."""
    path = script(name)
    if not path.exists():
        raise ValueError(f"{path} does not exist: reproduce needs a clone of the repository, not a wheel")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # scripts may share a module beside them
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def reproduce(name: str, *, quick: bool = False, workers: int = 1, **changes: Any) -> None:
    """Run one experiment; `quick` takes about a minute and leaves the committed results alone."""
    module = load(name)
    if quick:
        folder = QUICK / name
        changes = {"out": folder, "logs": folder / "logs", **module.QUICK, **changes}
    module.main(module.Args(workers=workers, **changes))


def results(name: str, root: Path = ROOT) -> dict[str, Any] | None:
    """The committed results of a name, or None."""
    path = root / RESULTS / name / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def page(root: Path = ROOT) -> str:
    """The verdicts, and every claim with its figures, from the committed results."""
    found = {name: results(name, root) for name in EXPERIMENTS}
    claims = {name: r["claims"] if r else [] for name, r in found.items()}
    lines = [
        "Every table, figure and theorem of the paper has a name. `pdi-gym reproduce --list` shows them;",
        "`pdi-gym reproduce NAME` runs one with the settings of the committed results, `--quick` in about a",
        "minute, `all` runs every one. A killed run goes on from its finished rows; mixture-transition and",
        "the theory scripts, a minute or two each, begin anew. Seconds in the tables are those of the",
        "processor, one thread, on a machine that does other work: `pdi-gym bench` measures speed.\n",
        "Wireless policies are judged over 50 trials of 500 slots. A results page that says nothing else "
        "played them\nover one path of fading, as the paper does; pages made since then say over how many "
        "independent paths.\nRows of expert and pdi-cg on portfolios are as old: they show Adam on logits, "
        "not the mirror step\nthat both take now.\n",
        "## How methods were tuned\n",
        f"{TUNING}\n",
        "## How a verdict is reached\n",
        f"{RULE}\n",
        "## Verdicts\n",
        "| name | what it shows | verdict | claims that hold | hold weaker | do not hold | open |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, sentence in EXPERIMENTS.items():
        told = [c["verdict"] for c in claims[name]]
        verdict = overall(told) if told else "no claim" if found[name] else "not run"
        counts = [str(told.count(v) or "–") for v in (HOLDS, WEAKER, FAILS, UNKNOWN)]
        lines.append(f"| [{name}](#{name}) | {sentence} | **{verdict}** | {' | '.join(counts)} |")
    lines.append("\n## What does not hold in our hands\n")
    failed = [(name, c) for name in EXPERIMENTS for c in claims[name] if c["verdict"] == FAILS]
    lines += [f"* [{name}](#{name}): {c['claim']}. Ours: {c['ours']}; {c['reason']}." for name, c in failed]
    why = Counter((n, c["reason"]) for n in EXPERIMENTS for c in claims[n] if c["verdict"] == UNKNOWN)
    if why:
        lines.append("\n## What cannot be told yet\n")
        lines += [f"* [{n}](#{n}): {k} claim{'s' * (k > 1)}, {reason}." for (n, reason), k in why.items()]
    for name in EXPERIMENTS:
        lines += section(name, found[name])
    return "\n".join(lines) + "\n"


def section(name: str, found: dict[str, Any] | None) -> list[str]:
    """One experiment of the page."""
    lines = [f"\n## {name}\n", EXPERIMENTS[name]]
    if found is None:
        return [*lines, f"\nNot run yet: `pdi-gym reproduce {name}`."]
    folder = f"../{RESULTS.as_posix()}/{name}"
    lines += [
        f"{found['sample']} {found['reduced']}\n",
        f"`{found['command']}` ([script](../runs/{script(name).name}), [table]({folder}/results.md), "
        f"[rows]({folder}/results.json))\n",
        claims_table(found["claims"]),
    ]
    lines += [f"![{caption}]({folder}/{file})\n\n*{caption}*" for file, caption in found["figures"].items()]
    return lines
