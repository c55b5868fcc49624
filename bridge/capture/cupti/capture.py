"""A capture by CUPTI in this process: everything from `start` to `stop`.

    with Capture(Path("run.cupti")):
        train()

It records the program's ranges beside what CUPTI records. CUPTI has one user at a time: to another one it is left.
"""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import Any, Self

from bridge.annotate import emit
from bridge.annotate.details import record_process
from bridge.annotate.emitter import Emitter, NullEmitter, warn
from bridge.annotate.recording.recorder import Recorder
from bridge.annotate.recording.sink import File
from bridge.annotate.recording.writer import Writer
from bridge.capture.cupti import records
from bridge.capture.cupti.collector import Collector
from bridge.capture.cupti.library import Library
from bridge.capture.cupti.pytorch import Watch
from bridge.capture.cupti.spool import ANNOTATIONS, Spool
from bridge.capture.cupti.witness import WitnessEmitter
from bridge.capture.tool import CaptureError

FOLDER_VARIABLE = (
    "BRIDGE_CUPTI"  # the folder of the spools; children of a captured process record into it too
)
GRAPHS_VARIABLE, WITNESS_VARIABLE = "BRIDGE_CUPTI_GRAPHS", "BRIDGE_CUPTI_WITNESS"
WAIT_VARIABLE = "BRIDGE_CUPTI_WAIT"  # record only the active steps of the program's session
GRAPHS = NODE, GRAPH = ("node", "graph")  # as nsys' --cuda-graph-trace
REASON = "CUPTI records"
NOTHING_RECORDED = "CUPTI records nothing"
# Set in the program by nsys and by other tools that the driver loads; they use CUPTI themselves.
TOOL_SIGNS = (*emit.SIGNS, "CUDA_INJECTION64_PATH")

KINDS = (
    records.DEVICE, records.CONTEXT, records.KERNEL, records.MEMCPY, records.PEER_COPY, records.MEMSET, records.RUNTIME,
    records.DRIVER, records.SYNCHRONIZATION, records.CUDA_EVENT, records.MEMORY, records.OVERHEAD,
)  # fmt: skip


class Capture:
    """A capture into spools below ``folder``.

    ``graphs`` is "node" for every node of a CUDA graph, "graph" for a graph as a whole. ``annotations``: record the
    ranges of the program too; a session records them itself. ``witness``: have CUPTI note which range is open with each
    call, as a second witness of the join, which costs about 2 µs per range. ``waits``: record no activities before
    `resume`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        graphs: str = NODE,
        annotations: bool = True,
        witness: bool = False,
        waits: bool = False,
    ) -> None:
        if graphs not in GRAPHS:
            raise ValueError(f"graphs is one of {', '.join(GRAPHS)}, not {graphs!r}")
        self.folder, self.waits = folder, waits
        self._annotations, self._witness = annotations, witness
        self._kinds = (
            *KINDS,
            *((records.GRAPH_TRACE,) if graphs == GRAPH else ()),
            *((records.EXTERNAL,) if witness else ()),
        )
        self._spool: Spool | None = None
        self._writer: Writer | None = None
        self._recorder: Recorder | None = None
        self._before: tuple[Emitter | None, str, bool] | None = None
        self._watch: Watch | None = None
        self.collector: Collector | None = None

    def start(self) -> None:
        """Start; call it before the program launches anything on the GPU.

        Raises CaptureError if CUPTI cannot be used, OSError if the folder cannot be written.
        """
        if sign := next((sign for sign in TOOL_SIGNS if os.environ.get(sign)), None):
            raise CaptureError(
                f"a profiler is attached to this process already ({sign} is set): CUPTI has one user at a time"
            )
        self.collector = Collector(Library(), self._new_spool, self._kinds)
        self.collector.start()
        if self.waits:
            self.collector.pause()
        if self._annotations:
            self._record_annotations()
        self._watch = Watch(self.collector.leave)
        atexit.register(self.stop)
        _running.append(self)

    def pause(self) -> None:
        """Record no activities until `resume`."""
        if self.collector is not None:
            self.collector.wait(is_limited=False)
            self.collector.pause()

    def resume(self) -> None:
        """Record activities again after `pause`."""
        if self.collector is not None:
            self.collector.resume()

    def stop(self) -> None:
        """Stop, and write everything to the spool. Does nothing if the capture does not run."""
        collector, self.collector = self.collector, None
        if collector is None:
            return
        atexit.unregister(self.stop)
        _running.remove(self)
        if self._watch is not None:
            self._watch.end()
        self._restore()
        try:
            collector.wait(is_limited=True)
        finally:
            collector.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wrap(self, emitter: Emitter) -> Emitter:
        """Return an emitter that also tells CUPTI which range is open, if this capture has a witness."""
        if not self._witness or self.collector is None:
            return emitter
        return WitnessEmitter(emitter, self.collector)

    def _new_spool(self) -> Spool:
        self._spool = Spool(self.folder)
        return self._spool

    def _record_annotations(self) -> None:
        """Record ranges into a file of the spool; details of calls go to the sidecar, as with nsys."""
        if self._spool is None:
            return
        self._writer = Writer(File(self._spool.folder / ANNOTATIONS))
        emitter = emit.current()
        self._before = emitter, emit.state.reason, emit.state.attached
        self._recorder = Recorder(
            self._writer, None if isinstance(emitter, NullEmitter) else emitter
        )
        emit.use(self.wrap(self._recorder), REASON)
        if self.collector is not None:
            self.collector.flush_annotations = self._writer.flush
        emit.state.attached = True
        record_process()

    def _restore(self) -> None:
        if self._before is not None:
            emitter, reason, emit.state.attached = self._before
            if emit.state.reason == REASON:
                emit.use(emitter, reason)
            self._before = None
        if self._recorder is not None and self._writer is not None:
            self._recorder.finish()
            self._writer.close()
            self._recorder = None

    def in_child(self) -> None:
        """Record into a spool of the forked child as soon as it uses the GPU, if the parent has not used it."""
        self._spool = None
        if self.collector is not None:
            self.collector.in_child()
        if (util := _multiprocessing_util()) is not None:  # its children do not run atexit
            util.register_after_fork(self, _stop_at_end)


def _stop_at_end(capture: Capture) -> None:
    if (util := _multiprocessing_util()) is not None:
        util.Finalize(None, capture.stop, exitpriority=-90)


def _multiprocessing_util() -> Any:
    import sys

    return sys.modules.get("multiprocessing.util")


_running: list[Capture] = []  # at most one, for CUPTI has one user at a time


def waiting() -> Capture | None:
    """Return the capture of this process that waits for the active steps of a session, or None."""
    return next((capture for capture in _running if capture.waits), None)


def _forked() -> None:
    for capture in _running:
        capture.in_child()


os.register_at_fork(after_in_child=_forked)


def autostart() -> None:
    """Start a capture if `BRIDGE_CUPTI` names a folder, as `bridge run --tool cupti` sets it; warn if that fails."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder or _running:
        return
    graphs = os.environ.get(GRAPHS_VARIABLE) or NODE
    witness = os.environ.get(WITNESS_VARIABLE, "") not in ("", "0")
    waits = os.environ.get(WAIT_VARIABLE, "") not in ("", "0")
    capture = Capture(Path(folder), graphs=graphs, witness=witness, waits=waits)
    try:
        capture.start()
    except (CaptureError, OSError, ValueError) as error:
        warn(f"process {os.getpid()}: {NOTHING_RECORDED}: {error}", 1)
