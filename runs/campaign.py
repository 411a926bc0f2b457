"""Attacks on everything that is kept in files: kills, damaged files, bad calls, two runs in one folder.

python runs/campaign.py                          # the committed figures; an hour or two on one core
python runs/campaign.py --parts calls            # one part: kills, mutations, calls or pairs

Every part is a list of units with seeds of their own; a finished unit is kept, so a run that is stopped goes
on where it was. Exit code 1 if an attack succeeded.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import campaign_calls
import campaign_mutations
import campaign_processes
import torch
import tyro

from pdi_gym.files import write_text
from pdi_gym.report import tables

Unit = tuple[str, Callable[[Path], dict[str, Any]]]
"""A name, and what attacks in an empty folder and returns its record: counts, and `failures` in words."""


@dataclass
class Args:
    parts: tuple[str, ...] = ("calls", "kills", "pairs", "mutations")
    """Which attacks."""
    kills: int = 50
    """Kills of each command."""
    pairs: int = 20
    """Times that two runs share a folder."""
    mutations: int = 100_000
    """Damaged files."""
    seed: int = 0
    """Seed of the damage and of the moments of kills."""
    logs: Path = Path("runs/logs/campaign")
    """Finished units and scratch files; remove it to begin anew."""
    out: Path = Path("runs/results/campaign")
    """Folder for the figures."""


def units(part: str, args: Args) -> Iterator[Unit]:
    """The attacks of a part, in order; kills go on until there are enough of them."""
    if part == "kills":
        yield from campaign_processes.kills(args.kills, args.seed)
    elif part == "pairs":
        yield from campaign_processes.pairs(args.pairs)
    elif part == "mutations":
        yield from campaign_mutations.batches(args.mutations, args.seed)
    elif part == "calls":
        yield from campaign_calls.groups()
    else:
        raise SystemExit(f"parts must be among calls, kills, pairs, mutations; got {part!r}")


def run(part: str, args: Args) -> list[dict[str, Any]]:
    """The records of a part's units, from the file of finished ones as far as it goes."""
    kept = args.logs / f"{part}-seed{args.seed}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    lines = kept.read_text().splitlines() if kept.exists() else []
    done = {record["unit"]: record for record in map(json.loads, lines)}
    records = []
    for name, attack in units(part, args):
        record = done.get(name)
        if record is None:
            record = {"unit": name, **campaign_processes.in_scratch(args.logs / "scratch", attack)}
            with kept.open("a") as file:
                file.write(json.dumps(record) + "\n")
            failed = len(record["failures"])
            print(f"{part}, {name}: {failed} failures" if failed else f"{part}, {name}: fine", flush=True)
        records.append(record)
    return records


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts added up, the largest of what is called `most …`, and the failures."""
    total: dict[str, Any] = {"units": len(records)}
    for record in records:
        for name, value in record.items():
            if isinstance(value, int | float) and name.startswith("most"):
                total[name] = max(total.get(name, 0), value)
            elif isinstance(value, int):
                total[name] = total.get(name, 0) + value
    return total | {"failures": [words for record in records for words in record["failures"]]}


def page(folder: Path) -> str:
    """What the committed figures say, part by part."""
    lines = ["# Attacks on files, commands and calls\n", "`python runs/campaign.py`\n"]
    for part in Args().parts:
        path = folder / f"{part}.json"
        if not path.exists():
            continue
        content = json.loads(path.read_text())
        lines += [f"## {part}\n", f"{MEANING[part]}\n", "| what | count |", "|---|---|"]
        lines += [f"| {name} | {value} |" for name, value in content["total"].items() if name != "failures"]
        failures = content["total"]["failures"]
        lines.append(f"| failures | {len(failures)} |\n")
        lines += [f"* `{words}`" for words in failures[:20]] + [""] * bool(failures)
    return "\n".join(lines)


MEANING = {
    "calls": """\
Calls of the public interface and of the command line with one wrong argument. A call fails if it does not
raise ValueError, TypeError or FileNotFoundError with the argument's name in one line, within a second; a
command, if it does not exit with 2. What the parser of the command line refuses takes several lines; it is
counted.""",
    "kills": """\
`pdi-gym compare` and `pdi-gym train` are killed with SIGKILL at random moments and started again until they
end. Names of files, rows, policies, tables, weights, states and curves must then be those of a run that was
left alone, but for seconds.""",
    "pairs": """\
Two runs of one comparison start in one folder at once. Both must end, with the files of a run alone.""",
    "mutations": """\
A file is damaged (bytes flipped, cut or added, fields edited, keys repeated, deep nesting, huge numbers,
files swapped) and then read. It must be refused in one line that names a file, count as absent, or give what
it gave before. Some have their digests made right again after the edit, as no accident does: they must be
refused as well, or be a whole file of their kind with other content. No reading may take five seconds.""",
}


def main(args: Args) -> None:
    torch.set_num_threads(1)
    failed = False
    for part in args.parts:
        total = summary(run(part, args))
        machine = f"{platform.machine()}, {platform.system()}"
        content = {
            "part": part, "command": f"python runs/campaign.py --parts {part}", "seed": args.seed,
            "versions": tables.versions(), "machine": machine, "total": total,
        }  # fmt: skip
        write_text(args.out / f"{part}.json", json.dumps(content, indent=1) + "\n")
        write_text(args.out / "results.md", page(args.out))
        print(f"{part}: {total}", flush=True)
        failed |= bool(total["failures"])
    sys.exit(failed)


if __name__ == "__main__":
    main(tyro.cli(Args))
