"""`pdi-cg` where nothing was tuned for it, and how long it takes.

python runs/beyond_variants.py variants     # other r_min, other sizes, gains of a user's own; nothing retuned
python runs/beyond_variants.py timing       # CPU seconds of pdi-cg and of pdi-mc, preset paper, in turns

A killed run continues where it stopped.
"""

from __future__ import annotations

import json
import time

import numpy as np
from beyond_report import paired_table, table, write
from beyond_table import WIRELESS, Args, Study, agents_of, main, run_agents, settings_of

from pdi_gym.evaluation import Row, evaluate, slug
from pdi_gym.files import write_text
from pdi_gym.problems import WirelessPower
from pdi_gym.processes import one_thread


def variants(args: Args) -> None:
    count = args.instances or 8
    cases = {
        "r_min = .8": ({"split": "test", "r_min": 0.8}, count),
        "50 users": ({"split": "test", "n_users": 50}, count),
        "400 users": ({"split": "test", "n_users": 400}, max(1, count // 2)),
    }
    rows: list[Row] = []
    for case, (kwargs, instances) in cases.items():
        study = Study("WirelessPower-v0", kwargs, agents_of("pdi-mc", "pdi-cg"), instances, case=case)
        rows += run_agents(args, study, args.n)
    for k in range(count):
        problem = own_gains(k)
        for label, agent in agents_of("pdi-mc", "pdi-cg").items():
            start = time.perf_counter()
            policy = agent.sample(problem, args.n, args.seed)
            seconds = time.perf_counter() - start
            metrics = evaluate(policy, problem, seed=args.seed)
            metrics["support"] = float((policy.weights > 0).sum())
            rows.append(
                {"agent": label, "instance": k, "metrics": metrics, "seconds": seconds, "case": "own gains"}
            )
    text = ""
    for case in [*cases, "own gains"]:
        own = [row for row in rows if row["case"] == case]
        text += f"## {case}\n\n{table(own, WIRELESS)}\n{paired_table(own, 'pdi-mc', WIRELESS)}\n"
    write(args.out, "variants", rows, text, settings_of(args))


def own_gains(seed: int, n: int = 60) -> WirelessPower:
    """Indoor-like pairs that the presets never saw: d^−3.5 loss in a square of 600 m, no shadowing."""
    rng = np.random.default_rng(seed)
    tx = rng.uniform(0, 600, (n, 2))
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.uniform(5, 40, n)
    rx = tx + np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    distance = np.maximum(np.linalg.norm(tx[:, None] - rx[None], axis=-1), 3.0)
    return WirelessPower.from_gains(1e-3 * distance**-3.5, r_min=0.4, noise=1e-12, p_max=0.1)


def timing(args: Args) -> None:
    """CPU seconds, which other processes of a shared machine do not lengthen, on validation networks."""
    rows: list[Row] = []
    for i in range(args.instances or 4):
        problem = WirelessPower.instance(i, split="validation")
        for label, agent in agents_of("pdi-cg", "pdi-mc@paper").items():
            path = args.logs / "timing" / f"{slug(label)}-{i}.json"
            if not path.exists():
                with one_thread():
                    start, clock = time.perf_counter(), time.process_time()
                    agent.sample(problem, args.n, args.seed)
                    spent = {"cpu_seconds": time.process_time() - clock}
                seconds = time.perf_counter() - start
                row = {"agent": label, "instance": i, "metrics": spent, "seconds": seconds}
                write_text(path, json.dumps(row))
            rows.append(json.loads(path.read_text()))
            print(label, i, rows[-1]["metrics"]["cpu_seconds"], flush=True)
    cpu = {(r["agent"], r["instance"]): r["metrics"]["cpu_seconds"] for r in rows}
    ratios = [cpu["pdi-cg", i] / cpu["pdi-mc@paper", i] for agent, i in cpu if agent == "pdi-cg"]
    text = (
        f"{table(rows, ('cpu_seconds',))}\n"
        "CPU seconds of pdi-cg over those of pdi-mc@paper on the same network: "
        f"mean {np.mean(ratios):.4f}, largest {np.max(ratios):.4f}, {len(ratios)} validation networks.\n"
    )
    write(args.out, "timing", rows, text, settings_of(args))


if __name__ == "__main__":
    main({f.__name__: f for f in (variants, timing)})
