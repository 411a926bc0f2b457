from __future__ import annotations

import os
from pathlib import Path

import pytest

from pdi_gym import files
from pdi_gym.files import read_object, write_text


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    """/dev/full takes no byte: linked in place of the temporary file, every write to it fails."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    path = tmp_path / "rows.json"
    path.write_text("before")
    path.with_name(f"rows.json.{os.getpid()}.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "after")
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


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
