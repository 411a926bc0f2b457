"""Work on one thread, and work shared by processes of one thread each."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import joblib
import torch

T = TypeVar("T")


@contextmanager
def one_thread() -> Iterator[None]:
    """Bit-identical whatever the machine: another number of threads sums in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_processes(workers: int, calls: Sequence[tuple[Callable[..., T], tuple[Any, ...]]]) -> Iterator[T]:
    """Results of function calls as they come; one worker is this process itself."""
    if workers == 1:
        yield from (function(*arguments) for function, arguments in calls)
        return
    # One call at a time: joblib would follow a quick agent with a batch of slow ones.
    with joblib.parallel_config("loky", n_jobs=workers, inner_max_num_threads=1, initializer=_attend):
        pool = joblib.Parallel(return_as="generator_unordered", batch_size=1, max_nbytes=None)
        yield from pool(joblib.delayed(function)(*arguments) for function, arguments in calls)


def _attend() -> None:
    """Leave Ctrl-C to the parent, which stops its workers, and do not outlive it when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
