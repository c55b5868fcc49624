"""Against numbers that PyTorch 2.13 said itself of a small training step: with_flops, FlopCounterMode, and its trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.analyze.cost.flops import Costs
from bridge.knowledge.formulas import Call, flops
from bridge.report import load

DATA = Path(__file__).with_name("data")
TRACE = DATA / "small-training.pt.trace.json.gz"
SAID = json.loads((DATA / "counted-by-pytorch.json").read_text(encoding="utf-8"))
SEVEN = {f"aten::{op}" for op in "mm addmm bmm baddbmm conv2d mul add".split()}


def call(said: dict) -> Call:
    arguments = said["arguments"]
    if isinstance(arguments, list):
        arguments = {str(n): value for n, value in enumerate(arguments) if value not in (None, "")}
    shapes = tuple(None if shape is None else tuple(shape) for shape in said["shapes"])
    outputs = tuple(None if one is None else tuple(one) for one in said.get("outputs", ()))
    return Call(said["op"], shapes, (), arguments, outputs)


def test_every_call_has_what_with_flops_says():
    counted = [said for said in SAID["with_flops"] if said["flops"]]
    assert {said["op"] for said in counted} == SEVEN
    for said in SAID["with_flops"]:
        assert (flops(call(said), "torch") or 0) == said["flops"], said


def test_every_call_has_what_flop_counter_mode_says():
    calls = SAID["flopcounter"]["calls"]
    assert len(calls) > 15
    for said in calls:
        assert flops(call(said), "flopcounter") == said["flops"], said
    assert sum(said["flops"] for said in calls) == SAID["flopcounter"]["total"]


def test_grouped_gradients_are_right_here_and_theirs_as_theirs():
    """Each gradient multiplies as often as the forward pass; theirs counts the weight's once per group."""
    [said] = [
        said
        for said in SAID["flopcounter"]["calls"]
        if said["op"] == "aten::convolution_backward" and said["arguments"]["9"] == 4
    ]
    forward = 2 * 2 * 8 * 8 * 8 * 8 * 9 // 4  # 2·N·P·Q·K·C·R·S/g
    assert flops(call(said)) == 2 * forward
    assert said["flops"] == flops(call(said), "flopcounter") == (1 + 4) * forward


def test_a_trace_has_in_all_what_flop_counter_mode_says():
    table = load(TRACE).by("op", columns="flop,flop_once", costs=Costs("flopcounter"))
    assert table["flop_once"].clip(lower=0).sum() == SAID["flopcounter"]["total"]
    total = table.set_index("op")["flop"]
    ops = {f"aten::{op.partition('.')[2]}": n for op, n in SAID["flopcounter"]["ops"].items()}
    assert {op: total[op] for op in ops} == ops


@pytest.mark.slow
def test_a_trace_has_what_with_flops_says_by_op():
    truth: dict[str, int] = {}
    for row in SAID["rows"]:
        truth[row["op"]] = truth.get(row["op"], 0) + row["flops"]
    table = load(TRACE).by("op", columns="flop_once", costs=Costs("torch")).set_index("op")
    for op in SEVEN:
        assert table.loc[op, "flop_once"] == truth[op], op


@pytest.mark.slow
def test_convolutions_without_recorded_strides_are_as_large_as_their_gradients():
    """Kineto's shapes alone leave the output open; the backward call has it."""
    table = load(TRACE).by("op", columns="flop,formula").set_index("op")
    forward = sum(
        said["flops"] for said in SAID["flopcounter"]["calls"] if said["op"] == "aten::convolution"
    )
    assert table.loc["aten::convolution", "flop"] == forward
    assert "as in the backward pass" in table.loc["aten::convolution", "formula"]


@pytest.mark.parametrize("convention", ["megengine", "module_stats", "pyprof"])
def test_others_count_products_too(convention):
    mm = Call("aten::mm", ((3, 5), (5, 7)), ("float", "float"))
    per_multiply_add = 1 if convention == "module_stats" else 2
    assert flops(mm, convention) == per_multiply_add * 3 * 5 * 7
