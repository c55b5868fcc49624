"""A process as it is under a tool, but for the tool: details of calls go to its recording."""

from __future__ import annotations

import numpy as np

from bridge import nvtx_op
from bridge.annotate import emit, stack
from bridge.annotate.recording.recorder import sidecar_writer
from bridge.annotate.recording.writer import Writer

ids: list[int] = []  # of this process's calls, in order


class Null:
    name = "null"
    version = ""

    def push(self, label: object, payload: float) -> None:
        ids.append(int(payload) & ((1 << stack.CALL_ID_BITS) - 1))

    def pop(self, domain: str | None) -> None:
        pass

    def mark(self, label: object, payload: float) -> None:
        pass


def attach() -> None:
    emit.use(Null())
    emit.state.attached = True


def writer() -> Writer:
    found = sidecar_writer()
    assert found is not None
    return found


@nvtx_op(args=("n",))
def call(n: int) -> int:
    return n


@nvtx_op(shapes=True)
def shaped(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a
