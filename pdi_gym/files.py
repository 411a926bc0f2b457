"""Files that are either whole or not there."""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_BYTES = 64 * 2**20
"""A longer JSON file is not ours."""
MOST_LEVELS = 50
"""Deeper nesting is not ours."""


def write_text(path: Path, text: str) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds; anything else is refused in one line that names the file."""
    content = parse_json(path, _read_text(path))
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold an object, got {type(content).__name__}: it is not ours")
    return content


def regular_file(path: Path, most_bytes: int) -> Path:
    """The path of an ordinary file of at most that size: never a folder, nor a pipe that would block."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} must be an ordinary file, it is a folder, pipe or device")
    if status.st_size > most_bytes:
        raise ValueError(
            f"{path} must be at most {most_bytes} bytes, it has {status.st_size}: it is not ours"
        )
    return path


def _read_text(path: Path) -> str:
    try:
        return regular_file(path, MOST_BYTES).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}): it is damaged or not ours") from None


def parse_json(path: Path, text: str) -> Any:
    """What strict JSON says: no key twice in an object, finite numbers only, nesting no deeper than 50.

    `path` is the file that the text was found in, for the errors.
    """
    try:
        content = json.loads(
            text, object_pairs_hook=_without_repetition, parse_constant=_refuse, parse_float=_finite
        )
        _check_depth(content, MOST_LEVELS)
    except RecursionError:
        raise ValueError(
            f"{path} holds JSON nested deeper than {MOST_LEVELS} levels: it is not ours"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}): it is cut short or not ours") from None
    return content


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice")
    return content


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _check_depth(content: Any, left: int) -> None:
    if left < 0:
        raise RecursionError
    if isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            _check_depth(part, left - 1)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name that becomes `path` when all went well: no reader ever meets half a file.

    The name is the process's own: a worker that outlived its killed parent cannot take it away.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def writable_folder(name: str, folder: Path) -> Path:
    """The folder, made where it is missing; a ValueError that names the argument where that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(
            f"{name} must be somewhere that can be written, got {str(folder)!r}: {error}"
        ) from None
    return folder


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of `path` when all went well."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        shutil.rmtree(path, ignore_errors=True)
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Take away what a killed process left unfinished in a folder and those right below it."""
    for temporary in [*folder.glob("*.tmp"), *folder.glob("*/*.tmp")]:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
