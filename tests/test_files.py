from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pdi_gym import files
from pdi_gym.files import (
    check_own_folder,
    read_object,
    remove_leftovers,
    whole_file,
    whole_folder,
    write_text,
)


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    """/dev/full takes no byte: linked in place of the temporary file, every write to it fails."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    path = tmp_path / "rows.json"
    path.write_text("before")
    files._temporary(path).symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"rows.json could not be written \(No space left"):
        write_text(path, "after")
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_a_file_too_large_for_the_disk_is_named(tmp_path: Path) -> None:
    """A limit of the process's file size cuts a write in the middle, as a disk that fills up does."""
    path = tmp_path / "rows.json"
    path.write_text("before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match=r"rows.json could not be written \(File too large"):
            write_text(path, "x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_vanishes_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with (
        pytest.raises(OSError, match=r"row.json could not be written \(No such file"),
        whole_file(folder / "row.json") as temporary,
    ):
        temporary.write_text("half")
        temporary.unlink()
        folder.rmdir()


def test_only_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / "rows").mkdir()
    own = files._temporary(tmp_path / "row.json").name
    gone = own.replace(f"-{os.getpid()}-", f"-{dead.pid}-")
    theirs = ["mine.tmp", "rows/notes.123.tmp", ".pdi-gym-notes", f".pdi-gym-{'0' * 8}-{dead.pid}-row.json"]
    for name in (*theirs, own, gone, f"rows/{gone}"):
        (tmp_path / name).write_text("")
    (tmp_path / gone.replace("row.json", "tensorboard")).mkdir()
    remove_leftovers(tmp_path)
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {*theirs, own} and not list(tmp_path.glob("*tensorboard"))


def test_a_folder_of_others_is_never_replaced(tmp_path: Path) -> None:
    own, other, link = (tmp_path / name for name in ("own", "other", "link"))
    for content in ("first", "second"):
        with whole_folder(own) as temporary:
            (temporary / "events").write_text(content)
    assert (own / "events").read_text() == "second"
    other.mkdir()
    (other / "events").write_text("theirs")
    link.symlink_to(own)
    for path in (other, link):
        with pytest.raises(ValueError, match="was not made by pdi-gym"), whole_folder(path):
            raise AssertionError("no work before the check")
    assert (other / "events").read_text() == "theirs" and link.is_symlink()
    check_own_folder(tmp_path / "absent")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "cut short"),
        (b'{"a": 1', "cut short"),
        (b"[1]", "must hold an object, got list"),
        (b'{"a": 1, "b": {"c": 1, "c": 1}}', "'c' is given twice"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": -Infinity}', "-Infinity is not a number"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a":' * 51 + b"1" + b"}" * 51, "deeper than 50"),
        (b"[" * 100_000, "deeper than 50"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_what_is_no_object_is_refused_by_the_name_of_its_file(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "card.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=complaint) as caught:
        read_object(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_objects_are_read_to_the_permitted_depth(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text('{"a":' * 50 + "1" + "}" * 50)
    content: object = read_object(path)
    for _ in range(50):
        assert isinstance(content, dict)
        content = content["a"]
    assert content == 1


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_what_is_no_regular_file_is_refused_without_being_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "card.json"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="card.json must be an ordinary file"):
        read_object(path)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 4)
    path = tmp_path / "card.json"
    path.write_text("{}  ")
    assert read_object(path) == {}
    path.write_text("{}   ")
    with pytest.raises(ValueError, match=r"card\.json must be at most 4 bytes, it has 5"):
        read_object(path)
