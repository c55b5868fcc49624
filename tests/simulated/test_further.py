"""Further kinds of trouble: each runs, its remedy saves what it should, its export is whole; they are measured apart."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from simulated import KINDS, Result, Truth, program, simulate, write
from simulated.answers import Answer, Found
from simulated.degraded import degraded_rows, known_span, known_states
from simulated.device import Kind as WorkKind
from simulated.further import FURTHER, FURTHER_EXCLUSIVE
from simulated.measure import judged
from simulated.programs import Program, draw_further
from simulated.span import run_span, states, works_of
from simulated.tables import tables
from simulated.test_exports import count
from simulated.test_programs import (
    PLANS,
    assert_same,
    durations_of_work,
    length,
    lengths_of_host_code,
    rows,
    work_of,
)
from simulated.troubles import EXCLUSIVE
from simulated.truth import collective_waits

WORTH = 0.02  # of the run: what a remedy saves at least in the median program
NEW = {  # work that only the remedied program has
    "multi_tensor_norm_kernel",
    "assign_targets_kernel",
}


def small(name: str, count: int) -> list[Program]:
    """Return the smallest of some programs with ranges and one trouble of a further kind."""
    fitting = [s for s, plan in enumerate(PLANS) if FURTHER[name].fits(plan) and plan.annotated]
    seeds = sorted(fitting, key=lambda seed: work_of(PLANS[seed]))[:count]
    return [program(seed, PLANS[seed], name) for seed in seeds]


@cache
def both(name: str, number: int = 0) -> tuple[Result, Result]:
    """Return the runs of one of the small programs of a kind, with the trouble and remedied."""
    made = small(name, number + 1)[number]
    return simulate(made), simulate(made, frozenset([name]))


@pytest.fixture(scope="module", params=sorted(FURTHER))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def saved(before: Result, behind: Result) -> float:
    """Return what a remedy saves, as a share of the run."""
    return 1 - length(behind) / length(before)


def works(result: Result, name: str) -> int:
    return sum(work.name == name for work in result.machine.works())


# -- The kinds


def test_further_kinds_are_none_of_the_known_ones():
    assert len(FURTHER) == 5
    assert not FURTHER.keys() & KINDS.keys()
    assert not any(kind.healthy for kind in FURTHER.values())
    assert set().union(*FURTHER_EXCLUSIVE) <= FURTHER.keys() | KINDS.keys()


def test_the_remedy_saves_time_in_programs_of_usual_sizes(name):
    savings = [saved(*both(name, number)) for number in range(3)]
    assert median(savings) > WORTH
    assert min(savings) > 0


def test_a_remedy_changes_no_number_of_other_events(name):
    before, behind = both(name)
    about = FURTHER[name].about(before.plan)
    ours = (*NEW, *about.kernels, *about.ops)
    if name != "copies_in_order":  # whose copies stay, in another stream
        assert_same(durations_of_work(before, ours), durations_of_work(behind, ours))
    else:
        assert_same(durations_of_work(before, ()), durations_of_work(behind, ()))
    assert_same(lengths_of_host_code(before, about.ops), lengths_of_host_code(behind, about.ops))


def test_the_names_that_a_trouble_is_about_are_in_the_run(name):
    result = both(name)[0]
    about, machine = FURTHER[name].about(result.plan), result.machine
    assert set(about.ops) <= {row[2].partition(", seq")[0] for row in machine.ranges}
    assert set(about.calls) <= {row[2] for row in machine.calls}
    assert set(about.kernels) <= {work.name for work in machine.works()}


def test_a_program_is_the_same_again(name):
    again = simulate(small(name, 1)[0])
    assert rows(again) == rows(both(name)[0])


def test_its_export_is_whole(name: str, tmp_path: Path):
    result = both(name)[0]
    span, found = run_span(result.machine), degraded_rows(result, "whole")
    gpus = {gpu.number: works_of(gpu) for gpu in result.machine.gpus}
    assert known_span(found) == span
    assert known_states(found) == {n: states(its, span) for n, its in gpus.items() if its}
    path = write(result, tmp_path / "report.sqlite")[0]
    calls = set(count(path, "SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"))
    for table in ("KERNEL", "MEMCPY", "MEMSET"):
        sql = f"SELECT correlationId, start, end FROM CUPTI_ACTIVITY_KIND_{table}"
        activities = count(path, sql)
        assert activities
        assert {row[:1] for row in activities} <= calls
        assert all(row[1] < row[2] for row in activities)


# -- What each does


def test_gradients_are_reduced_once_in_a_step_or_once_in_each_micro_batch():
    before, behind = both("accumulation_reduced")
    plan, batches = before.plan, int(before.plan.extra["accumulation_reduced"]["batches"])
    per_step = plan.ranks * plan.buckets
    assert len(collective_waits(before)) == plan.iterations * batches * per_step
    assert len(collective_waits(behind)) == plan.iterations * per_step
    kernel = plan.backward[0].kernels[0][0]
    assert works(before, kernel) == works(behind, kernel)


def test_copies_in_order_take_turns_with_kernels_and_the_host_waits_for_none():
    before, behind = both("copies_in_order")

    def streams(result: Result) -> set[int]:
        inputs = (w for w in result.machine.works() if w.kind is WorkKind.COPY and w.step > 0)
        return {work.stream.number for work in inputs if work.bytes == result.plan.input_bytes}

    compute = {w.stream.number for w in before.machine.works() if w.kind is WorkKind.COMPUTE}
    assert streams(before) <= compute
    assert not streams(behind) & compute
    assert len(before.machine.syncs) < len(behind.machine.syncs)  # waits of streams, not of hosts


def test_needless_fills_keep_the_gpu_busy():
    before, behind = both("needless_fills")
    by_state = [states(works_of(r.machine.gpus[0]), run_span(r.machine)) for r in (before, behind)]
    assert by_state[0]["other"] > by_state[1]["other"] + WORTH * length(before)
    assert by_state[0]["compute"] == by_state[1]["compute"]


def test_each_norm_is_read_back_before_the_next_kernel():
    before, behind = both("norms_read_back")
    count = int(before.plan.extra["norms_read_back"]["count"])
    steps = before.plan.iterations * before.plan.ranks
    assert works(before, "reduce_norm_kernel") == steps * count
    assert works(behind, "multi_tensor_norm_kernel") == steps
    reads = works(before, "[memcpy 2]") - works(behind, "[memcpy 2]")
    assert reads == steps * count


def test_the_gpu_waits_for_an_op_on_the_host():
    before, behind = both("op_on_host")
    host_ns = before.plan.extra["op_on_host"]["host_ns"] * before.plan.iterations
    idle = [
        states(works_of(r.machine.gpus[0]), run_span(r.machine))["idle"] for r in both("op_on_host")
    ]
    assert idle[0] - idle[1] > 0.9 * host_ns
    assert works(behind, "assign_targets_kernel") == before.plan.iterations


# -- Drawn and measured apart


def test_drawn_programs_have_one_further_trouble_and_at_most_one_known_one_or_none():
    drawn = [draw_further(seed) for seed in range(200)]
    names = [made.names for made in drawn]
    assert {(len(n & FURTHER.keys()), len(n & KINDS.keys())) for n in names} == {
        (0, 0),
        (1, 0),
        (1, 1),
    }
    for kind in FURTHER:
        assert sum(kind in its for its in names) >= 10
    groups = (*EXCLUSIVE, *FURTHER_EXCLUSIVE)
    assert not any(len(group & its) > 1 for group in groups for its in names)
    assert draw_further(7).names == names[7]


def test_further_kinds_have_tables_of_their_own():
    made = small("needless_fills", 1)[0]
    truth = Truth.of(made)
    about = truth.troubles[0].about
    found = Found("any", frozenset(about.ops), truth.troubles[0].true_saving_ns)
    said = Answer(truth.length_ns, truth.states, truth.idle, (found,))
    one = judged(truth, said)
    text = "\n".join(tables([one]))
    own = text.partition("### By further kind")[2].partition("### By kind")[0]
    assert "| needless_fills | 1 | 1 | 1/1 | 1/1 | 1/1 | 1/1 | 1.00 × |" in own
    assert "needless_fills" not in text.partition("### By kind")[2]
    known = replace(one, troubles=())
    assert "further" not in "\n".join(tables([known]))


def test_a_finding_about_the_work_of_a_call_is_about_its_trouble():
    truth = Truth.of(small("needless_fills", 1)[0])
    found = Found("any", frozenset(["[CUDA memset]"]), 1)
    said = Answer(truth.length_ns, truth.states, truth.idle, (found,))
    assert judged(truth, said).about == (frozenset(["needless_fills"]),)
