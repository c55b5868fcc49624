"""TensorBoard's PyTorch plugin on the memory in our traces: peaks, curves, and bytes per operator as ours."""

from pathlib import Path

import pytest

import bridge
from bridge.analyze.cost.memory import MemoryUsage, by_op, summary

TRAINING = Path(__file__).parents[1] / "memory" / "data" / "training.pt.trace.json.gz"


def test_tensorboards_plugin_sees_the_same_memory(tmp_path, tool_says):
    joined = bridge.load(TRAINING)
    held = MemoryUsage.of(joined.attributed)
    [file] = joined.export_tensorboard(tmp_path)
    found = tool_says("in_tensorboard_memory.py", file)
    assert found["peaks"] == {"CPU -1": summary(held)["peak_bytes"][0]}
    assert [total for total, _, _ in found["curve"]] == held.used.tolist()
    assert [size for _, _, size in found["curve"]] == held.change.tolist()
    ours = by_op(held).to_pandas().set_index("op")
    ops = found["ops"]["CPU"]
    compared = 0
    for op, (_, allocated, count, _, total, total_count, _) in ops.items():
        if op.startswith("aten::"):
            assert [allocated, count] == ours.loc[
                op, ["allocated_bytes", "allocations"]
            ].tolist(), op
            assert [total, total_count] == ours.loc[
                op, ["total_allocated_bytes", "total_allocations"]
            ].tolist(), op
            compared += 1
    assert compared > 20
    assert sum(allocated for _, allocated, *_ in ops.values()) == pytest.approx(
        ours["allocated_bytes"].sum(), rel=0.01
    )
