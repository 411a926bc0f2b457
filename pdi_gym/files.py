"""Files that are either whole or not there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds; anything else is refused."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON ({error}): it is cut short or not ours") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold an object, got {type(content).__name__}: it is not ours")
    return content


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
