"""A GPU through NVIDIA's cuda-python, where the tensors are not PyTorch's: CuPy's, or what a function makes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from itertools import repeat
from typing import Any

from bridge.bench.devices.protocol import Call, Label, Spans
from bridge.bench.errors import BenchError

NS = 1e6  # in a millisecond, which events are told in
DEFAULT = 0  # CUDA's default stream
OnStream = Callable[[int], AbstractContextManager[Any]]


class DeviceError(BenchError):
    """CUDA answered with an error; the message names the call and the error."""


class CudaPython:
    """The GPU of this index; ``runtime`` is `cuda.bindings.runtime`, or what stands for it in a test.

    ``current`` tells the handle of the stream that calls are issued on, ``on`` has a block issue on another:
    CuPy has both, and without them there are no streams and no graphs.
    """

    clock: str = "cuda events by cuda-python"
    least_ns: int = 100_000  # events tell about 0.5 µs
    loop_ns = 0.0

    def __init__(
        self,
        runtime: Any,
        index: int = 0,
        current: Callable[[], int] | None = None,
        on: OnStream | None = None,
    ) -> None:
        self._runtime = runtime
        self._current, self._on = current or (lambda: DEFAULT), on
        self._ask("cudaSetDevice", index)
        about = self._ask("cudaGetDeviceProperties", index)
        self.name = _text(about.name)
        self._cache = int(about.l2CacheSize)
        self._streams: dict[int, Any] = {}

    def runs(self, call: Call, runs: int, number: int, label: Label, *, cold: bool) -> list[int]:
        """Return the ns between the events of each run; all runs are issued before any is waited for."""
        stream = self._current()
        with self._events(2 * runs) as events:
            pairs = list(zip(events[::2], events[1::2], strict=True))
            for start, end in pairs:
                if cold:
                    self._flush(stream)
                with label():
                    self._timed(call, number, (start, end), stream)
            self.wait()
            return [self._between(start, end) for start, end in pairs]

    def at_once(
        self,
        calls: Sequence[Call],
        streams: Sequence[int],
        runs: int,
        number: int,
        labels: Sequence[Label],
    ) -> Spans:
        """Issue each call on its stream, which begins where the streams' common first event is done."""
        found = Spans([], [])
        for _ in range(runs):
            with self._events(2 * len(calls) + 1) as (first, *events):
                self._ask("cudaEventRecord", first, self._current())
                for stream in dict.fromkeys(streams):
                    self._ask("cudaStreamWaitEvent", self._stream(stream), first, 0)
                pairs = list(zip(events[::2], events[1::2], strict=True))
                for turn in range(number):  # in turns, or the last stream would wait for the host
                    for call, place, label, pair in zip(calls, streams, labels, pairs, strict=True):
                        self._issue(call, self._stream(place), label, pair, (turn, number))
                self.wait()
                for column, place in zip(found, range(2), strict=True):
                    column.append([self._between(first, pair[place]) for pair in pairs])
        return found

    def captured(self, call: Call, number: int) -> Call:
        """Return what launches a graph of these calls."""
        stream = self._stream(DEFAULT)
        mode = self._runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        try:
            with self._issuing(stream):
                self.wait()
                self._ask("cudaStreamBeginCapture", stream, mode)
                try:
                    for _ in repeat(None, number):
                        call()
                finally:
                    graph = self._ask("cudaStreamEndCapture", stream)
            ready = self._ask("cudaGraphInstantiate", graph, 0)
        except (DeviceError, RuntimeError) as error:
            raise BenchError(f"graph=True: this cannot be captured: {error}") from error
        return lambda: self._ask("cudaGraphLaunch", ready, self._current())

    def workspace(self, call: Call) -> int:
        """Return by how much less memory of the GPU is free after a call than before, what it keeps for later included."""
        self.wait()
        before, _ = self._ask("cudaMemGetInfo")
        result = call()
        self.wait()
        after, _ = self._ask("cudaMemGetInfo")
        del result
        return max(0, int(before) - int(after))

    def wait(self) -> None:
        """Wait for the GPU."""
        self._ask("cudaDeviceSynchronize")

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Call CUDA; return what it answers beside the error, which is raised."""
        error, *answer = getattr(self._runtime, name)(*arguments)
        if int(error):
            raise DeviceError(f"{name}: {getattr(error, 'name', error)}")
        return answer[0] if len(answer) == 1 else tuple(answer)

    @contextmanager
    def _events(self, many: int) -> Iterator[list[Any]]:
        made: list[Any] = []
        try:
            made.extend(self._ask("cudaEventCreate") for _ in range(many))
            yield made
        finally:
            for event in made:
                self._ask("cudaEventDestroy", event)

    def _timed(self, call: Call, number: int, pair: tuple[Any, Any], stream: Any) -> None:
        self._ask("cudaEventRecord", pair[0], stream)
        for _ in repeat(None, number):
            call()
        self._ask("cudaEventRecord", pair[1], stream)

    def _issue(
        self, call: Call, stream: Any, label: Label, pair: tuple[Any, Any], turn: tuple[int, int]
    ) -> None:
        """Issue one call on a stream, with its events before the first and after the last."""
        with self._issuing(stream), label():
            if turn[0] == 0:
                self._ask("cudaEventRecord", pair[0], stream)
            call()
            if turn[0] + 1 == turn[1]:
                self._ask("cudaEventRecord", pair[1], stream)

    def _between(self, start: Any, end: Any) -> int:
        milliseconds: float = self._ask("cudaEventElapsedTime", start, end)
        return round(milliseconds * NS)

    def _stream(self, number: int) -> Any:
        """Return the stream that goes by this number; it waits for no other by itself."""
        if number not in self._streams:
            flags = self._runtime.cudaStreamNonBlocking
            self._streams[number] = self._ask("cudaStreamCreateWithFlags", flags)
        return self._streams[number]

    def _issuing(self, stream: Any) -> AbstractContextManager[Any]:
        if self._on is None:
            raise BenchError(
                "streams and graphs need PyTorch or CuPy, which issue on a given stream"
            )
        return self._on(int(stream))

    def _flush(self, stream: Any) -> None:
        place, size = self._rubbish
        self._ask("cudaMemsetAsync", place, 0, size, stream)

    @cached_property
    def _rubbish(self) -> tuple[Any, int]:
        """Twice as much as the L2 cache holds, on the GPU; kept as long as the process."""
        size = 2 * self._cache
        return self._ask("cudaMalloc", size), size


def _text(name: Any) -> str:
    return name.split(b"\0")[0].decode() if isinstance(name, bytes) else str(name)
