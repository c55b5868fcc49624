"""Steps in traces as PyTorch's profiler writes them: called as it calls them, by their numbers."""

from __future__ import annotations

from join.programs import Program, attributed
from witness.attribution import Range

from bridge.analyze.draw.dialects.torch import torch

PROCESS = 7 << 24


def drawn(*ranges):
    """Give the kind and the name of each range (name, from, to) in the order of time."""
    opened = [Range(0, PROCESS, PROCESS | 1, start, end, name) for name, start, end in ranges]
    slices = torch(attributed(Program(opened, [], [], [name for name, *_ in ranges]))).slices
    found = [
        (one.start[row], one.kind, one.name.names[one.name.codes[row]])
        for one in slices
        for row in one.rows.tolist()
    ]
    return [(kind, name) for _, kind, name in sorted(found)]


def test_every_step_is_called_by_its_own_number():
    steps = [(f"step {n}", 10 * n, 10 * n + 9) for n in (3, 4, 7)]
    assert drawn(*steps, ("aten::mm", 42, 45)) == [
        ("user_annotation", "ProfilerStep#3"),
        ("user_annotation", "ProfilerStep#4"),
        ("cpu_op", "aten::mm"),
        ("user_annotation", "ProfilerStep#7"),
    ]


def test_without_operators_all_but_steps_are_operators():
    assert drawn(("iteration 5", 0, 9), ("mine", 1, 4)) == [
        ("user_annotation", "ProfilerStep#5"),
        ("cpu_op", "mine"),
    ]
