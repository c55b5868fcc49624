"""Which columns there are of what PyTorch writes of single calls: those of which any call says something."""

from __future__ import annotations

from join.trainings import training
from witness.attribution import Range

from bridge.analyze.core.call_details import arguments

PROCESS = 7 << 24
SIZES, INPUTS = ", sizes = [[2, 3], []]", ", input_op_ids = [(1,0)]"


def table(*said):
    """Give the arguments of calls of one op, one after another."""
    calls = [
        (Range(0, PROCESS, PROCESS | 1, 10 * n, 10 * n + 5, ""), f"aten::mm{text}")
        for n, text in enumerate(said)
    ]
    return arguments(training(calls).attributed())


def test_what_any_call_says_is_a_column_empty_where_a_call_does_not():
    found = table(f", seq = 7, op_id = 3{SIZES}{INPUTS}", "", ", op_id = 4")
    assert found.to_pandas().to_dict("list") == {
        "seq": [7, -1, -1],
        "op_id": [3, -1, 4],
        "sizes": ["[[2, 3], []]", "", ""],
        "input_op_ids": ["[(1,0)]", "", ""],
    }


def test_what_no_call_says_is_no_column():
    assert list(table(f", seq = 7{SIZES}", "")) == ["seq", "sizes"]
    assert list(table(f", op_id = 7{INPUTS}", "")) == ["op_id", "input_op_ids"]
    assert list(table("", "")) == []
