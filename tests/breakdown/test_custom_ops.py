"""Parts of custom operators: a table of a made report, against a plain loop over its ranges."""

from __future__ import annotations

from collections import defaultdict

import pytest
from made_reports import PUSH_POP, Made, thread

from bridge.report import load

CUSTOM, OTHER = 7, 8  # ids of categories
RANGES = [  # name, start, end, category, number of the thread
    ("MyAddOne", 100, 200, CUSTOM, 1),
    ("aten::add", 110, 150, None, 1),
    ("inner", 120, 130, OTHER, 1),
    ("MyAddOne", 300, 340, CUSTOM, 1),
    ("Nested", 310, 330, CUSTOM, 1),
    ("aten::add", 312, 320, None, 1),
    ("aten::add", 400, 420, None, 1),
    ("aten::add", 110, 150, None, 2),  # at the same time, on a thread without a custom operator
]
KERNELS = [(125, 10), (160, 20), (315, 30), (325, 40), (410, 50)]  # time of the launch, length


def truth() -> dict[str, tuple[int, int, int]]:
    """Give calls, host time and GPU time of each part, both without those of ranges inside."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])

    def around(at: int, number: int) -> list[tuple]:
        here = [r for r in RANGES if r[4] == number and r[1] <= at < r[2]]
        return sorted(here, key=lambda r: (r[1], -r[2]))

    def part(stack: list[tuple]) -> str:
        custom = [place for place, r in enumerate(stack) if r[3] == CUSTOM]
        if not custom:
            return "(no custom op)"
        inside = len(stack) - 1 > custom[-1]
        return f"{stack[custom[-1]][0]}::{stack[-1][0] if inside else 'pure_python'}"

    for name, start, end, _, number in RANGES:
        stack = [r for r in around(start, number) if (r[1], -r[2]) <= (start, -end)]
        assert stack[-1][0] == name
        found[part(stack)][0] += 1
        for at in range(start, end):
            found[part(stack)][1] += around(at, number)[-1][1:3] == (start, end)
    for at, length in KERNELS:
        found[part(around(at, 1))][2] += length
    return {name: tuple(figures) for name, figures in found.items()}


@pytest.fixture
def custom_ops(tmp_path):
    made = Made()
    for number, name in ((CUSTOM, "custom_op"), (OTHER, "io")):
        made.annotation(33, 1, None, text=name, category=number, thread=thread(100))
    for name, start, end, category, number in RANGES:
        kind = {} if category is None else {"category": category}
        made.annotation(PUSH_POP, start, end, text=name, thread=thread(100, number), **kind)
    for at, length in KERNELS:
        made.kernel("k", at, 100, at + 1000, at + 1000 + length)
    return load(made.written(tmp_path / "made.sqlite"))


def test_parts_are_those_of_a_plain_loop(custom_ops):
    table = custom_ops.by("custom-op").set_index("part")
    columns = ["calls", "cpu_self_ns", "gpu_self_ns"]
    assert {name: tuple(row) for name, row in table[columns].T.to_dict("list").items()} == truth()


def test_parts_combine_with_kernels(custom_ops):
    table = custom_ops.by("custom-op,kernel")
    parts = {part: total for part, (_, _, total) in truth().items() if total}
    assert dict(zip(table["part"], table["total_ns"], strict=True)) == parts
