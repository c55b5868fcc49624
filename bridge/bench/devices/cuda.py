"""GPUs, timed by CUDA events: through PyTorch, or through NVIDIA's cuda-python.

cuda-python serves tensors that are not PyTorch's: CuPy's, or those that a function creates itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from itertools import repeat
from typing import Any

from bridge.bench.devices.base import BenchError, Call, Label, Spans

NS_PER_MS = 1e6  # events give milliseconds
DEFAULT_L2_BYTES = 128 << 20  # where PyTorch does not have the size
CALLS_BEFORE_CAPTURE = 3  # on the side stream: libraries initialise themselves
DEFAULT_STREAM = 0
OnStream = Callable[[int], AbstractContextManager[Any]]
EventPair = tuple[Any, Any]


class CudaDevice(ABC):
    """Times calls on a GPU by CUDA events; a subclass issues the events and waits."""

    name: str
    clock: str
    least_ns: int = 100_000  # events have a resolution of about 0.5 µs
    loop_ns = 0.0

    def __init__(self) -> None:
        self._streams: dict[int, Any] = {}

    def runs(self, call: Call, runs: int, number: int, label: Label, *, cold: bool) -> list[int]:
        """Return the ns between the events of each run; all runs are issued before it waits."""
        with self._device(), self._events(2 * runs) as events:
            stream = self._current_stream()
            pairs = list(zip(events[::2], events[1::2], strict=True))
            for start, end in pairs:
                if cold:
                    self._overwrite_cache(stream)
                with label():
                    self._record(start, stream)
                    for _ in repeat(None, number):
                        call()
                    self._record(end, stream)
            self.wait()
            return [self._elapsed_ns(start, end) for start, end in pairs]

    def at_once(
        self,
        calls: Sequence[Call],
        streams: Sequence[int],
        runs: int,
        number: int,
        labels: Sequence[Label],
    ) -> Spans:
        """Issue each call on its stream; all streams begin after a common first event."""
        spans = Spans([], [])
        with self._device():
            for _ in range(runs):
                with self._events(2 * len(calls) + 1) as (first, *events):
                    self._record(first, self._current_stream())
                    for stream in dict.fromkeys(streams):
                        self._wait_event(self._stream(stream), first)
                    pairs = list(zip(events[::2], events[1::2], strict=True))
                    # In turns: else the last stream would wait for the host to issue the others.
                    for turn in range(number):
                        for call, stream, label, pair in zip(
                            calls, streams, labels, pairs, strict=True
                        ):
                            self._issue(
                                call,
                                self._stream(stream),
                                label=label,
                                pair=pair,
                                turn=(turn, number),
                            )
                    self.wait()
                    spans.starts.append([self._elapsed_ns(first, start) for start, _ in pairs])
                    spans.ends.append([self._elapsed_ns(first, end) for _, end in pairs])
        return spans

    def _issue(
        self, call: Call, stream: Any, label: Label, pair: EventPair, turn: tuple[int, int]
    ) -> None:
        """Issue one call on a stream, with its events before the first and after the last turn."""
        with self._on_stream(stream), label():
            if turn[0] == 0:
                self._record(pair[0], stream)
            call()
            if turn[0] + 1 == turn[1]:
                self._record(pair[1], stream)

    def _stream(self, number: int) -> Any:
        """Return the stream of this number."""
        if number not in self._streams:
            self._streams[number] = self._new_stream()
        return self._streams[number]

    @abstractmethod
    def wait(self) -> None:
        """Wait for the GPU."""

    def _device(self) -> AbstractContextManager[Any]:
        """Make this GPU the current one."""
        return nullcontext()

    @abstractmethod
    def _events(self, count: int) -> AbstractContextManager[list[Any]]:
        """Create events for a block."""

    @abstractmethod
    def _record(self, event: Any, stream: Any) -> None:
        """Record an event on a stream."""

    @abstractmethod
    def _elapsed_ns(self, start: Any, end: Any) -> int:
        """Return the time between two events in ns."""

    @abstractmethod
    def _new_stream(self) -> Any:
        """Create a stream."""

    @abstractmethod
    def _current_stream(self) -> Any:
        """Return the stream that calls are issued on."""

    @abstractmethod
    def _on_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Issue the work of a block on a stream."""

    @abstractmethod
    def _wait_event(self, stream: Any, event: Any) -> None:
        """Let a stream wait for an event."""

    @abstractmethod
    def _overwrite_cache(self, stream: Any) -> None:
        """Write twice the size of the L2 cache."""


class TorchCuda(CudaDevice):
    """A GPU through PyTorch; ``torch`` is the library, or its replacement in a test."""

    clock: str = "cuda events by torch"

    def __init__(self, torch: Any, index: int = 0) -> None:
        super().__init__()
        self._cuda = torch.cuda
        self._torch, self._index = torch, index
        self._properties = torch.cuda.get_device_properties(index)
        self.name = str(self._properties.name)

    def captured(self, call: Call, number: int) -> Call:
        """Return a call that replays a graph of ``number`` calls; raises BenchError."""
        cuda = self._cuda
        try:
            with self._side_stream():
                for _ in range(CALLS_BEFORE_CAPTURE):
                    call()
            graph = cuda.CUDAGraph()
            with self._device(), cuda.graph(graph):
                for _ in repeat(None, number):
                    call()
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise BenchError(f"graph=True: this cannot be captured: {reason}") from error
        replay: Call = graph.replay
        return replay

    def workspace(self, call: Call) -> int:
        """Return the allocator's peak during a call, less the bytes in use at its end."""
        with self._device():
            self.wait()
            self._cuda.reset_peak_memory_stats(self._index)
            result = call()
            self.wait()
            peak = int(self._cuda.max_memory_allocated(self._index))
            in_use = int(self._cuda.memory_allocated(self._index))
            del result  # in use until here
        return peak - in_use

    def wait(self) -> None:
        self._cuda.synchronize(self._index)

    def _device(self) -> AbstractContextManager[Any]:
        device: AbstractContextManager[Any] = self._cuda.device(self._index)
        return device

    @contextmanager
    def _events(self, count: int) -> Iterator[list[Any]]:
        yield [self._cuda.Event(enable_timing=True) for _ in range(count)]

    def _record(self, event: Any, stream: Any) -> None:
        event.record(stream)

    def _elapsed_ns(self, start: Any, end: Any) -> int:
        milliseconds: float = start.elapsed_time(end)
        return round(milliseconds * NS_PER_MS)

    def _new_stream(self) -> Any:
        return self._cuda.Stream(device=self._index)

    def _current_stream(self) -> Any:
        return self._cuda.current_stream()

    def _on_stream(self, stream: Any) -> AbstractContextManager[Any]:
        block: AbstractContextManager[Any] = self._cuda.stream(stream)
        return block

    def _wait_event(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def _overwrite_cache(self, stream: Any) -> None:  # noqa: ARG002 - on the current stream
        self._buffer.zero_()

    @contextmanager
    def _side_stream(self) -> Iterator[None]:
        """Issue the work of a block on a new stream, as PyTorch requires before a capture."""
        with self._device():
            current, side = self._current_stream(), self._new_stream()
            side.wait_stream(current)
            with self._on_stream(side):
                yield
            current.wait_stream(side)

    @cached_property
    def _buffer(self) -> Any:
        """Twice the size of the L2 cache, on the GPU."""
        size = 2 * (getattr(self._properties, "L2_cache_size", 0) or DEFAULT_L2_BYTES)
        return self._torch.empty(size, dtype=self._torch.int8, device=f"cuda:{self._index}")


class DeviceError(BenchError):
    """A CUDA call returned an error; the message names the call and the error."""


class CudaPython(CudaDevice):
    """A GPU through cuda-python; ``runtime`` is `cuda.bindings.runtime`, or a test's replacement.

    ``current`` returns the handle of the stream that calls are issued on; ``on`` is a context
    manager that issues on another. CuPy has both; without them there are no streams and no graphs.
    """

    clock: str = "cuda events by cuda-python"

    def __init__(
        self,
        runtime: Any,
        index: int = 0,
        current: Callable[[], int] | None = None,
        on: OnStream | None = None,
    ) -> None:
        super().__init__()
        self._runtime = runtime
        self._current, self._on = current or (lambda: DEFAULT_STREAM), on
        self._call("cudaSetDevice", index)
        properties = self._call("cudaGetDeviceProperties", index)
        self.name = _text(properties.name)
        self._l2_bytes = int(properties.l2CacheSize)

    def captured(self, call: Call, number: int) -> Call:
        """Return a call that launches a graph of ``number`` calls; raises BenchError."""
        stream = self._stream(0)
        mode = self._runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        try:
            with self._on_stream(stream):
                self.wait()
                self._call("cudaStreamBeginCapture", stream, mode)
                try:
                    for _ in repeat(None, number):
                        call()
                finally:
                    graph = self._call("cudaStreamEndCapture", stream)
            executable = self._call("cudaGraphInstantiate", graph, 0)
        except (DeviceError, RuntimeError) as error:
            raise BenchError(f"graph=True: this cannot be captured: {error}") from error
        return lambda: self._call("cudaGraphLaunch", executable, self._current())

    def workspace(self, call: Call) -> int:
        """Return how much less GPU memory is free after a call, memory pools included."""
        self.wait()
        before, _ = self._call("cudaMemGetInfo")
        result = call()
        self.wait()
        after, _ = self._call("cudaMemGetInfo")
        del result  # in use until here
        return max(0, int(before) - int(after))

    def wait(self) -> None:
        self._call("cudaDeviceSynchronize")

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call CUDA and return its results; raises DeviceError."""
        error, *results = getattr(self._runtime, name)(*arguments)
        if int(error):
            raise DeviceError(f"{name}: {getattr(error, 'name', error)}")
        return results[0] if len(results) == 1 else tuple(results)

    @contextmanager
    def _events(self, count: int) -> Iterator[list[Any]]:
        events: list[Any] = []
        try:
            events.extend(self._call("cudaEventCreate") for _ in range(count))
            yield events
        finally:
            for event in events:
                self._call("cudaEventDestroy", event)

    def _record(self, event: Any, stream: Any) -> None:
        self._call("cudaEventRecord", event, stream)

    def _elapsed_ns(self, start: Any, end: Any) -> int:
        milliseconds: float = self._call("cudaEventElapsedTime", start, end)
        return round(milliseconds * NS_PER_MS)

    def _new_stream(self) -> Any:
        """Create a stream that does not wait for the default stream."""
        return self._call("cudaStreamCreateWithFlags", self._runtime.cudaStreamNonBlocking)

    def _current_stream(self) -> Any:
        return self._current()

    def _on_stream(self, stream: Any) -> AbstractContextManager[Any]:
        if self._on is None:
            raise BenchError(
                "streams and graphs need PyTorch or CuPy, which issue on a given stream"
            )
        return self._on(int(stream))

    def _wait_event(self, stream: Any, event: Any) -> None:
        self._call("cudaStreamWaitEvent", stream, event, 0)

    def _overwrite_cache(self, stream: Any) -> None:
        address, size = self._buffer
        self._call("cudaMemsetAsync", address, 0, size, stream)

    @cached_property
    def _buffer(self) -> tuple[Any, int]:
        """Address and size of twice the L2 cache on the GPU; never freed."""
        size = 2 * self._l2_bytes
        return self._call("cudaMalloc", size), size


def _text(name: Any) -> str:
    return name.split(b"\0")[0].decode() if isinstance(name, bytes) else str(name)
