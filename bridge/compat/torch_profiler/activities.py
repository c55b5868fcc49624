"""What PyTorch's profiler may be asked to record, and what of it there is here.

The invariant: host work is always recorded; of the GPU only an attached tool knows, and its report tells.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from bridge.annotate.emit import SIGNS
from bridge.capture.session import schedule as steps
from bridge.capture.session.schedule import Action
from bridge.capture.session.schedule import Action as ProfilerAction

# -- The schedule of PyTorch's profiler, with its errors


def schedule(**numbers: int) -> Callable[[int], Action]:
    """Make the function from a step's number to what is done with it, as `bridge.schedule` does.

    Raises AssertionError for numbers that make no sense, and for the number of a step below 0.
    """
    try:
        action_of = steps.schedule(**numbers)
    except ValueError as problem:
        raise AssertionError(f"Invalid profiler schedule arguments: {problem}") from None

    def asserted(step: int) -> Action:
        try:
            return action_of(step)
        except ValueError as problem:
            raise AssertionError(str(problem)) from None

    return asserted


# -- The handler that writes each cycle into the folder of a TensorBoard


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


# -- What PyTorch's profiler may be asked to record, and what of it there is here


__all__ = ["ProfilerAction", "ProfilerActivity", "checked", "supported_activities"]


class ProfilerActivity(Enum):
    """The kinds of work, by the names and numbers of PyTorch."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


def supported_activities() -> set[ProfilerActivity]:
    """Return what is recorded: host work, and the GPU's where a tool is attached."""
    attached = any(os.environ.get(sign) for sign in SIGNS)
    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if attached else [])}


def checked(activities: Iterable[Any] | None) -> set[ProfilerActivity]:
    """Return the activities of those asked for that there are; PyTorch's own are taken by their names.

    Raises ValueError for one that is asked for twice, TypeError for what is none, AssertionError if none
    is left; warns of those that there are not.
    """
    supported = supported_activities()
    if activities is None:
        return supported
    wanted: set[ProfilerActivity] = set()
    for one in _single(activities):
        if one in wanted:
            raise ValueError(f"Activity {one} specified more than once")
        wanted.add(one)
    missing = wanted - supported
    if missing:
        names = ", ".join(sorted(one.name for one in missing))
        said = f"bridge: {names}: GPU times are in the report of a tool; run under nsys"
        warnings.warn(said, UserWarning, stacklevel=4)
    if not wanted - missing:
        raise AssertionError("No valid profiler activities found")
    return wanted - missing


def _single(activities: Iterable[Any]) -> Iterable[ProfilerActivity]:
    """Give one after the other; a mapping, which names what is to be recorded of each, by its keys."""
    for one in activities:
        for asked in one if isinstance(one, dict) else [one]:
            name = getattr(asked, "name", "")
            if name not in ProfilerActivity.__members__:
                raise TypeError(f"Expected ProfilerActivity or dict, got {type(asked)}")
            yield ProfilerActivity[name]
