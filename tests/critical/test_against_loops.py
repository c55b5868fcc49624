"""The critical path of any records, against loops over them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from witness.critical_path import CriticalPath

from bridge.analyze.run.critical import by_critical
from bridge.analyze.run.critical.run import KIND, Run
from critical.records import Records, thread

TIME = st.integers(1, 40)
NAMES = (
    "cudaLaunchKernel cudaLaunchKernel cudaLaunchKernel cudaMemcpy cudaMemcpyAsync cudaMalloc"
    " cudaStreamSynchronize cudaDeviceSynchronize cudaEventSynchronize cudaEventRecord"
    " cudaStreamWaitEvent cudaEventQuery"
).split()
KERNELS = ("k", "k", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_SendRecv")
STREAM, EVENT = st.sampled_from([7, 8]), st.sampled_from([-1, 1, 2])
RECORDS = {"cudaStreamSynchronize": "stream", "cudaDeviceSynchronize": "context",
           "cudaEventSynchronize": "event", "cudaEventRecord": "event_record",
           "cudaStreamWaitEvent": "stream_wait"}  # fmt: skip


@st.composite
def records(draw):
    """Draw records of up to two processes; calls of a thread follow each other."""
    made = Records()
    for of in range(draw(st.integers(1, 2))):
        for nth in range(1, draw(st.integers(1, 2)) + 1):
            on = thread(of, nth)
            edges = sorted(draw(st.lists(TIME, max_size=14)))
            for start, end in zip(edges[::2], edges[1::2], strict=False):
                call(draw, made, on, of, start, end)
            for _ in range(draw(st.integers(0, 3))):
                start, end = sorted((draw(TIME), draw(TIME)))
                made.range(on, start, end, draw(st.sampled_from(["a", "b"])))
            for _ in range(draw(st.integers(0, 2))):
                start, end = sorted((draw(TIME), draw(TIME)))
                made.system.append({"thread": on, "start": start, "end": end, "name": "poll"})
        for _ in range(draw(st.integers(0, 2))):
            activity(draw, made, 0, of, draw(TIME))
    return made


def call(draw, made, on, of, start, end):
    name = draw(st.sampled_from(NAMES))
    number = made.call(on, start, end, name)
    if name in RECORDS and draw(st.integers(0, 3)):
        stream = -1 if name in ("cudaDeviceSynchronize", "cudaEventSynchronize") else draw(STREAM)
        event = draw(EVENT) if "Event" in name else -1
        made.wait(number, RECORDS[name], stream=stream, event=event, of=of)
    if name.startswith(("cudaLaunch", "cudaMemcpy")):
        for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
            begin = max(1, start + draw(st.integers(-2, 12)))
            activity(draw, made, number, of, begin, "memcpy" if "Memcpy" in name else "kernel")


def activity(draw, made, number, of, start, kind="kernel"):
    name = draw(st.sampled_from(KERNELS)) if kind == "kernel" else "[CUDA memcpy]"
    copy_kind = draw(st.sampled_from([1, 2])) if kind == "memcpy" else -1
    end = start + draw(st.integers(-1 if kind == "kernel" else 0, 9))
    made.activity(
        number, start, end, draw(STREAM), kind=kind, name=name, of=of, copy_kind=copy_kind
    )


@pytest.mark.slow
@given(records())
def test_any_records(made):
    if not (made.calls or made.activities or made.ranges):
        return
    attributed = made.attributed()
    run, table = Run.of(attributed), by_critical(attributed).to_pandas()
    truth = CriticalPath(attributed, run.first, run.last)
    assert table["time_ns"].sum() == run.span
    if (path := truth.path()) is not None:
        ours = {(row.kind, row.op): row.time_ns for row in table.itertuples()}
        assert ours == path
    for kind, name in set(truth.label.values()):
        points = run.points_of(KIND[kind], run.names.index(name))
        assert run.span_without(points) == truth.without((kind, name)), (kind, name)
