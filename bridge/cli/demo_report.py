"""The report that `bridge demo` imports: three training steps on a GPU, all made up.

It has what real reports have: autograd on its own thread with PyTorch's text per call, a coroutine
in slices, the domain of a library, kernels on two streams, and a few kernels without an op.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridge.importers.frames import CALL_ID, CALL_ID_SHIFT
from bridge.importers.nsys import schema
from bridge.importers.nsys.stacks import OP_SOURCE
from bridge.importers.nsys.write import Row, Strings, write_export

PROCESS = 4242 << 24


MAIN, AUTOGRAD, LOADER = (PROCESS | 4242 + n for n in range(3))


COMPUTE, NCCL = 7, 20  # streams


NCCL_DOMAIN = 3


STEPS, LAYERS = 3, 4


SOURCES = {  # as nvtx_op(source=True) records them: op: line of train.py, and function
    "fetch batch": (12, "fetch"),
    "copy batch": (31, "train"),
    "forward": (18, "forward"),
    "backward": (35, "train"),
}


KERNELS = {  # kernel: (short name, ns)
    "gemm": ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_tn", 61_000),
    "attention": ("flash_fwd_kernel", 92_000),
    "attention backward": ("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", 184_000),
    "norm": ("vectorized_layer_norm_kernel", 9_000),
    "norm backward": ("layer_norm_grad_input_kernel_vectorized", 14_000),
    "pointwise": ("vectorized_elementwise_kernel", 4_000),
    "adam": ("multi_tensor_apply_kernel", 38_000),
    "reduce": ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 120_000),
}

# A collective waits for the gradients, the optimizer for all collectives: the last one of a step runs alone.
STREAM_WAIT = 2  # CUPTI's kind of a wait of a stream for an event
WAITS_FOR = {"reduce": COMPUTE, "adam": NCCL}

NAMESPACES = {  # by the first word of the short name
    **dict.fromkeys(("vectorized", "layer", "multi"), "at::native::"),
    "flash": "flash::",
}


def _demangled(short: str) -> str:
    """Return the demangled name of a kernel; those of cuBLAS and NCCL are functions in C."""
    namespace = NAMESPACES.get(short.partition("_")[0])
    return f"void {namespace}{short}<bfloat16>(params)" if namespace else short


class _Recorder:
    """The clocks of threads and streams, and the rows recorded so far."""

    def __init__(self) -> None:
        self.strings = Strings()
        self.host = {MAIN: 1_000_000, AUTOGRAD: 1_000_000, LOADER: 1_000_000}
        self.device = {COMPUTE: 0, NCCL: 0}
        self.rows: dict[str, list[Row]] = {
            name: []
            for name in ("annotations", "launches", "kernels", "copies", "fills", "events", "syncs")
        }
        self.calls = 0

    @contextmanager
    def op(
        self, thread: int, text: str, domain: int = 0, payload: int | None = None
    ) -> Iterator[None]:
        start = self.host[thread]
        self.host[thread] += 1_500
        yield
        self.host[thread] += 1_000
        row = {
            "start": start,
            "end": self.host[thread],
            "type": schema.PUSH_POP[0],
            "thread": thread,
        }
        self.rows["annotations"].append(
            row | {"domain": domain, "payload": payload, "text": text, "text_id": None}
        )

    def call(self, thread: int, name: str, duration: int = 4_000) -> int:
        """Record an API call and return its correlation id."""
        self.calls += 1
        start = self.host[thread] + 500
        self.host[thread] = start + duration
        self.rows["launches"].append(
            {"start": start, "end": start + duration, "thread": thread, "correlation": self.calls,
             "name": self.strings(f"{name}_v7000")}
        )  # fmt: skip
        return self.calls

    def kernel(self, thread: int, kind: str, stream: int = COMPUTE, times: float = 1) -> None:
        short, ns = KERNELS[kind]
        if kind in WAITS_FOR:
            self._wait(thread, stream, WAITS_FOR[kind])
        call = self.call(thread, "cudaLaunchKernel")
        where = self._run(thread, stream, int(ns * times), call)
        name, full = self.strings(short), self.strings(_demangled(short))
        shape = {
            "grid_x": 432,
            "grid_y": 1,
            "grid_z": 1,
            "block_x": 256,
            "block_y": 1,
            "block_z": 1,
        }
        self.rows["kernels"].append(
            {**where, **shape, "name": name, "full_name": full, "mangled": full, "registers": 168}
        )

    def copy(self, thread: int, size: int) -> None:
        where = self._run(thread, COMPUTE, size // 20, self.call(thread, "cudaMemcpyAsync", 6_000))
        self.rows["copies"].append({**where, "bytes": size, "copy_kind": 1})

    def fill(self, thread: int, size: int) -> None:
        where = self._run(thread, COMPUTE, 1_200, self.call(thread, "cudaMemsetAsync", 3_000))
        self.rows["fills"].append({**where, "bytes": size})

    def _wait(self, thread: int, stream: int, awaited: int) -> None:
        """Let a stream wait for what another one was given so far, by an event."""
        recorded = self._place(awaited, self.call(thread, "cudaEventRecord", 1_000))
        event = {"event": recorded["correlation"]}
        self.rows["events"].append({**recorded, **event})
        place = self._place(stream, self.call(thread, "cudaStreamWaitEvent", 1_000))
        times = {"start": self.host[thread] - 1_000, "end": self.host[thread]}
        self.rows["syncs"].append({**times, **place, **event, "kind": STREAM_WAIT})
        self.device[stream] = max(self.device[stream], self.device[awaited])

    def _run(self, thread: int, stream: int, duration: int, correlation: int) -> dict[str, int]:
        start = max(self.host[thread] + 1_800, self.device[stream] + 900)
        self.device[stream] = start + duration
        return {"start": start, "end": start + duration, **self._place(stream, correlation)}

    @staticmethod
    def _place(stream: int, correlation: int) -> dict[str, int]:
        return {
            "device": 0, "context": 1, "stream": stream, "process": PROCESS,
            "correlation": correlation,
        }  # fmt: skip


def make(path: Path) -> None:
    """Write the report."""
    recorder = _Recorder()
    recorder.kernel(MAIN, "pointwise")  # before any op
    for step in range(STEPS):
        _step(recorder, step)
    _write(path, recorder)


def _step(r: _Recorder, step: int) -> None:
    _fetch(r, step)
    with r.op(MAIN, f"ProfilerStep#{step}"):
        with r.op(MAIN, "copy batch"):
            r.copy(MAIN, 1 << 20)
        with r.op(MAIN, "forward"):
            for layer in range(LAYERS):
                _forward(r, step, layer)
        with r.op(MAIN, "backward"):
            r.host[AUTOGRAD] = r.host[MAIN]
            for layer in reversed(range(LAYERS)):
                _backward(r, step, layer)
            r.host[MAIN] = r.host[AUTOGRAD]
        with r.op(MAIN, "Optimizer.step#AdamW.step"):
            r.fill(MAIN, 1 << 12)
            r.kernel(MAIN, "adam", times=1 + step / 10)


def _fetch(r: _Recorder, step: int) -> None:
    """Record a coroutine that waits twice: three slices of one call."""
    for _ in range(3):
        with r.op(LOADER, "fetch batch", payload=(CALL_ID << CALL_ID_SHIFT) + step + 1):
            r.host[LOADER] += 60_000
        r.host[LOADER] += 200_000


def _forward(r: _Recorder, step: int, layer: int) -> None:
    with r.op(MAIN, f"layer {layer}"):
        with r.op(MAIN, _call("aten::native_layer_norm", step, layer, 0)):
            r.kernel(MAIN, "norm")
        with r.op(MAIN, _call("aten::scaled_dot_product_attention", step, layer, 1)):
            r.kernel(MAIN, "attention")
        with (
            r.op(MAIN, _call("aten::linear", step, layer, 2)),
            r.op(MAIN, _call("aten::addmm", step, layer, 2)),
        ):
            r.kernel(MAIN, "gemm")
            r.kernel(MAIN, "pointwise")


def _backward(r: _Recorder, step: int, layer: int) -> None:
    for name, seq, kinds in (
        ("AddmmBackward0", 2, ("gemm", "gemm")),
        ("ScaledDotProductFlashAttentionBackward0", 1, ("attention backward",)),
        ("NativeLayerNormBackward0", 0, ("norm backward",)),
    ):
        with (
            r.op(AUTOGRAD, f"autograd::engine::evaluate_function: {name}"),
            r.op(AUTOGRAD, _call(name, step, layer, seq)),
        ):
            for kind in kinds:
                r.kernel(AUTOGRAD, kind)
    with r.op(AUTOGRAD, "all-reduce"), r.op(AUTOGRAD, "ncclAllReduce", domain=NCCL_DOMAIN):
        r.kernel(AUTOGRAD, "reduce", stream=NCCL)


def _place(op: str) -> str:
    line, function = SOURCES[op]
    return f"{OP_SOURCE}{line}:/home/me/train.py\t{op}\t{function}"


def _call(name: str, step: int, layer: int, seq: int) -> str:
    """Return PyTorch's text of one call; a backward range has the seq of its forward range."""
    number = (step * LAYERS + layer) * 3 + seq
    return f"{name}, seq = {number}, op_id = {100 + number}"


def _write(path: Path, r: _Recorder) -> None:
    names = {MAIN: "python", AUTOGRAD: "pt_autograd_0", LOADER: "loader"}
    domain: Row = {
        "start": 0,
        "type": schema.DOMAIN_NAME,
        "thread": MAIN,
        "domain": NCCL_DOMAIN,
        "text": "NCCL",
    }
    places: list[Row] = [
        {"start": 0, "type": schema.CATEGORY_NAME, "thread": MAIN, "category": number, "text": text}
        for number, text in enumerate(map(_place, SOURCES), start=1)
    ]
    # The first API call came before the capture began: its kernel has no launch.
    tables: dict[str, list[Row]] = {
        **r.rows,
        "launches": r.rows["launches"][1:],
        "annotations": [domain, *places, *r.rows["annotations"]],
        "processes": [{"process": PROCESS, "name": "python"}],
        "threads": [{"thread": t, "name": r.strings(n), "priority": 10} for t, n in names.items()],
        "gpus": [{"gpu": 0, "device": 0, "name": "Imaginary GPU"}],
    }
    versions = {schema.PRODUCT_VERSION: "0 (made by bridge demo)", schema.SCHEMA_VERSION: "3.16.1"}
    write_export(path, {**tables, "strings": r.strings.rows()}, versions)
