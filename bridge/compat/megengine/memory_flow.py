"""``memory_flow.svg`` of MegEngine's profiler: tensors by time and address."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.capture.session.profile import Session
    from bridge.frameworks.torch.tensors import TensorMemory
    from bridge.importers.frames import Memory

SOURCE = "tensors, by the clock of the host"  # what the drawing says that it shows
PROCESS_BITS = 24


def write_flow(path: Path, session: Session | None, memory: Sequence[TensorMemory]) -> None:
    """Write the memory of tensors as a drawing; replaces the file. Raises `OutputError`.

    Tensors that ops released before the end have their own lifetimes; all others end with the
    recording.
    """
    from bridge.analyze.cost.memory.flow import flow
    from bridge.analyze.cost.memory.usage import MemoryUsage
    from bridge.output import write
    from bridge.render.memory_plots import flow_svg
    from bridge.report import join

    if session is None:
        return
    capture = session.report.capture
    drawn = replace(capture, source=(SOURCE,), memory=memory_frame(memory))
    write(path, flow_svg(flow(MemoryUsage.of(join(drawn).attributed))), force=True)


def memory_frame(memory: Sequence[TensorMemory]) -> Memory:
    """Return the frame `memory` of a capture: an allocation and a release per tensor, by time."""
    import numpy as np

    from bridge.importers import frames

    rows: list[tuple[int, TensorMemory, int]] = [(m.start, m, frames.ALLOCATE) for m in memory] + [
        (m.end, m, frames.RELEASE) for m in memory if m.end >= 0
    ]
    rows.sort(key=lambda row: row[0])
    process = os.getpid() << PROCESS_BITS

    def ints(values: list[int]) -> Any:
        return np.array(values, np.int64)

    kinds = [
        frames.MEMORY_KINDS.index("pageable" if m.device == "cpu" else "device") for _, m, _ in rows
    ]
    return frames.Memory(
        time=ints([time for time, _, _ in rows]),
        thread=ints([process | m.thread for _, m, _ in rows]),
        process=ints([process] * len(rows)),
        device=ints([_device_number(m.device) for _, m, _ in rows]),
        kind=frames.Names(ints(kinds), frames.MEMORY_KINDS),
        operation=ints([operation for _, _, operation in rows]),
        address=ints([m.address for _, m, _ in rows]),
        bytes=ints([m.bytes for _, m, _ in rows]),
    )


def _device_number(device: str) -> int:
    """Return the number in ``cuda:1``, -1 for the CPU."""
    number = device.partition(":")[2]
    return int(number) if number.isdecimal() else -1
