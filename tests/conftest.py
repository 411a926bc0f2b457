"""One thread per test process, and the mark of the tests whose outcome hangs on rounding.

Two threads on a busy core are many times slower than one.
"""

import pytest
import torch

torch.set_num_threads(1)

NOT_NUMERIC = {
    "test_checkpoints",
    "test_cli",
    "test_docs",
    "test_files",
    "test_interruption",
    "test_layout",
    "test_packaging",
    "test_rendering",
    "test_report",
    "test_reproduce",
    "test_room",
    "test_tracking",
}
"""Modules about files, pages and commands; all others are numeric, new ones included."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem not in NOT_NUMERIC:
            item.add_marker(pytest.mark.numeric)
