"""A GPU with a clock of its own, behind the names of `torch.cuda` and of `cuda.bindings.runtime`.

Streams are moments until which they are busy; a kernel takes its time on the current stream, after a launch that the host
pays for. Kernels find their data in the L2 cache unless something has been written over it since.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import SimpleNamespace

LAUNCH = 5_000  # ns of the host for each kernel, which the GPU waits for
L2 = 1 << 20
COLD = 3  # times as long
NAME = "Fake 100"


class Stream:
    def __init__(self, gpu, device=None):
        self.gpu = gpu
        self.busy_until = 0
        self.number = len(gpu.streams)
        gpu.streams.append(self)

    def wait_event(self, event):
        self.busy_until = max(self.busy_until, event.time)

    def wait_stream(self, other):
        self.busy_until = max(self.busy_until, other.busy_until)

    def __int__(self):
        return self.number


class Event:
    def __init__(self, gpu, enable_timing=False):
        self.gpu, self.timed, self.time = gpu, enable_timing, None

    def record(self, stream=None):
        self.time = (stream or self.gpu.current).busy_until

    def elapsed_time(self, end):
        assert self.timed
        assert end.timed
        assert self.gpu.waited, "an event is asked before the GPU was waited for"
        return (end.time - self.time) / 1e6


class GPU:
    def __init__(self):
        self.streams, self.capturing, self.cold, self.waited = [], None, False, True
        self.current = Stream(self)
        self.held = self.peak = 0
        self.kernels = self.flushes = 0

    def kernel(self, ns):
        """What an op does; returns ns that it took."""
        self.waited = False
        if self.capturing is not None:
            self.capturing.append(ns)
            return
        self.kernels += 1
        self.current.busy_until += LAUNCH + ns * (COLD if self.cold else 1)
        self.cold = False

    def replay(self, kernels):
        self.waited = False
        self.current.busy_until += LAUNCH + sum(kernels) * (COLD if self.cold else 1)
        self.kernels += len(kernels)
        self.cold = False

    def flush(self, size):
        assert size >= 2 * L2
        self.flushes += 1
        self.cold = True
        self.current.busy_until += 77_000  # it takes a while, which is no part of a run

    def wait(self, *_):
        """Time passes for all streams until the last is done."""
        self.waited = True
        now = max(stream.busy_until for stream in self.streams)
        for stream in self.streams:
            stream.busy_until = now

    @contextmanager
    def on(self, stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


class FakeTensor:
    """What a function on the fake GPU returns: it holds memory as long as it lives."""

    def __init__(self, gpu, size):
        self.gpu, self.size = gpu, size
        gpu.held += size
        gpu.peak = max(gpu.peak, gpu.held)

    def __del__(self):
        self.gpu.held -= self.size


def torch_of(gpu):
    """The part of PyTorch that is asked."""

    class Graph:
        def __init__(self):
            self.kernels = []

        def replay(self):
            gpu.replay(self.kernels)

    @contextmanager
    def graph(made):
        gpu.capturing = made.kernels
        yield
        gpu.capturing = None

    @contextmanager
    def device(_index):
        yield

    def reset_peak(_index):
        gpu.peak = gpu.held

    about = SimpleNamespace(name=NAME, L2_cache_size=L2)
    cuda = SimpleNamespace(
        Event=lambda enable_timing=False: Event(gpu, enable_timing),
        Stream=lambda device=None: Stream(gpu, device),
        CUDAGraph=Graph,
        graph=graph,
        stream=gpu.on,
        device=device,
        current_stream=lambda: gpu.current,
        synchronize=gpu.wait,
        get_device_properties=lambda _index: about,
        reset_peak_memory_stats=reset_peak,
        max_memory_allocated=lambda _index: gpu.peak,
        memory_allocated=lambda _index: gpu.held,
    )

    class Buffer:
        def __init__(self, size, dtype, device):
            self.size = size

        def zero_(self):
            gpu.flush(self.size)

    return SimpleNamespace(cuda=cuda, empty=Buffer, int8="int8")


class Error(IntEnum):
    cudaSuccess = 0  # noqa: N815 - CUDA's
    cudaErrorInvalidDevice = 101  # noqa: N815


def runtime_of(gpu, *, broken=()):
    """The part of cuda-python's runtime that is asked: every call answers with an error first."""
    alive = set()

    def answered(name, function):
        def call(*arguments):
            if name in broken:
                return (Error.cudaErrorInvalidDevice, *([None] * (name in HAVE_ANSWERS)))
            answer = function(*arguments)
            return (Error.cudaSuccess, *answer) if name in HAVE_ANSWERS else (Error.cudaSuccess,)

        return call

    def create():
        made = Event(gpu, True)
        alive.add(made)
        return (made,)

    def stream_of(handle):
        return handle if isinstance(handle, Stream) else gpu.streams[int(handle)]

    def begin(_stream, _mode):
        gpu.capturing = []

    def end(_stream):
        kernels, gpu.capturing = gpu.capturing, None
        return (kernels,)

    calls = {
        "cudaSetDevice": lambda _index: None,
        "cudaGetDeviceProperties": lambda _index: (
            SimpleNamespace(name=NAME.encode() + b"\0\0", l2CacheSize=L2),
        ),
        "cudaEventCreate": create,
        "cudaEventRecord": lambda event, stream: event.record(stream_of(stream)),
        "cudaEventElapsedTime": lambda start, end: (start.elapsed_time(end),),
        "cudaEventDestroy": alive.remove,
        "cudaStreamCreateWithFlags": lambda _flags: (Stream(gpu),),
        "cudaStreamWaitEvent": lambda stream, event, _flags: stream.wait_event(event),
        "cudaStreamBeginCapture": begin,
        "cudaStreamEndCapture": end,
        "cudaGraphInstantiate": lambda graph, _flags: (graph,),
        "cudaGraphLaunch": lambda graph, _stream: gpu.replay(graph),
        "cudaMemGetInfo": lambda: ((1 << 30) - gpu.held, 1 << 30),
        "cudaMalloc": lambda size: (size,),
        "cudaMemsetAsync": lambda _place, _value, size, _stream: gpu.flush(size),
        "cudaDeviceSynchronize": gpu.wait,
    }
    found = SimpleNamespace(**{name: answered(name, function) for name, function in calls.items()})
    found.cudaStreamNonBlocking = 1
    found.cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)
    found.alive = alive
    found.on = lambda handle: gpu.on(stream_of(handle))
    return found


HAVE_ANSWERS = {
    "cudaGetDeviceProperties", "cudaEventCreate", "cudaEventElapsedTime", "cudaStreamCreateWithFlags",
    "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaMemGetInfo", "cudaMalloc",
}  # fmt: skip
