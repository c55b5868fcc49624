"""What every program here begins, shows and is watched with. A plain run imports nothing of bridge.

    watched.begin()                      # seeds, and one thread
    with watched.watched(model):         # nothing, auto(model) or profile(), as $WILD_WAY says
        for batch in batches:
            …
            watched.step()               # the end of a step
    watched.show("parameters", model)    # a digest of every bit

$WILD_WAY: plain (or unset), auto, profile; all others (run-auto, run) are ways to start a program, and plain in here.
$WILD_COUNTS: a folder; the block then runs under PyTorch's profiler, and its events are counted into a file there.
$WILD_STEPS: a folder; the lengths of steps are written into a file there.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

WAY = os.environ.get("WILD_WAY", "plain")
COUNTS = os.environ.get("WILD_COUNTS")
STEPS = os.environ.get("WILD_STEPS")

if WAY in {"auto", "profile"}:
    import bridge  # as programs do, at their begin: before they fork

_at_step: list[Callable[[], Any]] = []  # what `step` calls, within a block


def begin(seed: int = 0) -> None:
    """Make what follows the same in each run: seeds, and one thread, so that sums have one order."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
        torch.set_num_threads(1)


@contextmanager
def watched(*models: Any, part: str = "main") -> Iterator[None]:
    """Run a block in the way of the environment; `part` names it among the blocks and processes of a program."""
    with ExitStack() as stack:
        if WAY == "auto" and models:
            stack.enter_context(bridge.torch.auto(models[0] if len(models) == 1 else list(models)))
        elif WAY == "profile":
            _call_at_step(stack, stack.enter_context(bridge.profile()).step)
        elif WAY == "plain" and "bridge" in sys.modules:
            raise RuntimeError("a plain run imported bridge")
        if COUNTS and "torch" in sys.modules:
            stack.enter_context(_counted(Path(COUNTS) / f"{part}.json"))
        if STEPS:
            ends = stack.enter_context(_timed(Path(STEPS) / f"{part}.json"))
            _call_at_step(stack, lambda: ends.append(time.perf_counter_ns()))
        yield


def step() -> None:
    """Mark the end of a step."""
    for call in tuple(_at_step):
        call()


def _call_at_step(stack: ExitStack, call: Callable[[], Any]) -> None:
    _at_step.append(call)
    stack.callback(_at_step.remove, call)


@contextmanager
def _counted(path: Path) -> Iterator[None]:
    from torch.profiler import ProfilerActivity, profile

    profiler = profile(activities=[ProfilerActivity.CPU])
    profiler.start()
    try:
        yield
    finally:
        profiler.stop()
        counts = Counter(event.name for event in profiler.events())
        path.write_text(json.dumps(counts, indent=0, sort_keys=True))


@contextmanager
def _timed(path: Path) -> Iterator[list[int]]:
    ends = [time.perf_counter_ns()]
    try:
        yield ends
    finally:
        path.write_text(json.dumps([later - ends[i] for i, later in enumerate(ends[1:])]))


def show(name: str, *things: Any) -> None:
    """Print a digest of all bits of some things, and plain numbers in full."""
    numbers = " ".join(repr(thing) for thing in things if isinstance(thing, int | float | str))
    print(f"{name} {digest(*things)} {numbers}".rstrip(), flush=True)


def digest(*things: Any) -> str:
    """Return a SHA-256 of all bits of tensors, arrays, numbers and texts, within containers and modules too."""
    sums = hashlib.sha256()
    for thing in things:
        _add(sums, thing)
    return sums.hexdigest()[:32]


def _add(sums: Any, thing: Any) -> None:
    if hasattr(thing, "state_dict"):
        thing = thing.state_dict()
    if isinstance(thing, Mapping):
        thing = [*thing.items()]
    if isinstance(thing, list | tuple):
        sums.update(f"{type(thing).__name__} {len(thing)}".encode())
        for value in thing:
            _add(sums, value)
    elif hasattr(thing, "untyped_storage"):
        _add_tensor(sums, thing)
    elif hasattr(thing, "__array__") and not isinstance(thing, type):
        _add_array(sums, thing)
    else:
        text = thing.hex() if isinstance(thing, float) else str(thing)
        sums.update(f"{type(thing).__name__} {text}".encode())


def _add_tensor(sums: Any, tensor: Any) -> None:
    import torch

    sums.update(f"{type(tensor).__name__} {tensor.dtype} {tuple(tensor.shape)}".encode())
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.numel():
        sums.update(flat.view(torch.uint8).numpy().tobytes())


def _add_array(sums: Any, thing: Any) -> None:
    import numpy as np

    array = np.asarray(thing)
    sums.update(f"{array.dtype} {array.shape}".encode())
    sums.update(np.ascontiguousarray(array).tobytes())
