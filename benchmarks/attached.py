"""What annotations cost per call, against `nvtx.annotate` and PyTorch's `record_function`, in one run.

    python benchmarks/attached.py           # twice: with no profiler, then itself under nsys

`nvtx.annotate` is compared where it is recorded: nvtx 0.2.11 under nsys up to 2024.2. A cost is what the call
of an empty function takes longer. PyTorch's is measured where PyTorch is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import nvtx

import bridge
from bridge.annotate import emit, emitter
from bridge.annotate.backends import connect_interop, connect_nvtx
from bridge.annotate.label import Label

LOOPS, ROUNDS = 5_000, 20
MEASURABLE = 20  # ns: newer nvtx packages do nothing at all where no tool is attached
TITLE = "under nsys, nvtx"
A, B = np.zeros((64, 32), np.float32), np.zeros((32, 16), np.float32)
ALONE = "payload, push and pop alone"
Case = tuple[Callable[[], object], Any]  # what is called, and through which back end


def empty() -> None:
    pass


def pair(_: Any, __: Any) -> None:
    pass


def cases() -> dict[str, Case]:
    annotated = nvtx.annotate("annotated")(empty)
    found: dict[str, Case] = {"an empty function": (empty, None)}
    if emit.state.idle or type(nvtx.get_domain("bench")).__name__ != "DummyDomain":
        found["nvtx.annotate"] = annotated, None
        found["with nvtx.annotate"] = block_of_nvtx, None
    if find_spec("torch"):
        from torch.profiler import record_function

        found["torch record_function"] = record_function("recorded")(empty), None
    for back in backends():
        if not emit.state.idle:
            found[f"{ALONE}, {back.name}"] = alone(back), back
        found |= {f"{name}, {back.name}": (call, back) for name, call in ours().items()}
    return found


def alone(back: Any) -> Callable[[], object]:
    """Return what the library and the tool take: a range with a payload around a call, as it would be without us."""
    set_payload, push, pop = back.bind(Label("alone"), always=True)

    def call() -> None:
        set_payload(1)
        push()
        empty()
        pop()

    return call


def block_of_nvtx() -> None:
    with nvtx.annotate("block"):
        pass


def backends() -> list[Any]:
    """Return the back ends that work here; without a tool, the null emitter."""
    if emit.state.idle:
        return [emit.current()]
    return [back for back in (connect_nvtx(), connect_interop()) if not isinstance(back, str)]


def ours() -> dict[str, Callable[[], object]]:
    op, shaped = bridge.nvtx_op("op")(empty), bridge.nvtx_op("op", shapes=True)(pair)
    numbers = iter(range(1 << 60))

    def block() -> None:
        with bridge.nvtx_op("block"):
            pass

    def unique() -> None:
        with bridge.nvtx_op(f"text {next(numbers)}"):
            pass

    return {
        "nvtx_op": op,
        "nvtx_op(shapes=True), two arrays": lambda: shaped(A, B),
        "with nvtx_op": block,
        "with nvtx_op, a text of its own per call": unique,
    }


def measured(found: dict[str, Case]) -> dict[str, float]:
    """Return the best time per call in ns, all cases in turns."""
    best = dict.fromkeys(found, float("inf"))
    for _ in range(ROUNDS):
        for name, (call, back) in found.items():
            if back is not None:
                emit.use(back)
            start = time.perf_counter_ns()
            for _ in range(LOOPS):
                call()
            best[name] = min(best[name], (time.perf_counter_ns() - start) / LOOPS)
    return best


def show(title: str) -> None:
    best = measured(cases())
    bare = best.pop("an empty function")
    reference = best.get("nvtx.annotate", bare) - bare
    print(f"{title}\n{'ns':>7} {'/ annotate':>10}")
    for name, cost in best.items():
        ratio = f"{(cost - bare) / reference:10.2f}" if reference > MEASURABLE else f"{'':10}"
        print(f"{cost - bare:7.0f} {ratio} {name}")


def session() -> None:
    """What a session without a profiler adds to every op."""
    emit.use(emitter.NullEmitter())
    op = bridge.nvtx_op("op")(empty)
    with bridge.profile(level=0):
        best = measured({"an empty function": (empty, None), "nvtx_op": (op, None)})
    print(f"in a session of its own\n{best['nvtx_op'] - best['an empty function']:7.0f} nvtx_op")


def main() -> None:
    emit.current()
    if not emit.state.idle:
        show(f"{TITLE} {emitter.version_of('nvtx')}")
        return
    show("no profiler")
    session()
    if shutil.which("nsys") is None:
        print("nsys is not installed: nothing measured under it")
        return
    with tempfile.TemporaryDirectory() as folder:
        quiet = [
            "--sample=none",
            "--cpuctxsw=none",
            "-t",
            "nvtx",
            "-o",
            str(Path(folder, "report")),
        ]
        program = [sys.executable, str(Path(__file__).resolve())]
        environ = {**os.environ, "BRIDGE_SIDECAR": folder}
        done = subprocess.run(
            ["nsys", "profile", *quiet, *program],
            env=environ,
            check=True,
            capture_output=True,
            text=True,
        )
    print(
        done.stdout.partition(TITLE)[1] + done.stdout.partition(TITLE)[2].partition("Generating")[0]
    )


if __name__ == "__main__":
    main()
