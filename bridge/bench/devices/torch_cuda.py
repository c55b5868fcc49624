"""A GPU through PyTorch: its events, its streams, its graphs, its allocator's own figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import repeat
from typing import Any

from bridge.bench.devices.protocol import Call, Label, Spans
from bridge.bench.errors import BenchError

NS = 1e6  # in a millisecond, which events are told in
USUAL_L2 = 128 << 20  # bytes, where the GPU does not say
BEFORE_CAPTURE = 3  # calls on the side stream, so that libraries are ready


class TorchCuda:
    """The GPU of this index; ``torch`` is the library, or what stands for it in a test."""

    clock: str = "cuda events by torch"
    least_ns: int = 100_000  # events tell about 0.5 µs
    loop_ns = 0.0

    def __init__(self, torch: Any, index: int = 0) -> None:
        self._cuda = torch.cuda
        self._torch, self._index = torch, index
        self._about = torch.cuda.get_device_properties(index)
        self.name = str(self._about.name)
        self._streams: dict[int, Any] = {}

    def runs(self, call: Call, runs: int, number: int, label: Label, *, cold: bool) -> list[int]:
        """Return the ns between the events of each run; all runs are issued before any is waited for."""
        with self._cuda.device(self._index):
            events = [(self._event(), self._event()) for _ in range(runs)]
            for start, end in events:
                if cold:
                    self._rubbish.zero_()
                with label():
                    start.record()
                    for _ in repeat(None, number):
                        call()
                    end.record()
            self.wait()
            return [round(start.elapsed_time(end) * NS) for start, end in events]

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
        with self._cuda.device(self._index):
            for _ in range(runs):
                first = self._event()
                first.record()
                for stream in dict.fromkeys(streams):
                    self._stream(stream).wait_event(first)
                events = [(self._event(), self._event()) for _ in calls]
                for turn in range(number):  # in turns, or the last stream would wait for the host
                    for call, stream, label, pair in zip(
                        calls, streams, labels, events, strict=True
                    ):
                        self._issue(call, self._stream(stream), label, pair, (turn, number))
                self.wait()
                for column, place in zip(found, range(2), strict=True):
                    column.append([round(first.elapsed_time(pair[place]) * NS) for pair in events])
        return found

    def captured(self, call: Call, number: int) -> Call:
        """Return the replay of a graph of these calls."""
        cuda = self._cuda
        try:
            with self._aside():
                for _ in range(BEFORE_CAPTURE):
                    call()
            graph = cuda.CUDAGraph()
            with cuda.device(self._index), cuda.graph(graph):
                for _ in repeat(None, number):
                    call()
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise BenchError(f"graph=True: this cannot be captured: {reason}") from error
        replay: Call = graph.replay
        return replay

    def workspace(self, call: Call) -> int:
        """Return the allocator's peak during a call, less what is held at its end, its result among it."""
        with self._cuda.device(self._index):
            self.wait()
            self._cuda.reset_peak_memory_stats(self._index)
            result = call()
            self.wait()
            peak = int(self._cuda.max_memory_allocated(self._index))
            held = int(self._cuda.memory_allocated(self._index))
            del result
        return peak - held

    def wait(self) -> None:
        """Wait for the GPU."""
        self._cuda.synchronize(self._index)

    def _event(self) -> Any:
        return self._cuda.Event(enable_timing=True)

    def _stream(self, number: int) -> Any:
        """Return the stream that goes by this number."""
        if number not in self._streams:
            self._streams[number] = self._cuda.Stream(device=self._index)
        return self._streams[number]

    def _issue(
        self, call: Call, stream: Any, label: Label, pair: tuple[Any, Any], turn: tuple[int, int]
    ) -> None:
        """Issue one call on a stream, with its events before the first and after the last."""
        with self._cuda.stream(stream), label():
            if turn[0] == 0:
                pair[0].record(stream)
            call()
            if turn[0] + 1 == turn[1]:
                pair[1].record(stream)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Issue the block's work on a stream of its own, as PyTorch wants it before a capture."""
        with self._cuda.device(self._index):
            current, aside = self._cuda.current_stream(), self._cuda.Stream(device=self._index)
            aside.wait_stream(current)
            with self._cuda.stream(aside):
                yield
            current.wait_stream(aside)

    @cached_property
    def _rubbish(self) -> Any:
        """Twice as much as the L2 cache holds, on the GPU."""
        size = 2 * (getattr(self._about, "L2_cache_size", 0) or USUAL_L2)
        return self._torch.empty(size, dtype=self._torch.int8, device=f"cuda:{self._index}")
