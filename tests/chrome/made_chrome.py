"""Small traces in the exact forms of the profilers that write them; times in µs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def named(kind: str, name: str, pid: Any, tid: Any = None) -> Event:
    event = {"ph": "M", "name": kind, "pid": pid, "args": {"name": name}}
    return event if tid is None else event | {"tid": tid}


# -- MXNet: pids are devices or hashes of domains, tids hashes of 64 bits; a pair is written when it has ended


MAIN, ENGINE = 11137438951279410961, 9873451200003122319
OPERATORS = 4873291234823749


def mxnet() -> dict[str, Any]:
    def pair(name: str, cat: str, start: int, end: int, pid: int, tid: int) -> list[Event]:
        both = {"name": name, "cat": cat, "pid": pid, "tid": tid}
        return [both | {"ph": "B", "ts": start}, both | {"ph": "E", "ts": end}]

    def async_pair(name: str, start: int, end: int) -> list[Event]:
        both = {"name": name, "cat": "operator", "id": ENGINE, "pid": OPERATORS, "tid": ENGINE}
        return [both | {"ph": "b", "ts": start}, both | {"ph": "e", "ts": end}]

    frame = {"name": "batch", "cat": "training", "pid": 77, "tid": MAIN}
    return {
        "traceEvents": [
            named("process_name", "cpu/0", 0),
            named("process_name", "gpu/0", 1),
            named("process_name", "cpu pinned/", 2),
            *pair("FullyConnected", "operator", 20, 60, 1, ENGINE),
            *pair("Activation", "operator", 60, 75, 1, ENGINE),
            *pair("FullyConnected", "operator", 80, 110, 0, ENGINE),
            named("process_name", "operator", OPERATORS),
            *async_pair("FullyConnected", 20, 60),
            named("process_name", "training", 77),
            *pair("load", "event", 5, 15, 77, MAIN),
            *pair("MXImperativeInvokeEx", "MXNET_C_API", 6, 9, 78, MAIN),
            frame | {"ph": "(", "ts": 4},
            frame | {"ph": ")", "ts": 120},
            {"name": "samples", "cat": "training", "ph": "C", "ts": 50, "pid": 77, "tid": MAIN, "args": {"samples": 128}},
            {"name": "saved", "cat": "training", "ph": "n", "s": "p", "ts": 100, "pid": 77, "tid": MAIN},
        ],
        "displayTimeUnit": "ms",
    }  # fmt: skip


# -- MegEngine: events in the order of time of the host, arguments at the end, arrows between threads


def megengine(*, cupti: bool = False) -> dict[str, Any]:
    pid, channel, worker, gpu, stream = 4242, 0, 1, 2, 3

    def event(name: str, ph: str, tid: int, ts: float, **more: Any) -> Event:
        return {"name": name, "ph": ph, "pid": pid, "tid": tid, "ts": ts, **more}

    def arrow(ph: str, cat: str, number: int, tid: int, ts: float) -> Event:
        end = {"bp": "e"} if ph == "f" else {}
        return event(str(pid), ph, tid, ts, cat=cat, id=number, scope=str(pid), **end)

    def detail(number: int, name: str) -> dict[str, str]:
        return {"__id__": str(number), "__name__": name, "__device__": "gpu0:0"}

    kernel = [
        event("sgemm_128x64_nn", "B", stream, 46.0, args={"execution_time": 4000}),
        arrow("f", "KernelLink", 901, stream, 50.0),
        event("sgemm_128x64_nn", "E", stream, 50.0, args={"execution_time": 4000}),
    ]
    launch = [
        event("sgemm_128x64_nn", "B", worker, 31.0),
        arrow("s", "KernelLink", 901, worker, 31.0),
        event("sgemm_128x64_nn", "E", worker, 32.0),
    ]
    tensor = {
        "id": "12",
        "name": "x",
        "shape": "{2,3}",
        "dtype": "Float32",
        "nr_elements": "6",
        "device": "gpu0:0",
    }
    return {
        "traceEvents": [
            event("forward", "B", channel, 10.0),
            event("OpDispatch", "B", channel, 11.0),
            arrow("s", "OpDispatch", 7, channel, 11.0),
            event("OpDispatch", "E", channel, 12.0, args=detail(7, "MatrixMul")),
            event("nr_op_pending", "C", channel, 12.0, args={"value": 1}),
            event("forward", "E", channel, 15.0),
            event("HostToDevice", "B", gpu, 20.0),
            event("HostToDevice", "E", gpu, 22.5, args={"shape": "{2,3}", "dtype": "Float32"}),
            event("MatrixMul", "B", worker, 28.0),
            arrow("t", "OpDispatch", 7, worker, 28.0),
            event("Input 12", "B", worker, 28.5, args=tensor),
            event("Input 12", "E", worker, 29.0, args=tensor),
            arrow("s", "KernelLaunch", 3, worker, 30.0),
            event("MatrixMul", "B", gpu, 45.0, cat="Kernel"),
            arrow("f", "KernelLaunch", 3, gpu, 45.0),
            *(launch if cupti else []),
            event("MatrixMul", "E", gpu, 51.5, cat="Kernel", args=detail(7, "MatrixMul")),
            event("MatrixMul", "E", worker, 36.0, args=detail(7, "MatrixMul")),
            *(kernel if cupti else []),
            event("ReGen 12", "B", worker, 60.0),
            event("MatrixMul", "B", worker, 61.0),
            arrow("s", "KernelLaunch", 4, worker, 62.0),
            event("MatrixMul", "B", gpu, 64.0, cat="Kernel"),
            arrow("f", "KernelLaunch", 4, gpu, 64.0),
            event("MatrixMul", "E", gpu, 70.0, cat="Kernel", args=detail(8, "MatrixMul")),
            event("MatrixMul", "E", worker, 63.0, args=detail(8, "MatrixMul")),
            event("ReGen 12", "E", worker, 63.5, args=tensor),
            event("AutoEvict", "B", worker, 71.0),
            event("AutoEvict", "E", worker, 72.0),
            event("StopStep", "i", channel, 80.0, s="t"),
            *(named("thread_name", name, pid, tid) for tid, name in enumerate(("channel", "worker", "gpu0:0"))),
        ],
        "metadata": {"localTime": "1700000000000000000"},
    }  # fmt: skip


# -- RAF: two events per op, the tid is the category; TVM: five keys


def raf() -> dict[str, Any]:
    def pair(name: str, cat: str, start: int, end: int, args: str) -> list[Event]:
        both = {"name": name, "cat": cat, "pid": 99, "tid": cat, "args": {"args_string": args}}
        return [both | {"ph": "B", "ts": start}, both | {"ph": "E", "ts": end}]

    return {
        "traceEvents": [
            *pair("raf.op.dense", "Default Stream", 100, 140, "T<768xf32>,|T<768xf16>"),
            *pair("raf.op.relu", "Stream 1", 140, 150, ""),
            *pair("InferType", "VMInstruction", 90, 95, ""),
        ],
        "displayTimeUnit": "ms",
    }


def tvm() -> dict[str, Any]:
    def event(name: str, ph: str, ts: float) -> Event:
        return {"ts": ts, "tid": 1, "pid": 1, "name": name, "ph": ph}

    return {
        "displayTimeUnit": "ns",
        "traceEvents": [
            event("tvmgen_default_fused_nn_dense", "B", 0.0),
            event("tvmgen_default_fused_nn_dense", "E", 12.5),
            event("tvmgen_default_fused_nn_relu", "B", 12.5),
            event("tvmgen_default_fused_nn_relu", "E", 14.25),
        ],
    }


# -- TensorFlow: the profiler's trace.json.gz, and the timeline of sessions


def tensorflow() -> dict[str, Any]:
    def slice_(name: str, pid: int, tid: int, ts: float, dur: float, **args: Any) -> Event:
        return {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name, "args": args}

    details = "regs:32 static_shared:0 dynamic_shared:1024 grid:80,2,1 block:256,1,1 occ_pct:100"
    return {
        "displayTimeUnit": "ns",
        "metadata": {"highres-ticks": True},
        "traceEvents": [
            named("process_name", "/device:GPU:0", 1),
            {"ph": "M", "pid": 1, "name": "process_sort_index", "args": {"sort_index": 1}},
            named("thread_name", "Stream #14(Compute)", 1, 14),
            named("thread_name", "Stream #13(MemcpyH2D)", 1, 13),
            named("thread_name", "TensorFlow Ops", 1, 90),
            named("process_name", "/host:CPU", 701),
            named("thread_name", "python", 701, 55),
            slice_("train 3", 701, 55, 1000.0, 500.0, step_num="3"),
            slice_("model/dense/MatMul:MatMul", 701, 55, 1010.0, 60.0, long_name="model/dense/MatMul:MatMul"),
            slice_("cuLaunchKernel", 701, 55, 1020.0, 8.0, correlation_id="812", context_id="$$1"),
            slice_("cuMemcpyHtoDAsync", 701, 55, 1002.0, 3.0, correlation_id="811", context_id="$$1"),
            slice_("volta_sgemm_128x64_nn", 1, 14, 1040.0, 100.5, correlation_id="812", kernel_details=details, tf_op="model/dense/MatMul"),
            slice_("MemcpyH2D", 1, 13, 1006.0, 2.0, correlation_id="811", memcpy_details="kind_src:pageable kind_dst:device size:4096 dest:0 async:1"),
            slice_("MatMul", 1, 90, 1040.0, 100.5, long_name="model/dense/MatMul:MatMul"),
            {},
        ],
    }  # fmt: skip


def tensorflow_timeline() -> dict[str, Any]:
    def op(name: str, node: str, pid: int, ts: int, dur: int) -> Event:
        args = {"name": node, "op": name}
        return {
            "name": name,
            "cat": "Op",
            "ph": "X",
            "ts": ts,
            "dur": dur,
            "pid": pid,
            "tid": 0,
            "args": args,
        }

    return {
        "traceEvents": [
            named("process_name", "/job:localhost/replica:0/task:0/device:GPU:0 Compute", 1),
            named("process_name", "/device:GPU:0/stream:all Compute", 3),
            named("process_name", "/device:GPU:0/stream:22 Compute", 5),
            named("process_name", "/device:GPU:0/memcpy Compute", 7),
            named("process_name", "/job:localhost/replica:0/task:0/device:GPU:0 Tensors", 2),
            op("Conv2D", "conv1/Conv2D", 1, 100, 30),
            op("Relu", "conv1/Relu", 1, 140, 5),
            op("Conv2D", "conv1/Conv2D", 3, 150, 400),
            op("Conv2D", "conv1/Conv2D", 5, 150, 400),
            op("MEMCPYHtoD", "edge_5_x", 5, 90, 8),
            op("MEMCPYHtoD", "edge_5_x", 7, 90, 8),
        ]
    }  # fmt: skip


def unknown() -> list[Event]:
    return [
        {"name": "outer", "ph": "X", "ts": 1.5, "dur": 10, "pid": "main", "tid": "t1"},
        {"name": "inner", "ph": "X", "ts": 2, "dur": 4.25, "pid": "main", "tid": "t1"},
        {
            "name": "request",
            "cat": "net",
            "id": "0x1",
            "ph": "b",
            "ts": 3,
            "pid": "main",
            "tid": "t1",
        },
        {
            "name": "request",
            "cat": "net",
            "id": "0x1",
            "ph": "e",
            "ts": 9,
            "pid": "main",
            "tid": "t2",
        },
    ]


ALL = {
    "mxnet": mxnet,
    "megengine": megengine,
    "raf": raf,
    "tvm": tvm,
    "tensorflow": tensorflow,
    "timeline": tensorflow_timeline,
    "unknown": unknown,
}
