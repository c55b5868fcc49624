"""Steps: which ranges they are, and what each one is called and launched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from witness.attribution import Range

import bridge
from bridge.join.steps import _step_kinds
from join.programs import Program, attributed, programs

PROCESS = 7 << 24
MAIN, OTHER = PROCESS | 1, PROCESS | 2


def opened(start, end, op, thread=MAIN, report=0):
    return Range(report, thread & ~0xFFFFFF, thread, start, end, op)


def steps_of(*ranges):
    made = attributed(Program(list(ranges), [], [], [r.op for r in ranges]))
    found = made.steps
    return list(zip(found.range.tolist(), found.number.tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("ProfilerStep#12", 12), ("step 3", 3), ("Step #4", 4), ("step_5", 5), ("train_step 6", 6), ("global-step=7", 7),
        ("iteration 8", 8), ("iter:9", 9), ("ITER 10", 10), ("Batch 11", 11), ("mini-batch 12", 12), ("Step 20 to 30", 20),
        ("batch 3/100", 3), ("step", -1), ("training_step", -1), ("iteration", -1), ("my loop#step_num=5,_r=1#", 5), ("TSL:train:#_r=1,step_num=6#", 6),
    ],
)  # fmt: skip
def test_names_of_steps(name, number):
    [kind], [said] = _step_kinds([name])
    assert kind >= 0
    assert said == number


@pytest.mark.parametrize(
    "name", ["Optimizer.step#Adam.step", "batch", "stepper 3", "aten::step", "step 3 forward", "iterator 1", "batch_norm", "", "f#step_num=x#", "f#a_step_num=5#", "step_num=5"]
)  # fmt: skip
def test_names_that_are_no_steps(name):
    assert list(_step_kinds([name])[0]) == [-1]


def test_one_kind_of_steps_per_process_the_profilers_own_first():
    assert steps_of(opened(0, 9, "batch 5"), opened(1, 4, "step 7"), opened(4, 8, "step 8")) == [
        (1, 7),
        (2, 8),
    ]


def test_the_thread_that_spends_most_time_in_them():
    loader = [opened(n, n + 1, f"step {n}", OTHER) for n in range(5)]
    assert steps_of(*loader, opened(0, 20, "step 1"), opened(20, 30, "step 2")) == [(5, 1), (6, 2)]


def test_the_thread_whose_steps_are_late_but_short_does_not_tell_them():
    steps = [opened(0, 100, "step 1"), opened(100, 200, "step 2")]
    late = [opened(9_000 + n, 9_001 + n, f"step {n}", OTHER) for n in range(3)]
    assert steps_of(*steps, *late) == steps_of(*steps)


def test_steps_without_numbers_and_numbers_said_twice_are_counted():
    assert steps_of(opened(5, 9, "step"), opened(0, 4, "step")) == [(1, 0), (0, 1)]
    assert steps_of(opened(0, 4, "step 1"), opened(5, 9, "step 1")) == [(0, 0), (1, 1)]


def test_a_step_in_a_step_is_part_of_it():
    assert steps_of(opened(0, 10, "step 1"), opened(2, 5, "step 2"), opened(10, 12, "step 3")) == [
        (0, 1),
        (2, 3),
    ]


def test_reports_have_their_own():
    assert steps_of(opened(0, 4, "step 3"), opened(0, 4, "step 3", report=1)) == [(0, 3), (1, 3)]


@pytest.mark.slow
@given(programs(), st.lists(st.tuples(st.integers(-3, 9), st.integers(1, 4)), max_size=5))
def test_work_belongs_to_the_step_open_at_its_launch(program, spans):
    threads = [(one.report, one.process, one.thread) for one in program.ranges] or [
        (0, PROCESS, MAIN)
    ]
    added = [
        Range(*threads[n % len(threads)], start, start + length, f"step {n}")
        for n, (start, length) in enumerate(spans)
    ]
    made = Program(
        [*program.ranges, *added],
        program.calls,
        program.activities,
        [*program.texts, *(a.op for a in added)],
    )
    joined = attributed(made)
    steps, profile = joined.steps, made.profile()
    rows = steps.range.tolist()
    for row, activity in enumerate(made.activities):
        when = profile.issued(row)
        around = [
            nth
            for nth, at in enumerate(rows)
            if when is not None
            and (made.ranges[at].report, made.ranges[at].process)
            == (activity.report, activity.process)
            and made.ranges[at].start <= when < made.ranges[at].end
        ]
        assert joined.activity_step[row] == (around[0] if around else -1)
        assert len(around) < 2


@pytest.mark.slow
def test_batches_of_a_real_training(corpus):
    joined = bridge.load(corpus / "nsys" / "mnist-training.sqlite").attributed
    assert joined.steps.number.tolist() == list(range(59))
    assert np.bincount(joined.activity_step + 1).sum() == len(joined.capture.activities)
    stepless = joined.activity_step == -1
    assert joined.duration[stepless].sum() > 0  # the test after training, and what precedes it
