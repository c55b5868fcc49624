"""What is known of an op's FLOPs and bytes, and what is not: small reports, in the inner loop."""

from __future__ import annotations

import json

from made_reports import PUSH_POP, Made, thread

from bridge.analyze.cost.flops import Costs
from bridge.report import load


def table(folder, *ranges, kernels=()):
    """Give the columns of FLOPs by op, of ranges (text, from, to, what it says) and of kernels by their launches."""
    made = Made()
    for text, start, end, said in ranges:
        details = {"json": json.dumps(said)} if said else {}
        made.annotation(PUSH_POP, start, end, text=text, thread=thread(100), **details)
    for at in kernels:
        made.kernel("k", at, 100, at + 5_000, at + 5_100)
    joined = load(made.written(folder / "made.sqlite"))
    return joined.by("op", columns="flops", costs=Costs()).set_index("op")


def test_an_op_of_which_nothing_is_said_has_no_flops_with_work_or_without(tmp_path):
    found = table(
        tmp_path,
        ("said", 0, 90, {"flops": 5_000}),
        ("bare", 100, 190, None),
        ("working", 200, 290, None),
        ("around", 300, 390, None),
        ("nothing", 310, 320, {"flops": 0}),
        kernels=(50, 250, 350),
    )
    assert found["flop"].to_dict() == {
        "said": 5_000,
        "bare": -1,
        "working": -1,
        "around": -1,  # has work of its own, of which the op in it says nothing
        "nothing": 0,
    }
    assert found["uncounted"].to_dict() == {
        "said": 0,
        "bare": 0,
        "working": 1,
        "around": 1,
        "nothing": 0,
    }


def test_bytes_that_no_call_can_move_are_not_known(tmp_path):
    said = {"many": (1 << 62) - 512, "too many": 1 << 62, "less than none": -1}
    calls = [
        (op, 100 * n, 100 * n + 90, {"flops": 1, "bytes": moved})
        for n, (op, moved) in enumerate(said.items())
    ]
    found = table(tmp_path, *calls, kernels=(50, 150, 250))
    assert found["moved_bytes"].to_dict() == {"many": said["many"], "too many": -1, "less than none": -1}  # fmt: skip
