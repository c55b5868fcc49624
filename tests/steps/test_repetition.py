"""Steps found by repetition: on made work whose steps are known, and on real profiles."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from join.programs import Program, attributed, report_of
from witness.attribution import Activity, Call, Range

import bridge
from bridge.analyze.run.steps import by_step
from bridge.importers import frames
from bridge.join import repeats
from bridge.join.attributed import AttributedCapture
from bridge.join.repeats import MIN_COVERED, MIN_REPEATS, with_repetition

PROCESS = 7 << 24
MAIN = PROCESS | 1
HOST = "D2H"
NO_RANGES = np.empty(0, np.int64), np.empty(0, np.int64)
COPY = "[CUDA memcpy Device-to-Host]"


def work_of(names, *, joint=(HOST,), pause=None):
    """Make work of names, an activity every 10 ns; the host takes part where a name is ``joint``."""
    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    issued = 10 * np.arange(len(names))
    gaps = [(pause or {}).get(name, 1) for name in names]
    return repeats.Work(
        name=np.array([codes[name] for name in names], np.int64),
        issued=issued,
        returned=issued - np.array(gaps, np.int64),
        done=issued + 5,
        spent=np.full(len(names), 5),
        host_parts=np.array([name in joint for name in names], np.int64),
    )


def found(names, **how):
    """Give the names in each step that is found."""
    work = work_of(names, **how)
    start, end = repeats.repeated_steps(work, *NO_RANGES)
    return [
        [n for n, at in zip(names, work.issued.tolist(), strict=True) if first <= at < last]
        for first, last in zip(start.tolist(), end.tolist(), strict=True)
    ]


LAYERS = ["attention", "mlp"] * 12
STEP = ["input", *LAYERS, "loss", HOST]


def test_steps_and_not_the_layers_in_them():
    steps = found(["init", "init", *STEP * 5], pause={"input": 8})
    assert steps == [STEP] * 5


def test_steps_and_not_what_comes_every_tenth():
    log = [*STEP, "log", HOST]
    steps = found((STEP * 9 + log) * 4, pause={"input": 8})
    assert len(steps) == 40
    assert Counter(map(tuple, steps[:-1])) == {tuple(STEP): 36, tuple(log): 3}
    assert steps[-1] == STEP  # what follows the last may be something else


def test_steps_however_long_the_host_pauses_before_every_tenth():
    """Ten steps and what is logged repeat as well, but a part of that does so more often."""
    steps = found((["log", HOST, *STEP * 10]) * 6, pause={"log": 9, "input": 2})
    assert {len(step) for step in steps} == {len(STEP), len(STEP) + 2}


def test_three_times_are_enough():
    assert found(STEP * 3, pause={"input": 8}) == [STEP] * 3


def test_warm_up_is_a_step_too():
    first = ["input", "tune", "tune", "tune", *STEP[1:]]
    assert found([*first, *STEP * 6], pause={"input": 8}) == [first, *[STEP] * 6]


def test_what_lies_between_two_rounds_of_steps_is_no_step():
    evaluation = ["evaluate", HOST] * 40
    steps = found(STEP * 8 + evaluation + STEP * 8 + evaluation, pause={"input": 8})
    assert steps == [STEP] * 16


@pytest.mark.parametrize("cut", [5, 20, 26])
def test_the_last_step_may_be_cut_off(cut):
    steps = found(STEP * 5 + STEP[:cut], pause={"input": 8})
    assert len(steps) == (6 if cut >= 0.8 * len(STEP) else 5)


def test_where_the_host_pauses_longest_a_step_begins():
    assert found(STEP * 30, pause={"loss": 8})[0][0] == "loss"


def test_layers_alone_are_no_steps():
    """The host issues them, no more."""
    assert not found([*LAYERS, "loss", HOST])
    assert not found(STEP * 2)
    assert not found(["a"])
    assert not found(["a", HOST] + [f"other {n}" for n in range(40)] + ["a", HOST] * 4)


def test_one_activity_again_and_again_is_no_step():
    assert not found([HOST] * 50)


@pytest.mark.slow
@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    st.integers(MIN_REPEATS, 6),
    st.lists(st.sampled_from("xyz"), max_size=3),
)
def test_what_repeats_is_found(body, times, before):
    steps = found([*before, *(["begin", *body, HOST] * times)], pause={"begin": 9})
    assert steps == [["begin", *body, HOST]] * times


@pytest.mark.slow
@given(st.lists(st.sampled_from(["a", "b", "c", HOST]), min_size=1, max_size=60))
def test_steps_are_apart_and_equal_ones_hold_most(names):
    steps = found(names)
    if not steps:
        return
    assert sum(map(len, steps)) <= len(names)
    several = Counter(tuple(sorted(step)) for step in steps)
    same, times = max(several.items(), key=lambda item: len(item[0]) * item[1])
    assert times >= MIN_REPEATS - 1  # and one that is no longer than it, before what is left over
    assert HOST in same
    assert len(same) * (times + 1) >= MIN_COVERED * len(names)


# -- in a report


def looping(times, *, with_range=""):
    """Make a program that issues two kernels, copies back, and does so again."""
    ranges, calls, work, texts = [], [], [], []
    for n in range(times):
        at = 1_000 * n
        for k, (name, kind) in enumerate(
            (("gemm", "kernel"), ("relu", "kernel"), (COPY, "memcpy"))
        ):
            calls.append(Call(0, PROCESS, MAIN, 3 * n + k + 1, at + 100 * k, at + 100 * k + 90))
            start = at + 100 * k + 50
            work.append(Activity(0, PROCESS, 3 * n + k + 1, start, start + 40, kind, name))
        if with_range:
            ranges.append(Range(0, PROCESS, MAIN, at - 60, at + 300, with_range))
            texts.append(with_range)
    return Program(ranges, calls, work, texts)


def test_a_loop_without_ranges():
    joined = attributed(looping(5))
    steps = joined.iterations
    assert (steps.range == -1).all()
    assert steps.number.tolist() == [0, 1, 2, 3, 4]
    # The host comes back from the copy at 290, and so it begins the next step there.
    assert steps.start.tolist() == [0, 290, 1290, 2290, 3290]
    assert steps.end.tolist() == [*steps.start[1:].tolist(), 4290]
    table = by_step(joined)
    assert table["found_by"].unique().tolist() == ["repetition"]
    assert table["activities"].tolist() == [3] * 5
    assert not len(joined.steps)  # what other parts draw and choose by


def test_kernels_of_one_template_with_other_arguments_are_other_work():
    made = looping(5)
    pairs = [one for n, one in enumerate(made.activities) if n % 3 != 1]  # a kernel and a copy
    report = report_of(replace(made, activities=pairs))
    codes = np.array([n if n % 2 == 0 else 1 for n in range(10)])
    full = frames.names(codes, [f"gemm<{n}>" if n != 1 else COPY for n in range(10)])
    joined = AttributedCapture.of(
        replace(report, activities=report.activities.assign(full_name=full))
    )
    assert not len(joined.iterations)
    assert len(AttributedCapture.of(report).iterations) == 5  # by their short names they are alike


def test_a_range_that_recurs_begins_the_steps():
    joined = attributed(looping(5, with_range="forward"))
    assert joined.iterations.start.tolist() == [1_000 * n - 60 for n in range(5)]


def test_steps_that_ranges_name_come_first():
    joined = attributed(looping(5, with_range="step"))
    assert joined.iterations is joined.steps


def test_a_loop_of_fewer_is_none():
    assert not len(attributed(looping(2)).iterations)


STEPS = {  # looked at: time steps, training steps, runs of a benchmark
    "cloverleaf-no-nvtx": 10,  # every second one sweeps in another direction
    "gaussian-no-nvtx": 4095,
    "transformer-annotated": 5,
    "vector-add": 4,
    "simplex-streams": 258,  # with rounds of one to dozens of searches
    "gtls-no-nvtx": 26,  # which the host only issues
    "two-processes": 0,
    "pytorch-forward": 0,  # one pass of twelve layers
    "pytorch-backward": 0,
    "pytorch-2gpu-window": 0,
    "torch-compile-graphs": 10,  # launches of a graph
    "nvfuser": 0,
    "memcpy-heavy": 0,
    "no-kernels-api": 0,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_steps_of_real_programs(name, corpus):
    joined = bridge.load(corpus / "nsys" / f"{name}.sqlite").attributed
    assert len(joined.iterations) == STEPS[name]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), [("mnist-training", 59), ("cupy-power-iteration", 43)])
def test_steps_that_ranges_name_are_found_without_them(name, steps, corpus):
    """All, or all but one: what the first iteration begins with is not what the others begin with."""
    joined = bridge.load(corpus / "nsys" / f"{name}.sqlite").attributed
    named, done = joined.steps, joined.attribution
    none = named.select(np.zeros(len(named), bool))
    alone = with_repetition(none, joined.capture, done.launch, joined.duration, done.nesting)
    assert len(alone) == steps
    assert len(named) - steps in (0, 1)
    for start, end in zip(alone.start.tolist(), alone.end.tolist(), strict=True):
        middle = named.start[(named.start >= start) & (named.start < end)]
        assert len(middle) == 1  # one of those that are named begins in each
