"""What recordings cost: printed (pytest -s); the limits are generous, for busy machines."""

from __future__ import annotations

import sys
import time
from timeit import Timer

import numpy as np
import pytest
from attached import Null

from bridge import nvtx_op
from bridge.annotate import emit
from bridge.annotate.recording.sink import File
from bridge.annotate.recording.writer import Writer
from bridge.annotate.stack import CALL_ID_BASE
from bridge.importers import frames
from bridge.importers.capture import Capture, Facts
from bridge.importers.recording.lines import read_recording
from bridge.importers.recording.read import with_details

pytestmark = pytest.mark.slow

MILLION = 1_000_000
CALLS = 2_000


def function(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a


@pytest.fixture
def writer(tmp_path):
    writer = Writer(File(tmp_path / "r.jsonl"))
    previous, reason = emit.state.emitter, emit.state.reason
    emit.use(Null())
    emit.state.writer = writer
    yield writer
    emit.state.writer = None
    emit.use(previous, reason)


@pytest.mark.racy("costs are measured by the clock")
def test_shapes_of_two_arrays_cost_microseconds_and_few_bytes(writer) -> None:
    names = {"bare": nvtx_op(function), "shaped": nvtx_op(shapes=True)(function)}
    names |= {"a": np.ones((2, 3)), "b": np.ones((3, 4))}
    clock = time.thread_time  # other programs may take the processor
    bare, shaped = (
        Timer(f"{name}(a, b)", timer=clock, globals=names) for name in ("bare", "shaped")
    )
    pairs = [(bare.timeit(CALLS), shaped.timeit(CALLS)) for _ in range(30)]
    least = [min(cost) / CALLS * 1e9 for cost in zip(*pairs, strict=True)]
    writer.close()
    bytes_ = writer.sink.path.stat().st_size / (30 * CALLS)
    sys.stdout.write(
        f"\nan op {least[0]:.0f} ns, with shapes {least[1]:.0f} ns; {bytes_:.1f} bytes per call\n"
    )
    assert least[1] - least[0] < 10_000
    assert bytes_ < 16


@pytest.mark.racy("costs are measured by the clock")
def test_a_million_calls_are_read_and_joined_in_seconds(writer) -> None:
    for n in range(MILLION):
        key = n % 5_000
        if not writer.note_alike(CALL_ID_BASE | n, key):
            writer.note(
                CALL_ID_BASE | n, key, {"shapes": [[n, 3], [3, 4]], "dtypes": ["float32"] * 2}
            )
    writer.close()
    began = time.perf_counter()
    found = read_recording(writer.sink.path)
    reading = time.perf_counter() - began
    shuffled = np.random.default_rng(1).permutation(MILLION)
    columns = {
        "process": np.full(MILLION, found.process),
        "payload": shuffled | CALL_ID_BASE,
        "json": frames.Names(np.zeros(MILLION, np.int64), [""]),
        "kind": frames.Names(np.zeros(MILLION, np.int64), frames.RANGE_KINDS),
    }
    others = {kind: frames.FRAMES[kind]() for kind in frames.FRAMES}
    report = Capture(("r",), (Facts(),), **others | {"ranges": frames.Ranges(columns)})
    began = time.perf_counter()
    json = with_details(report, [found]).ranges["json"]
    sys.stdout.write(f"\nread in {reading:.2f} s, joined in {time.perf_counter() - began:.2f} s\n")
    assert (
        json[17]
        == f'{{"shapes": [[{shuffled[17] % 5_000}, 3], [3, 4]], "dtypes": ["float32", "float32"]}}'
    )
    assert len(np.unique(json.codes)) == 5_000
    assert reading < 10
