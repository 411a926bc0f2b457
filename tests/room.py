"""How much room every tolerance of the tests has, on several kinds of processor.

`python -m tests.room` runs the numeric tests once under each setting of `SETTINGS` and prints the tightest
comparisons: `python -m tests.room --show 50 tests/test_toys.py` takes more rows and pytest's own arguments.

While they run, the test modules are compiled with every comparison of an `assert` and every call of an
allclose function replaced by one that also records its margin. Room is the share of the tolerance that is
left: 1 − error / tolerance for allclose and approx, the distance to the nearer end relative to half the
width for `low < x < high`, and |x − limit| / max(|x|, |limit|) for `x < limit`. Little room alone is no
fault: a number that every processor computes alike may lie near its limit. Drift is how far the room moves
between the settings, relative to the least room: what drifts by 1 may cross its limit on another processor.
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import importlib.util
import json
import operator
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.margins import approximately, between, ordered, within

SETTINGS: dict[str, dict[str, str]] = {
    "default": {"ATEN_CPU_CAPABILITY": "default"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512"},
    "mkl-avx2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "MKL_CBWR": "AVX2"},
}
"""Environment variables of each setting; torch takes the next lower capability where one is missing."""

MOVING = 0.2
"""A comparison is marked when its drift is larger, or when it fails."""

ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Eq": operator.eq,
    "NotEq": operator.ne,
}
CLOSE = {  # relative and absolute tolerance when none is given
    "allclose": (1e-5, 1e-8),
    "isclose": (1e-5, 1e-8),
    "assert_allclose": (1e-7, 0.0),
    "assert_close": (1.3e-6, 1e-5),
}


class Recorder:
    """What the compiled test modules call instead of comparing."""

    def __init__(self) -> None:
        self.test = ""
        self.rooms: dict[str, list[float]] = defaultdict(list)

    def note(self, place: str, room: float | None) -> None:
        if room is not None and self.test:
            self.rooms[f"{place}\n{self.test}"].append(room)

    def compare(self, place: str, negated: bool, names: Sequence[str], *values: Any) -> Any:
        """The comparison's own result; all of a chain is evaluated."""
        pairs = list(zip(names, values[:-1], values[1:], strict=True))
        if len(pairs) == 2 and {names[0], names[1]} in ({"Lt"}, {"LtE"}, {"Lt", "LtE"}):
            self.note(place, between(*values))
        else:
            for name, left, right in pairs:
                self.note(place, self.one(name, left, right, negated))
        results = [ORDER[name](left, right) for name, left, right in pairs]
        return results[0] if len(results) == 1 else all(results)

    def one(self, name: str, left: Any, right: Any, negated: bool) -> float | None:
        if name in ("Eq", "NotEq"):
            for approx, actual in ((left, right), (right, left)):
                if hasattr(approx, "rel") and hasattr(approx, "expected"):
                    return approximately(actual, approx, negated != (name == "NotEq"))
            return None
        opposite = {"Lt": "GtE", "LtE": "Gt", "Gt": "LtE", "GtE": "Lt"}
        return ordered(opposite[name] if negated else name, left, right)

    def close(self, place: str, negated: bool, function: Any, *arguments: Any, **more: Any) -> Any:
        """The call's own result."""
        rtol, atol = CLOSE[function.__name__]
        if len(arguments) >= 2:
            rest = dict(zip(("rtol", "atol"), arguments[2:], strict=False)) | more
            self.note(
                place,
                within(*arguments[:2], rest.get("rtol", rtol), rest.get("atol", atol), negated),
            )
        return function(*arguments, **more)


class Instrument(ast.NodeTransformer):
    """Sends the comparisons of assertions, and every allclose, through the recorder."""

    def __init__(self, module: str) -> None:
        self.module, self.asserting, self.negated = module, False, False

    def call(self, node: ast.expr, method: str, arguments: list[ast.expr], keywords: Any = ()) -> ast.Call:
        place = ast.Constant(f"{self.module}:{node.lineno}")
        function = ast.Attribute(ast.Name("__room__", ast.Load()), method, ast.Load())
        call = ast.Call(function, [place, ast.Constant(self.negated), *arguments], list(keywords))
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        self.asserting = True
        node.test = self.visit(node.test)
        self.asserting = False
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.UnaryOp:
        inverts = isinstance(node.op, ast.Not)
        self.negated ^= inverts
        self.generic_visit(node)
        self.negated ^= inverts
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        asserted = self.asserting
        self.asserting = False  # what is compared inside an operand is a mask
        self.generic_visit(node)
        self.asserting = asserted
        names = [type(op).__name__ for op in node.ops]
        if not asserted or not set(names) <= set(ORDER):
            return node
        listed = ast.Tuple([ast.Constant(name) for name in names], ast.Load())
        return self.call(node, "compare", [listed, node.left, *node.comparators])

    def visit_Call(self, node: ast.Call) -> ast.Call:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        asserted = self.asserting
        self.asserting &= name == "all"
        self.generic_visit(node)
        self.asserting = asserted
        if name not in CLOSE:
            return node
        return self.call(node, "close", [node.func, *node.args], node.keywords)


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles a test module with its comparisons recorded, never from a cache."""

    recorder: Recorder

    def get_code(self, fullname: str) -> Any:
        tree = ast.parse(self.get_data(self.path), self.path)
        return compile(Instrument(Path(self.path).stem).visit(tree), self.path, "exec")

    def exec_module(self, module: Any) -> None:
        module.__room__ = self.recorder
        super().exec_module(module)


class Finder:
    """Finds the modules of this folder for the loader above."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        package, _, stem = name.rpartition(".")
        file = Path(__file__).with_name(f"{stem}.py")
        if package != "tests" or not stem.startswith("test_") or not file.exists():
            return None
        return importlib.util.spec_from_file_location(name, file, loader=Loader(name, str(file)))


class Plugin:
    """Names the running test to the recorder and writes the margins at the end."""

    def __init__(self, recorder: Recorder, out: Path) -> None:
        self.recorder, self.out = recorder, out

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.recorder.test = item.nodeid
        return (yield)

    def pytest_sessionfinish(self) -> None:
        self.out.write_text(json.dumps(self.recorder.rooms))


def record(out: Path, arguments: list[str]) -> int:
    """Run pytest here, instrumented."""
    Loader.recorder = Recorder()
    sys.meta_path.insert(0, Finder())
    options = ["--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    return int(pytest.main(options, plugins=[Plugin(Loader.recorder, out)]))


@dataclass
class Row:
    """One comparison in the source, under every setting: its tightest case, and the one that drifts most."""

    place: str
    test: str
    rooms: dict[str, float]
    drift: float
    moving: str
    moving_rooms: dict[str, float]

    @property
    def marked(self) -> bool:
        return self.drift > MOVING or min(self.rooms.values()) < 0


def moved(series: Sequence[Sequence[float]]) -> float:
    """The largest drift of one comparison over its repetitions, given its rooms under every setting."""
    if len({len(rooms) for rooms in series}) > 1:
        return 0.0  # a loop of another length: not the same comparisons
    cases = list(zip(*series, strict=True))
    return max((max(c) - min(c)) / max(min(c), 1e-9) for c in cases)


def rows(measured: dict[str, dict[str, list[float]]]) -> list[Row]:
    """The tightest case of every line of the tests and its largest drift, tightest line first."""
    found: dict[str, Row] = {}
    for key in sorted(set().union(*measured.values())):
        place, test = key.split("\n")
        series = {name: by_key[key] for name, by_key in measured.items() if key in by_key}
        rooms = {name: min(values) for name, values in series.items()}
        test = test.split("::", 1)[1]
        row = Row(place, test, rooms, moved(list(series.values())), test, rooms)
        best = found.setdefault(place, row)
        if row.drift > best.drift:
            best.drift, best.moving, best.moving_rooms = row.drift, test, rooms
        if min(rooms.values()) < min(best.rooms.values()):
            best.test, best.rooms = test, rooms
    return sorted(found.values(), key=lambda row: min(row.rooms.values()))


def cells(rooms: dict[str, float], names: Sequence[str]) -> list[str]:
    """A number for each setting that measured one."""
    return [f"{rooms[n]:9.3f}" if n in rooms else " " * 9 for n in names]


def table(listed: list[Row], names: Sequence[str], show: int) -> str:
    """The tightest rows and all marked ones."""
    lines = ["  ".join([f"{n:>9}" for n in names] + ["    drift  where"])]
    for k, row in enumerate(listed):
        if k < show or row.marked:
            mark = "!" if row.marked else " "
            lines.append(
                "  ".join([*cells(row.rooms, names), f"{row.drift:9.2g}{mark} {row.place} {row.test}"])
            )
            if row.marked and row.moving != row.test:
                lines.append("  ".join([*cells(row.moving_rooms, names), f"{'':11}drifts in {row.moving}"]))
    marked = sum(row.marked for row in listed)
    lines.append(f"{len(listed)} lines compare numbers; {marked} are marked !")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--show", type=int, default=30, help="rows of the table; marked ones are added")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    options, arguments = parser.parse_known_args()
    if options.record is not None:
        return record(options.record, arguments)
    measured, failed = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for name in options.settings:
            print(f"== {name}", flush=True)
            out = Path(folder) / f"{name}.json"
            command = [sys.executable, "-m", "tests.room", "--record", str(out), "-m", "numeric", *arguments]
            failed |= subprocess.run(command, env=os.environ | SETTINGS[name], check=False).returncode
            measured[name] = json.loads(out.read_text())
    print(table(rows(measured), options.settings, options.show))
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
