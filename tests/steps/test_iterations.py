"""Iterations that optimizers end, and the first and the last step of a profiler."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from join.programs import Program, attributed
from witness.attribution import Activity, Call, Range

import bridge
from bridge.analyze.run.steps import by_step
from bridge.importers import frames
from bridge.join.loops import Evidence
from bridge.join.marks import with_optimizer_steps

PROCESS = 7 << 24
MAIN = PROCESS | 1
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
ZERO, SGD, ADAM = (
    "Optimizer.zero_grad#SGD.zero_grad", "Optimizer.step#SGD.step", "Optimizer.step#Adam.step",
)  # fmt: skip
ITERATION = (LOADER, ZERO, "module:Net", "aten::mm", "backward:Net", SGD)


def program(names) -> Program:
    """Make a program of ranges one after the other, 10 ns each, with no time between them."""
    ranges = [Range(0, PROCESS, MAIN, 10 * n, 10 * n + 10, name) for n, name in enumerate(names)]
    return Program(ranges, [], [], list(names))


def times_of(names, wanted: str) -> list[tuple[int, int]]:
    return [(10 * n, 10 * n + 10) for n, name in enumerate(names) if name == wanted]


# -- Steps of an optimizer


def test_an_iteration_ends_with_the_step_of_the_optimizer():
    """Set-up before, a last wait for data after: neither is of a step."""
    names = ["aten::randn", "aten::mm", *ITERATION * 20, LOADER, "aten::item"]
    joined = attributed(program(names))
    steps = joined.iterations
    ends = [end for _, end in times_of(names, SGD)]
    assert len(steps) == 20
    assert steps.end.tolist() == ends
    assert steps.start.tolist() == [times_of(names, LOADER)[0][0], *ends[:-1]]
    table = by_step(joined)
    assert list(dict.fromkeys(table["found_by"])) == ["optimizer"]
    assert table["step"].tolist() == [*range(20)]
    assert not len(joined.steps)


@pytest.mark.parametrize(
    ("iteration", "begins"),
    [
        ((LOADER, "module:Net", SGD, ZERO, "aten::item"), LOADER),  # the end of the loop's body
        (("module:Net", "module:Net", "backward:Net", SGD), "module:Net"),
        ((LOADER, LOADER, "module:Net", SGD), LOADER),  # gradients accumulate over two batches
    ],
)
def test_the_first_iteration_begins_with_what_begins_the_second(iteration, begins):
    names = ["set-up", *iteration * 5]
    steps = attributed(program(names)).iterations
    assert len(steps) == 5
    assert steps.start[0] == times_of(names, begins)[0][0] == 10


def test_a_check_before_the_training_is_no_part_of_the_first_iteration():
    names = [LOADER, "module:Net"] * 3 + [*ITERATION * 5]
    steps = attributed(program(names)).iterations
    assert steps.start[0] == times_of(names, LOADER)[3][0]


def test_optimizers_with_nothing_between_them_end_one_iteration():
    both = attributed(program([LOADER, "module:Net", SGD, ADAM, ZERO] * 6)).iterations
    assert len(both) == 6
    alone = attributed(program([SGD] * 6)).iterations
    assert len(alone) == 6


GENERATOR = [
    "aten::randn",
    *["module:G", "aten::mm"] * 3,
    "module:D",
    "backward:D",
    "backward:G",
    SGD,
]
DISCRIMINATOR = ["aten::randn", "module:G", *["module:D", "aten::conv"] * 2, "backward:D", SGD]


@pytest.mark.parametrize(
    "turns",
    [
        [["module:Net", SGD], ["module:Other", "aten::mul", ADAM]],
        [DISCRIMINATOR, GENERATOR],
        [DISCRIMINATOR, DISCRIMINATOR, GENERATOR],
    ],
)
def test_optimizers_in_turn_end_one_iteration(turns):
    """As in a GAN, which trains its discriminator twice and then its generator."""
    names = [name for turn in turns for name in turn]
    steps = attributed(program(["set-up", *names * 6])).iterations
    assert len(steps) == 6
    assert steps.end.tolist() == [10 * (1 + len(names) * n) for n in range(1, 7)]
    assert steps.start.tolist() == [10, *steps.end[:-1].tolist()]


def test_values_that_are_copied_now_and_then_make_no_longer_iterations():
    """Three steps of ten have a copy more than their four kernels, in turn with the optimizer's."""
    body = ["module:Net", "aten::mm", "aten::mm", "backward:Net", SGD]
    names = [name for n in range(40) for name in ([*body[:4], *["aten::item"] * (n % 10 < 3), SGD])]
    ranges = program(names).ranges
    calls = [Call(0, PROCESS, MAIN, n + 1, 10 * n + 1, 10 * n + 3) for n in range(len(names))]
    work = [
        Activity(
            0,
            PROCESS,
            n + 1,
            10 * n + 4,
            10 * n + 8,
            "memcpy" if name == "aten::item" else "kernel",
            name,
        )
        for n, name in enumerate(names)
    ]
    assert len(attributed(Program(ranges, calls, work, names)).iterations) == 40


def test_two_kinds_of_steps_in_turn_are_of_one_iteration_only_if_they_differ_much():
    for count, found in ((20, 10), (50, 20)):  # 20 or 50 ops in each, and one more in every second
        turns = [
            [f"op {n}" for n in range(count)] + ["aten::item"] * more + [SGD] for more in (0, 1)
        ]
        assert (
            len(attributed(program([name for turn in turns for name in turn] * 10)).iterations)
            == found
        )


def test_an_evaluation_now_and_then_makes_no_longer_iterations():
    rounds = [*ITERATION * 5, *["evaluate", "module:Net"] * 10]
    steps = attributed(program(rounds * 4)).iterations
    assert len(steps) == 20


def test_micro_batches_are_parts_of_an_iteration():
    accumulating = [*["module:Net", "aten::mm", "backward:Net"] * 4, SGD]
    assert len(attributed(program(accumulating * 5)).iterations) == 5


def test_a_single_step_of_an_optimizer_shows_no_iterations():
    assert not len(attributed(program(ITERATION)).iterations)


def test_steps_that_ranges_name_come_before_optimizers():
    named = program([*ITERATION * 3])
    around = [Range(0, PROCESS, MAIN, 60 * n, 60 * n + 60, f"step {n}") for n in range(3)]
    texts = [f"step {n}" for n in range(3)]
    steps = attributed(
        replace(named, ranges=[*around, *named.ranges], texts=[*texts, *named.texts])
    ).iterations
    assert (steps.start.tolist(), steps.end.tolist()) == ([0, 60, 120], [60, 120, 180])
    assert set(steps.found_by) == {0}


def test_optimizers_come_before_repetition():
    made = program([*ITERATION * 5])
    calls = [Call(0, PROCESS, MAIN, n + 1, 10 * n + 1, 10 * n + 3) for n in range(30)]
    kinds = ["memcpy" if n % 6 == 5 else "kernel" for n in range(30)]
    copy = "[CUDA memcpy Device-to-Host]"
    work = [
        Activity(0, PROCESS, n + 1, 10 * n + 4, 10 * n + 8, kind, copy if kind == "memcpy" else f"k{n % 6}")
        for n, kind in enumerate(kinds)
    ]  # fmt: skip
    with_work = replace(made, calls=calls, activities=work)
    assert set(attributed(with_work).iterations.found_by) == {1}
    texts = [text.replace("Optimizer.step#", "") for text in made.texts]
    ranges = [replace(one, op=one.op.replace("Optimizer.step#", "")) for one in made.ranges]
    assert set(attributed(replace(with_work, texts=texts, ranges=ranges)).iterations.found_by) == {
        2
    }


@pytest.mark.slow
def test_the_optimizer_ends_the_iterations_of_a_real_training(corpus):
    """Each step holds the end of one iteration that a range names, and that its optimizer."""
    joined = bridge.load(corpus / "nsys" / "mnist-training.sqlite").attributed
    named, ranges = joined.steps, joined.capture.ranges
    none = named.select(np.zeros(len(named), bool))
    done = joined.attribution
    evidence = Evidence.of(joined.capture, done.nesting, done.launch, joined.duration)
    steps = with_optimizer_steps(none, evidence, joined.op)
    is_optimizer = ranges.name.matching(lambda name: name.startswith("Optimizer.step#"))
    optimizers = ranges.take(is_optimizer)
    assert len(steps) == len(named) == len(optimizers) == 59
    assert steps.end.tolist() == sorted(optimizers["end"].tolist())
    for start, end in zip(steps.start.tolist(), steps.end.tolist(), strict=True):
        begun = [at for at in named.start.tolist() if start <= at < end]
        assert len(begun) == 1


# -- Steps of a profiler


def in_steps(*contents, first: int = 0, before=()) -> Program:
    """Make a program of steps of a profiler, each with ranges of 10 ns and 5 ns at its end."""
    names, ranges, at = [], [], 0
    for name in before:
        ranges.append(Range(0, PROCESS, MAIN, at, at + 10, name))
        names.append(name)
        at += 10
    for number, content in enumerate(contents, first):
        step = f"ProfilerStep#{number}"
        ranges.append(Range(0, PROCESS, MAIN, at, at + 10 * len(content) + 5, step))
        names.append(step)
        for n, name in enumerate(content):
            ranges.append(Range(0, PROCESS, MAIN, at + 10 * n, at + 10 * n + 10, name))
            names.append(name)
        at += 10 * len(content) + 5
    return Program(ranges, [], [], names)


@pytest.mark.parametrize(
    ("last", "trails"),
    [
        ((LOADER,), True),
        ((), True),
        (("aten::item", "evaluate"), True),
        (ITERATION, False),
        (ITERATION[:4], False),  # cut off: most of it is there
        (("module:Net", "aten::mm", "evaluate", ZERO), False),
    ],
)
def test_what_follows_the_last_iteration_is_no_step(last, trails):
    joined = attributed(in_steps(*[ITERATION] * 5, last))
    assert len(joined.iterations) == (5 if trails else 6)
    assert len(joined.steps) == 6  # drawn as it was recorded


def test_steps_without_ranges_are_judged_by_their_length():
    """Without anything in the steps, the last one counts from half of the shortest on."""
    wait = (LOADER,) * 4  # data is waited for in steps and after them
    for length, trails in ((1, True), (2, False)):
        joined = attributed(in_steps(*[wait] * 5, wait[:length]))
        assert len(joined.iterations) == (5 if trails else 6), length


def test_ranges_of_a_program_s_own_are_steps_whatever_they_hold():
    made = in_steps(*[ITERATION] * 5, ())
    ranges = [replace(one, op=one.op.replace("ProfilerStep#", "step ")) for one in made.ranges]
    texts = [text.replace("ProfilerStep#", "step ") for text in made.texts]
    assert len(attributed(replace(made, ranges=ranges, texts=texts)).iterations) == 6


def test_step_0_of_a_session_without_a_schedule_has_no_range():
    steps = attributed(
        in_steps(*[ITERATION] * 3, (LOADER,), first=1, before=("set-up", *ITERATION))
    ).iterations
    assert steps.number.tolist() == [0, 1, 2, 3]
    assert (int(steps.start[0]), int(steps.end[0])) == (10, 70)
    unknown = attributed(in_steps(*[ITERATION] * 3, first=1, before=("set-up",))).iterations
    assert unknown.number.tolist() == [1, 2, 3]


@pytest.mark.parametrize("schedule", [None, {"wait": 0, "warmup": 0, "active": 9}])
def test_a_session_of_five_iterations_has_five_steps(schedule):
    chosen = {} if schedule is None else {"schedule": bridge.schedule(**schedule)}
    with bridge.profile(**chosen) as session:
        for _ in range(5):
            with bridge.nvtx_op("forward"), bridge.nvtx_op("layer"):
                pass
            with bridge.nvtx_op("backward"):
                pass
            session.step()
    table = session.by("step")
    assert table["step"].tolist() == [0, 1, 2, 3, 4]
    ranges = session.by("range")
    for start, end in pairwise([*table["start_ns"].tolist(), ranges["start_ns"].max() + 1]):
        inside = ranges[(ranges["start_ns"] >= start) & (ranges["start_ns"] < end)]
        assert inside["name"].tolist().count("forward") == 1


# -- A real training under the real nsys


TRAINING = """
import torch
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.randn(20, 8), batch_size=1)
for batch in data:
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_twenty_iterations_under_auto_are_twenty_steps(nsys: str, tmp_path: Path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAINING, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "bridge",
        "run",
        "--auto",
        "--no-import",
        "-o",
        "made",
        "train.py",
    ]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=120)
    report = bridge.load(tmp_path / "made.nsys-rep")
    table = report.by("step")
    assert table["found_by"].tolist() == ["optimizer"] * 20
    ranges = report.capture.ranges.take(report.capture.ranges.kind.among(frames.PUSH_POP))
    is_wait = ranges.name.matching(lambda name: name.startswith("enumerate"))
    waits = sorted(ranges.start[is_wait])
    assert len(waits) == 21  # the last one finds no more data
    assert table["start_ns"].iloc[0] <= waits[0]
    assert table["start_ns"].iloc[-1] < waits[19]
    ends = (table["start_ns"] + table["wall_ns"]).tolist()
    assert ends[-1] < waits[20]
