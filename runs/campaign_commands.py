"""Command lines with one wrong argument."""

from __future__ import annotations

import contextlib
import io
import itertools
import time
from pathlib import Path
from typing import Any

from pdi_gym.cli import main as cli

TOY = "MixtureOfGaussians2D-v0"
COMPARE, TRAIN, RENDER = f"compare {TOY} --agents random", f"train pdi-net {TOY}", f"render {TOY}"
NO_WHOLES = ("0", "-1", "1.5", "two", "nan", "99999999999999999999999x")
NO_JSON = ("-1", "x", "[1]", "true", '"5"')


def lines() -> list[tuple[str, str]]:
    """Command lines and the word that the error must hold."""
    found = [
        (f"{COMPARE} --{name} {value}", name)
        for name in ("instances", "horizon", "trials", "paths", "n", "workers")
        for value in NO_WHOLES
    ]
    found += [(f"{COMPARE} --seed {value}", "seed") for value in NO_WHOLES[1:]]
    for name, value in itertools.product(("out", "json"), ("/dev/null/x", "/proc/x/y")):
        found.append((f"{COMPARE} --{name} {value}", name))
    for name, word in (("no-such", "no-such"), ("pdi-mc@quick", "quick"), ("full-power", "full-power")):
        found.append((f"compare {TOY} --agents {name}", word))
    for name in ("steps", "width", "chains", "rate", "pairs", "validate_every"):
        found += [(f"{TRAIN} --set {name}={value}", name) for value in (*NO_JSON, "0", "null")]
    for name in ("T", "dual_step", "dual_init"):
        found += [(f"{TRAIN} --option {name}={value}", name) for value in NO_JSON]
    for pair in ("stepz=3", "=3", "seed=1", "out=x"):
        found.append((f"{TRAIN} --set {pair}", pair.partition("=")[0]))
    for name, value in (("size", "huge"), ("device", "tpu"), ("seed", "-1"), ("start", "x")):
        found.append((f"{TRAIN} --{name} {value}", name))
    for name, value in (
        ("slots", "0"),
        ("slots", "x"),
        ("instance", "-1"),
        ("instance", "99"),
        ("seed", "-1"),
    ):
        found.append((f"{RENDER} --{name} {value}", name))
    for name, value in (("out", "a.txt"), ("out", "/dev/null/a.png"), ("agent", "no-such")):
        found.append((f"{RENDER} --{name} {value}", name))
    for name in ("random", "pdi-mc", "no-such"):
        found.append((f"train {name} {TOY}", name))
    for command in ("compare", "train pdi-net", "render"):
        found.append((f"{command} NoSuch-v0", "NoSuch"))
    return [
        *found,
        (f"{COMPARE} --baseline pdl", "baseline"),
        ("compare", "env"),
        ("reproduce", "names"),
        ("reproduce no-such", "no-such"),
        ("reproduce --workers x", "workers"),
        ("bench --names no-such", "no-such"),
        ("bench --json /dev/null/x", "json"),
        ("list --json /dev/null/x", "json"),
        ("list --no-such", "no-such"),
        ("no-such", "no-such"),
    ]


def run(folder: Path) -> dict[str, Any]:
    """Count the command lines; what the parser refuses takes several lines and is counted apart."""
    record: dict[str, Any] = {"failures": []}
    with contextlib.chdir(folder):
        for line, word in lines():
            began = time.process_time()
            code, said = _told(line)
            parsed = "----" in said or "╭" in said
            failure = "" if code == 2 else f"exit code {code}: {said[:120]!r}"
            if not failure and word.lower() not in said.lower():
                failure = f"{word} is not named: {said[:120]!r}"
            elif not failure and "\n" in said and not parsed:
                failure = f"{said.count(chr(10)) + 1} lines: {said[:120]!r}"
            kind = "commands refused by the parser" if parsed else "commands refused in one line"
            count(record, kind, failure and f"pdi-gym {line}: {failure}", time.process_time() - began)
        if any(path.is_file() for path in Path().rglob("*")):
            record["failures"].append("files were written")
    return record


def _told(line: str) -> tuple[Any, str]:
    """The exit code of a command line, or what it raised, and what it said on the error stream."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.main(line.split())
        except SystemExit as stop:
            return stop.code, said.getvalue().strip()
        except Exception as error:
            return f"none, but {type(error).__name__}: {error}", said.getvalue()
    return 0, said.getvalue()


def count(record: dict[str, Any], kind: str, failure: str, seconds: float) -> None:
    """Add a call to the record of its group."""
    record["calls"] = record.get("calls", 0) + 1
    record[kind] = record.get(kind, 0) + 1
    most = max(seconds, record.get("most seconds of a call", 0))
    record["most seconds of a call"] = round(most, 3)
    if failure or seconds > 1:
        record["failures"].append(failure[:300] or f"{kind} after {seconds:.1f} s")
