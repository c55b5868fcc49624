"""The handler that writes each cycle into the folder of a TensorBoard."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """Make what `on_trace_ready` calls: it writes ``<worker>.<ns>.pt.trace.json``, with .gz if asked.

    A worker is the host and the process unless named. Raises RuntimeError where no folder can be made.
    """

    def handle(profiler: Any) -> None:
        folder = Path(dir_name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise RuntimeError(f"Can't create directory: {dir_name}") from problem
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".gz" if use_gzip else ""
        profiler.export_chrome_trace(
            str(folder / f"{worker}.{time.time_ns()}.pt.trace.json{ending}")
        )

    return handle
