"""Inputs in execution traces, beside what PyTorch itself writes of a convolution without bias."""

from __future__ import annotations

import json

import pytest
from command import bridge as command

torch = pytest.importorskip("torch")

CONV = "aten::conv2d"


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """Give PyTorch's trace, its execution trace, and ours of its trace, each of the same calls."""
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

    folder = tmp_path_factory.mktemp("conv")
    theirs, trace, ours = (folder / name for name in ("theirs.json", "trace.json", "ours.et"))
    observer = ExecutionTraceObserver().register_callback(str(theirs))
    x, weight = torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3)
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer
    ) as profiler:
        torch.nn.functional.conv2d(x, weight, stride=2)
        x.mul(0.5)
    profiler.export_chrome_trace(str(trace))
    done = command("graph", trace, "-o", ours)
    assert done.exit_code == 0, done.output
    return tuple(json.loads(path.read_text()) for path in (trace, theirs, ours))


def inputs_of(execution_trace, name):
    [node] = [node for node in execution_trace["nodes"] if node["name"] == name]
    return node["inputs"]


def test_input_n_has_the_type_n_of_pytorchs_trace(traced):
    trace, _, ours = traced
    [event] = [event for event in trace["traceEvents"] if event.get("name") == CONV]
    types = inputs_of(ours, CONV)["types"]
    assert types == event["args"]["Input type"]
    assert types[:4] == ["float", "float", "", "ScalarList"]  # the third is the bias


@pytest.mark.parametrize("name", [CONV, "aten::convolution", "aten::mul"])
def test_inputs_are_those_of_pytorchs_execution_trace(traced, name):
    _, theirs, ours = traced
    expected, made = inputs_of(theirs, name), inputs_of(ours, name)
    assert {len(side) for side in made.values()} == {len(expected["values"])}
    for position, kind in enumerate(expected["types"]):
        value = made["values"][position]
        if kind.startswith("Tensor(nullptr"):  # no bias
            assert (made["types"][position], value) == ("", "")
        elif kind.startswith("Tensor"):
            assert kind == f"Tensor({made['types'][position]})"
            assert value == ""
            for key in ("shapes", "strides"):
                assert made[key][position] == expected[key][position]
        else:
            assert value == ("" if kind == "None" else expected["values"][position])


def test_a_trace_in_the_dialect_of_pytorch_has_what_the_trace_tells_of_inputs(traced, tmp_path):
    trace, _, _ = traced
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    written = tmp_path / "again.json"
    done = command("trace", tmp_path / "trace.json", "--dialect", "torch", "-o", written)
    assert done.exit_code == 0, done.output
    keys = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    [ours] = [e for e in json.loads(written.read_text())["traceEvents"] if e.get("name") == CONV]
    [theirs] = [e for e in trace["traceEvents"] if e.get("name") == CONV]
    assert {key: ours["args"].get(key) for key in keys} == {
        key: theirs["args"][key] for key in keys
    }
