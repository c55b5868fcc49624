"""A training on the CPU with work of a GPU that is made up, as Cuspy writes it: ``python tests/perfetto/written_by_torch.py FOLDER``.

It needs PyTorch 2.15, and no GPU: the ops are those of a real training, the records of CUDA are columns as
Cuspy collects them, and PyTorch's own exporter writes both, once as ``cuspy.pftrace`` and once as
``cuspy.json.gz``. The files in ``data`` are what PyTorch 2.15.0+cu132 wrote.
"""

import json
import sys
import types
from enum import Enum
from pathlib import Path

import numpy as np
import torch

# CUPTI's numbers of calls, as far as they are used here.
RUNTIME = Enum("Runtime", {
    "cudaDeviceSynchronize_v3020": 165, "cudaLaunchKernel_v7000": 211, "cudaGetDevice_v3020": 17,
    "cudaMemcpyAsync_v3020": 41, "cudaMemsetAsync_v3020": 51, "cudaGraphLaunch_v10000": 311,
})  # fmt: skip
DRIVER = Enum("Driver", {"cuLaunchKernelEx": 652})

STEPS, NODES, GRAPH = 2, 4, 7
US = 1000
KERNEL = dict.fromkeys(
    (
        "static_shared_memory dynamic_shared_memory priority queued channel channel_type"
        " graph_id graph_node_id"
    ).split(),
    0,
)
PLACE = {"device_id": 0, "context_id": 1, "stream_id": 7}


def exporter():
    """Return Cuspy's exporter; it imports CUPTI's Python package for the numbers of calls alone."""
    numbers = types.ModuleType("cupti.cupti")
    numbers.Runtime_api_trace_cbid, numbers.Driver_api_trace_cbid = RUNTIME, DRIVER
    package = types.ModuleType("cupti")
    package.cupti = numbers
    sys.modules |= {"cupti": package, "cupti.cupti": numbers}
    import importlib.util

    path = Path(torch.__file__).parent / "profiler/_cuspy/trace.py"
    described = importlib.util.spec_from_file_location("cuspy_trace", path)
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module.merge_trace_window_into_chrome_trace


def train(path):
    """Trace a training on the CPU."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        for _ in range(STEPS):
            with torch.profiler.record_function("loss, ü"):
                loss = model(torch.ones(32, 8)).pow(2).mean()
            torch.cat([loss[None], loss[None]])
            loss.backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    trace = json.loads(path.read_text())
    for private in ("host_name", "trace_id"):
        trace.pop(private, None)
    path.write_text(json.dumps(trace))
    return trace


class Window:
    """Records of CUDA, as Cuspy collects them: a list of rows of each kind."""

    def __init__(self):
        self.rows = {}
        self.correlation = 100

    def add(self, kind, **row):
        self.rows.setdefault(kind, []).append(row)

    def call(self, number, start, thread, kind="cuda_runtime", op=0, length=2 * US):
        """Add a call, and return its correlation id; ``op`` is the `External id` of the op that makes it."""
        self.correlation += 1
        self.add(kind, start_ns=start, end_ns=start + length, cbid=number.value, process_id=thread[0],
                 thread_id=thread[1], correlation_id=self.correlation)  # fmt: skip
        if op:
            self.add("external_correlation", correlation_id=self.correlation, external_id=op, user_external_id=0)  # fmt: skip
        return self.correlation

    def kernel(self, name, start, length, correlation, **more):
        grid = {"grid_x": 8, "grid_y": 2, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
        self.add("kernel", **KERNEL | PLACE | grid | {"annotation": None, "registers_per_thread": 32} | more,
                 name=name, start_ns=start, end_ns=start + length, correlation_id=correlation)  # fmt: skip

    def columns(self):
        def column(values):
            has_texts = any(value is None or isinstance(value, str | dict) for value in values)
            return np.array(values, object if has_texts else np.int64)

        return {
            kind: {key: column([row[key] for row in rows]) for key in rows[0]}
            for kind, rows in self.rows.items()
        }


NAMES = {"aten::addmm": "void cutlass::gemm<float, 128>(float*, int)", "aten::mm": "ampere_sgemm_32x32", "aten::add_": "add_"}  # fmt: skip


def window(trace):
    """Return records of CUDA that fit a trace: kernels of some ops, then replays of a graph."""
    made, base = Window(), trace["baseTimeNanoseconds"]
    ops = [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
    at = 0
    for op in sorted(ops, key=lambda op: op["ts"]):
        if op["name"] not in NAMES:
            continue
        start = base + round((op["ts"] + op["dur"]) * US) - 200  # behind all ops in it
        driver = op["name"] == "aten::mm"
        number, kind = (DRIVER.cuLaunchKernelEx, "cuda_driver") if driver else (RUNTIME.cudaLaunchKernel_v7000, "cuda_runtime")  # fmt: skip
        correlation = made.call(
            number,
            start,
            (op["pid"], 77),
            kind,
            op["args"]["External id"],
            100,
        )
        at = max(at, start) + 5 * US
        made.kernel(NAMES[op["name"]], at, 7 * US + correlation, correlation, dynamic_shared_memory=1024)  # fmt: skip
        at += 10 * US
    replays(made, at, (ops[0]["pid"], ops[0]["tid"]))
    return made


def replays(made, at, thread):
    said = [
        {"name": "qkv", "module": "layers.0.attn"},
        {"name": "attention"},
        {"name": "attention", "autograd_phase": "backward"},
        None,
    ]
    for _ in range(2):
        launch = made.call(RUNTIME.cudaGraphLaunch_v10000, at, thread)
        node = GRAPH << 32
        for place in range(NODES):
            at += 5 * US
            made.kernel(f"node_{place}", at, 4 * US, launch, graph_id=GRAPH, graph_node_id=node | place, annotation=said[place])  # fmt: skip
        in_graph = PLACE | {"correlation_id": launch, "graph_id": GRAPH, "annotation": None}
        made.add("graph_host_node", **in_graph, start_ns=at + 6 * US, end_ns=at + 7 * US, graph_node_id=node | NODES,
                 process_id=thread[0], thread_id=99, host_fn="my_callback", host_fn_addr=4096)  # fmt: skip
        made.add("graph_event_node", **in_graph, start_ns=at + 8 * US, end_ns=at + 8 * US, graph_node_id=node | NODES + 1)  # fmt: skip
        at += 10 * US
    copy = made.call(RUNTIME.cudaMemcpyAsync_v3020, at, thread)
    fill = made.call(RUNTIME.cudaMemsetAsync_v3020, at + 3 * US, thread)
    made.call(RUNTIME.cudaGetDevice_v3020, at + 6 * US, thread)  # not exported
    wait = made.call(RUNTIME.cudaDeviceSynchronize_v3020, at + 9 * US, thread)
    common = PLACE | dict.fromkeys(("flags", "channel", "channel_type", "graph_id", "graph_node_id"), 0)  # fmt: skip
    common |= {"annotation": None}
    made.add("gpu_memcpy", **common, start_ns=at + 5 * US, end_ns=at + 9 * US, correlation_id=copy, bytes=4096,
             copy_kind=2, src_kind=3, dst_kind=2)  # fmt: skip
    made.add("gpu_memset", **common, start_ns=at + 10 * US, end_ns=at + 11 * US, correlation_id=fill, bytes=64,
             value=0, memory_kind=3)  # fmt: skip
    sync = {"context_id": 1, "cuda_event_sync_id": 0}
    made.add("cuda_sync", **sync, start_ns=at + 9 * US, end_ns=at + 11 * US, sync_type=4, stream_id=2**32 - 1,
             correlation_id=wait, cuda_event_id=2**32 - 1)  # fmt: skip
    made.add("cuda_sync", **sync, start_ns=at + 12 * US, end_ns=at + 13 * US, sync_type=2, stream_id=7,
             correlation_id=wait, cuda_event_id=5)  # fmt: skip
    made.add("overhead", start_ns=at, end_ns=at + US, name="Resource")


def main(folder):
    cpu = folder / "cpu.json"
    records = window(train(cpu))
    write = exporter()
    for name in ("cuspy.pftrace", "cuspy.json.gz"):
        write(str(cpu), str(folder / name), {"columns": records.columns()})
    cpu.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
