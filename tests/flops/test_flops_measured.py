"""What the GPU counted of calls comes before what they say: in arrays, without a report of Nsight Compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from join.programs import Program, attributed
from witness.attribution import Activity, Call, Range

from bridge.analyze.cost.flops.calls import RangeCosts
from bridge.analyze.cost.flops.throughput import MEASURED, with_measured
from bridge.importers.ncu.metrics import Kernel, Value, metrics_of
from bridge.knowledge.hardware import DTYPES

PROCESS = 7 << 24
MAIN = PROCESS | 1
FP16, FP32 = DTYPES.index("fp16"), DTYPES.index("fp32")


def counted(add: int, moved: int | None = None) -> Kernel:
    """A kernel of so many additions of fp32, and so many bytes moved; of neither where it is not known."""
    numbers = {f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": 0 for op in ("fmul", "ffma")}
    numbers["smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"] = add
    if moved is not None:
        numbers["dram__bytes.sum"] = moved
    return Kernel("k", "k", metrics={name: Value(float(n), "") for name, n in numbers.items()})


def of_calls(*kernels: tuple[Kernel, ...]) -> RangeCosts:
    """Give what calls cost, each of which says 8 FLOPs of fp16 and 16 bytes and has some kernels."""
    ranges, calls, ran = [], [], []
    for n, some in enumerate(kernels):
        ranges.append(Range(0, PROCESS, MAIN, 10 * n, 10 * n + 9, f"op {n}"))
        for place in range(len(some)):
            calls.append(Call(0, PROCESS, MAIN, len(calls) + 1, 10 * n + 1 + place, 10 * n + 2))
            ran.append(Activity(0, PROCESS, len(calls), 100 * len(calls), 100 * len(calls) + 9, "kernel", "k"))  # fmt: skip
    joined = attributed(Program(ranges, calls, ran, [one.op for one in ranges]))
    metrics = metrics_of([one for some in kernels for one in some])
    joined = replace(joined, capture=replace(joined.capture, metrics=metrics))
    many = len(ranges)
    said = RangeCosts(np.full(many, 8.0), np.full(many, 16.0), np.zeros(many, np.int64), np.full(many, FP16), ["said"])  # fmt: skip
    return with_measured(joined, said)


def test_a_call_costs_what_all_its_kernels_do_or_else_what_it_says():
    unknown = Kernel("k", "k")
    found = of_calls((counted(100, 5), counted(20, 7)), (counted(100, 5), unknown), (unknown,), ())
    assert found.flops.tolist() == [120, 8, 8, 8]
    assert found.bytes.tolist() == [12, 16, 16, 16]
    assert [found.formulas[code] for code in found.formula] == [MEASURED, "said", "said", "said"]
    assert found.dtype.tolist() == [FP32, FP16, FP16, FP16]


def test_a_call_whose_kernels_compute_nothing_keeps_the_dtype_that_it_says():
    found = of_calls((counted(100),), (counted(0),))
    assert found.flops.tolist() == [100, 0]
    assert found.dtype.tolist() == [FP32, FP16]
