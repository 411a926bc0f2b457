"""Files that are either whole or not there."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import platform
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pdi_gym.labels import brief

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
        raise ValueError(f"{path} is not UTF-8 ({brief(error)}): it is damaged or not ours") from None


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
        raise ValueError(f"{path} is not JSON ({brief(error)}): it is cut short or not ours") from None
    return content


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r:.60} is given twice")
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
    temporary = _temporary(path)
    with naming(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            temporary.replace(path)
        finally:
            with suppress(OSError):  # a folder that vanished has nothing left to take away
                temporary.unlink()


class UnwritableError(OSError):
    """An error of writing whose message names the file."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say which file could not be written: that a disk is full does not tell where."""
    try:
        yield
    except UnwritableError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnwritableError(error.errno, f"{path} could not be written ({reason})") from error


def writable_folder(name: str, folder: str | Path) -> Path:
    """The folder, made where it is missing; a ValueError that names the argument where that fails."""
    if str(folder) == "":
        raise ValueError(f"{name} must name a folder, got '': leave it out, or give '.' for this one")
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = _temporary(folder / "probe")
        probe.touch()
        probe.unlink()
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{name} must be somewhere that can be written, got {str(folder)!r}: {error}"
        ) from None
    return folder


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of `path`, which must be ours, when all went well."""
    check_own_folder(path)
    temporary = _temporary(path)
    with naming(path):
        try:
            temporary.mkdir(parents=True)
            (temporary / MARK).touch()
            yield temporary
            _take_place(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _take_place(temporary: Path, path: Path) -> None:
    """Put a folder of ours where another of ours may be, or may come to be while another process does so."""
    while True:
        check_own_folder(path)
        former = temporary.with_name(f"{temporary.name}-former")
        with suppress(FileNotFoundError):
            path.rename(former)
        shutil.rmtree(former, ignore_errors=True)
        try:
            temporary.rename(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return


def check_own_folder(path: Path) -> None:
    """Refuse to replace anything but a folder that `whole_folder` made."""
    if path.is_symlink() or (path.exists() and not (path / MARK).is_file()):
        raise ValueError(
            f"{path} was not made by pdi-gym and is not replaced: move it, or choose another folder"
        )


def remove_leftovers(folder: Path) -> None:
    """Take away what killed processes of this machine left unfinished in a folder and right below it.

    Only our own temporary names count, and only those of processes that no longer run.
    """
    for temporary in [*folder.glob(f"{_PREFIX}*"), *folder.glob(f"*/{_PREFIX}*")]:
        match = _TEMPORARY.fullmatch(temporary.name)
        if match is None or match["host"] != _host() or _runs(int(match["pid"])):
            continue
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


MARK = ".made-by-pdi-gym"
"""The file that tells folders of ours from others."""
_PREFIX = ".pdi-gym-"
_TEMPORARY = re.compile(rf"{re.escape(_PREFIX)}(?P<host>[0-9a-f]{{8}})-(?P<pid>[0-9]+)-.+", re.DOTALL)


def _temporary(path: Path) -> Path:
    """A name beside `path` that tells the process it belongs to; long names are cut, not refused."""
    return path.with_name(f"{_PREFIX}{_host()}-{os.getpid()}-{path.name[-100:]}")


def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OverflowError, PermissionError):
        return True
    return True
