"""TensorBoard event files whose failures are raised where they are written, under the file's name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pdi_gym.files import naming


@contextmanager
def event_writer(path: Path, **settings: Any) -> Iterator[Any]:
    """A SummaryWriter to a folder; an OSError that names the folder if anything could not be written."""
    from torch.utils.tensorboard import SummaryWriter

    with event_failures(path), SummaryWriter(str(path), max_queue=1000, **settings) as writer:
        yield writer
        writer.flush()  # raises what the writer's thread met; closing would not


@contextmanager
def event_failures(path: Path) -> Iterator[None]:
    """Name the folder, and leave it to the caller to report what the writer's thread would also print."""
    former = threading.excepthook

    def hook(failure: threading.ExceptHookArgs) -> None:
        if not isinstance(failure.exc_value, OSError):
            former(failure)

    threading.excepthook = hook
    try:
        with naming(path):
            yield
    finally:
        threading.excepthook = former
