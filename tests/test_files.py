from __future__ import annotations

import os
from pathlib import Path

import pytest

from pdi_gym.files import write_text


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
