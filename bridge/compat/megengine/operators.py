"""The operators that profile_analyze lists: from a report, or from a profile of a static graph.

A table has a row per call, with the columns ``time`` (ns), type, name, dtype (of the inputs),
computation (FLOPs) and memory (bytes of inputs and outputs), both -1 if unknown, in_shapes,
out_shapes and count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bridge.analyze.cost.flops import RangeCosts
from bridge.analyze.tables.range_columns import first_slices
from bridge.analyze.tables.ranges import by_call
from bridge.compat.calls import Call, RecordedEvents
from bridge.importers.arrays import lookup
from bridge.importers.errors import NotAReport
from bridge.knowledge.formulas import Call as CostCall
from bridge.knowledge.formulas import bytes_moved, flops
from bridge.knowledge.formulas.call import plain_dtype
from bridge.knowledge.formulas.conventions import OURS
from bridge.report import Report

SIDES = DEVICE, HOST = ("device", "host")
ENDS = END, KERNEL_WAIT = ("end", "kern")  # time of the work; how long it waited before
NONE = -1
NS = 1_000_000_000
COLUMNS = (
    "time", "type", "name", "dtype", "computation", "memory", "in_shapes", "out_shapes", "count",
)  # fmt: skip
# Bytes of an element, by dtypes of PyTorch and MegEngine.
SIZES = {
    **dict.fromkeys("float64 double int64 long complex64".split(), 8),
    **dict.fromkeys("float32 float int32 int".split(), 4),
    **dict.fromkeys("float16 half bfloat16 int16 short".split(), 2),
    **dict.fromkeys("int8 uint8 byte char bool quantizeds8 quint8".split(), 1),
    "complex128": 16,
}

# PyTorch's names of MegEngine's types of operators, for --type.
TYPES = {
    "ConvolutionForward": ("aten::convolution", "aten::conv2d", "aten::cudnn_convolution"),
    "ConvolutionBackwardData": ("aten::convolution_backward",),
    "ConvolutionBackwardFilter": ("aten::convolution_backward",),
    "MatrixMul": ("aten::mm", "aten::addmm", "aten::linear"),
    "MatrixMulForward": ("aten::mm", "aten::addmm", "aten::linear"),
    "BatchedMatrixMul": ("aten::bmm", "aten::baddbmm"),
    "Concat": ("aten::cat",),
    "Dimshuffle": ("aten::t", "aten::transpose", "aten::permute"),
    "Reduce": ("aten::sum", "aten::mean", "aten::amax", "aten::amin", "aten::prod"),
    "PoolingForward": ("aten::max_pool2d_with_indices", "aten::avg_pool2d"),
    "Copy": ("aten::copy_", "aten::_to_copy"),
}


def type_names(types: Iterable[str]) -> set[str]:
    """Return types of operators with PyTorch's names of MegEngine's types."""
    return {name for type_ in types for name in (type_, *TYPES.get(type_, ()))}


# -- Operators of a report


def report_operators(report: Report, side: str, end: str) -> tuple[pd.DataFrame, int]:
    """Return the operators of a report, and the time of all of them in ns.

    In a report without work of a device, the CPU is the device: its times are those of the host.
    """
    calls = by_call(report.attributed)
    on_host = side == HOST or not len(report.capture.activities)
    time = "cpu_self_ns" if on_host else "queue_ns" if end == KERNEL_WAIT else "gpu_self_ns"
    firsts = first_slices(report.attributed)
    computation, memory = _costs(report)
    table = pd.DataFrame(
        {
            "time": calls[time],
            "type": calls["op"],
            "name": calls["path"],
            "dtype": calls["dtype"],
            "computation": computation[firsts],
            "memory": memory[firsts],
            "in_shapes": calls["shape"],
            "out_shapes": calls["output_shape"],
            "count": 1,
        }
    )
    total = int(table["time"].sum())
    return (table if on_host else table[calls["gpu_self_ns"] > 0]), total


def _costs(report: Report) -> tuple[Any, Any]:
    """Return FLOPs and bytes per range: as recorded, by MegEngine's formulas, or else by ours.

    Bytes without a formula are those of the inputs and outputs, if their shapes and dtypes are
    known.
    """
    own = RangeCosts.of(report.attributed, "megengine", use_recorded=True)
    ours = RangeCosts.of(report.attributed, OURS)
    known = np.where(own.flops == NONE, ours.flops, own.flops)
    column = report.capture.ranges.json
    sizes = np.array([_tensor_bytes(text) for text in column.texts], np.float64)
    of_tensors = lookup(sizes, column.codes)
    return known, np.where(own.bytes == NONE, of_tensors, own.bytes)


def _tensor_bytes(details: str) -> int:
    """Return the bytes of inputs and outputs in the details of a call, -1 if one is unknown."""
    try:
        fields = json.loads(details) if details.startswith("{") else {}
    except (ValueError, RecursionError):
        return NONE
    if not isinstance(fields, dict) or not fields.get("output_shapes"):
        return NONE
    try:
        return sum(_side_bytes(fields, prefix) for prefix in ("", "output_"))
    except (TypeError, KeyError, ValueError):
        return NONE


def _side_bytes(fields: Mapping[str, Any], prefix: str) -> int:
    shapes, dtypes = fields[f"{prefix}shapes"], fields[f"{prefix}dtypes"]
    pairs = zip(shapes, dtypes, strict=True)
    return sum(
        prod(shape) * SIZES[plain_dtype(dtype).lower()]
        for shape, dtype in pairs
        if shape is not None
    )


# -- Operators of a profile: the JSON of `trace(profiling=True).get_profile()`


PROFILER, GRAPH, FOOTPRINT = "profiler", "graph_exec", "opr_footprint"
CPU = "cpu0:0"  # the device of ops on the CPU


def read_profile(path: Path) -> dict[str, Any] | None:
    """Return the profile in a file, None if it is another file. Raises OSError."""
    with path.open("rb") as file:
        if file.read(1) != b"{":
            return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return None
    return (
        content if isinstance(content, dict) and PROFILER in content and GRAPH in content else None
    )


def profile_operators(profile: Mapping[str, Any], side: str, end: str) -> tuple[pd.DataFrame, int]:
    """Return the operators of a profile, and the time of all of them in ns.

    The time of an operator is the longest one of its devices or threads. Raises NotAReport if the
    profile is damaged.
    """
    try:
        rows = list(_profile_rows(profile, side, end))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotAReport(f"the profile is damaged ({type(error).__name__}: {error})") from error
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table, int(table["time"].sum())


def _profile_rows(profile: Mapping[str, Any], side: str, end: str) -> Iterator[tuple[Any, ...]]:
    graph, profiler = profile[GRAPH], profile[PROFILER]
    for number, places in profiler[side].items():
        operator, footprint = graph["operator"][number], profiler[FOOTPRINT].get(number, {})
        time = max((place[end] - place["start"] for place in places.values()), default=0.0)
        yield (
            round(time * NS),
            operator["type"],
            operator["name"],
            ", ".join(_dtypes(graph["var"], operator.get("input", ()))),
            _count(footprint.get("computation")),
            _count(footprint.get("memory")),
            _shapes(footprint.get("in_shapes")),
            _shapes(footprint.get("out_shapes")),
            1,
        )


def _count(value: Any) -> float:
    return NONE if value is None else float(value)


def _shapes(shapes: Any) -> str:
    return json.dumps(shapes) if shapes is not None else ""


def _dtypes(variables: Mapping[str, Any], inputs: Iterable[Any]) -> Iterator[str]:
    for number in inputs:
        layout = variables.get(str(number), {}).get("mem_plan", {}).get("layout", {})
        if "dtype" in layout:
            yield str(layout["dtype"])


def profile_of(recorded: RecordedEvents, *, on_cpu: bool) -> dict[str, Any]:
    """Return recorded ops as the profile of a static graph, with times in seconds.

    ``on_cpu`` is whether all ops ran on the CPU, where the host's times are those of the device.
    Without it the device is empty: its times are unknown.
    """
    ops = [call for call in recorded.calls if "::" in call.name]
    var: dict[str, Any] = {}
    operators, host, footprints = {}, {}, {}
    for number, call in enumerate(ops):
        key = str(number)
        start, end = ((time - recorded.first) / NS for time in (call.start, call.end))
        place = {"start": start, "kern": start, "end": end}
        host[key] = {recorded.threads.get(call.thread, str(call.thread)): place}
        operators[key] = {
            "name": f"{call.name}[{number}]",
            "type": call.name,
            "input": _variables(var, call, ""),
            "output": _variables(var, call, "output_"),
        }
        footprints[key] = _footprint(call)
    device = (
        {key: {CPU: next(iter(places.values()))} for key, places in host.items()} if on_cpu else {}
    )
    return {
        GRAPH: {"var": var, "operator": operators},
        PROFILER: {"device": device, "host": host, FOOTPRINT: footprints, "opr_internal_pf": {}},
    }


def _tensors(call: Call, prefix: str) -> Iterator[tuple[list[int], str]]:
    shapes, dtypes = (call.details.get(f"{prefix}{what}") or [] for what in ("shapes", "dtypes"))
    for shape, dtype in zip(shapes, dtypes, strict=False):
        if shape is not None:
            yield shape, dtype


def _variables(var: dict[str, Any], call: Call, prefix: str) -> list[int]:
    """Add the tensors of a call to the variables; return their numbers."""
    first = len(var)
    for shape, dtype in _tensors(call, prefix):
        var[str(len(var))] = {"mem_plan": {"layout": {"shape": shape, "dtype": dtype}}}
    return list(range(first, len(var)))


def _footprint(call: Call) -> dict[str, Any]:
    details, inputs, outputs = (
        call.details,
        list(_tensors(call, "")),
        list(_tensors(call, "output_")),
    )
    arguments = details.get("args")
    cost = CostCall(
        name=call.name,
        shapes=tuple(tuple(s) if s is not None else None for s in details.get("shapes", ())),
        dtypes=tuple(details.get("dtypes", ())),
        arguments=arguments if isinstance(arguments, dict) else {},
        outputs=tuple(
            tuple(s) if s is not None else None for s in details.get("output_shapes", ())
        ),
        output_dtypes=tuple(details.get("output_dtypes", ())),
    )
    computation = flops(cost, "megengine")
    size = _tensor_bytes(json.dumps(dict(details)))
    memory = bytes_moved(cost) if size == NONE else size
    return {
        "computation": flops(cost) if computation is None else computation,
        "memory": memory,
        "in_shapes": [shape for shape, _ in inputs],
        "out_shapes": [shape for shape, _ in outputs],
        "param": cost.arguments,
    }
